"""How long each pass took, passes inside passes included."""

import time
from collections.abc import Callable

import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.passes.context import PassInfo
from opu_fuse.passes.printing import Writer

_HEADER = ("pass", "total ms", "self ms", "% of all", "% of parent")


class Profile(Struct, kw_only=True):
    """One run of a pass. start, end: seconds (end None while it runs); inner: passes run by it."""

    name: str
    start: float
    end: float | None = None
    failed: bool = False
    inner: list["Profile"] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Time from start to end, inner passes included; 0 while it runs."""
        return 0.0 if self.end is None else self.end - self.start

    @property
    def own_seconds(self) -> float:
        """Time not spent in inner passes."""
        return self.seconds - sum(profile.seconds for profile in self.inner)


class PassTiming:
    """Instrument: times the passes of one context. Entering a context begins a new profile.

    Put first among the instruments: what those after it do after a pass is then not counted as
    that pass's time (but as the enclosing one's own). clock: seconds, rising. write: gets the
    profile as text when the context is left. For one thread.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.perf_counter, write: Writer | None = None
    ) -> None:
        self._clock = clock
        self._write = write
        self._done_and_running: list[Profile] = []
        self._running: list[tuple[PassInfo, Profile]] = []

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The outermost passes, in the order in which they began."""
        return tuple(self._done_and_running)

    def enter_pass_ctx(self) -> None:
        self._done_and_running.clear()
        self._running.clear()

    def exit_pass_ctx(self) -> None:
        if self._write is not None:
            self._write(self.render())

    def run_before_pass(self, model: ir.Model, info: PassInfo) -> None:  # noqa: ARG002  as every instrument
        profile = Profile(name=info.name, start=self._clock())
        outer = self._running[-1][1].inner if self._running else self._done_and_running
        outer.append(profile)
        self._running.append((info, profile))

    def run_after_pass(self, model: ir.Model, info: PassInfo) -> None:  # noqa: ARG002  as every instrument
        self._stop(info, failed=False)

    def run_on_error(self, model: ir.Model, info: PassInfo, error: BaseException) -> None:  # noqa: ARG002  as every instrument
        self._stop(info, failed=True)

    def _stop(self, info: PassInfo, *, failed: bool) -> None:
        # A pass that began before this instrument came (override_instruments), or that an earlier
        # instrument stopped, has no start here.
        if self._running and self._running[-1][0] is info:
            profile = self._running.pop()[1]
            profile.end, profile.failed = self._clock(), failed

    def render(self) -> str:
        """The profile as a table, inner passes indented; a pass that did not end says so."""
        if not self._done_and_running:
            return "no pass was run"
        total = sum(profile.seconds for profile in self._done_and_running)
        rows: list[tuple[str, ...]] = [_HEADER]
        todo = [(profile, 0, total) for profile in reversed(self._done_and_running)]
        while todo:
            profile, depth, outer = todo.pop()
            rows.append(_row(profile, depth, total, outer))
            todo += [(inner, depth + 1, profile.seconds) for inner in reversed(profile.inner)]
        return _aligned(rows)


def _row(profile: Profile, depth: int, total: float, outer: float) -> tuple[str, ...]:
    state = " (running)" if profile.end is None else " (failed)" if profile.failed else ""
    return (
        "  " * depth + profile.name + state,
        f"{profile.seconds * 1e3:.3f}",
        f"{profile.own_seconds * 1e3:.3f}",
        _percent(profile.seconds, total),
        _percent(profile.seconds, outer),
    )


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole > 0 else "-"


def _aligned(rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADER))]
    lines = []
    for name, *numbers in rows:
        cells = [f"{n:>{w}}" for n, w in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([f"{name:<{widths[0]}}", *cells]))
    return "\n".join(lines)
