"""From command-line options to a `PassContext`."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from opu_fuse.choices import require_names
from opu_fuse.errors import UserError
from opu_fuse.passes.context import (
    CHECK_WORD,
    DEFAULT_LEVEL,
    HIGHEST_LEVEL,
    LOWEST_LEVEL,
    PassContext,
    PassInfo,
    suggestion,
)
from opu_fuse.passes.printing import EVERY, PrintIR, Writer
from opu_fuse.passes.registry import registered
from opu_fuse.passes.timing import PassTiming
from opu_fuse.passes.verification import VerifyIR


class PassOptions(Struct, frozen=True, kw_only=True):
    """What a user may set about passes; comments name options of the command line.

    config: values of registered keys. print_before, print_after: names, or EVERY for all.
    """

    opt_level: int = DEFAULT_LEVEL  # -O0..3
    disable: tuple[str, ...] = ()  # --disable-pass
    require: tuple[str, ...] = ()  # from Python only
    print_before: tuple[str, ...] = ()  # --print-ir-before
    print_after: tuple[str, ...] = ()  # --print-ir-after
    time_passes: bool = False  # --time-passes
    verify: bool = False  # --verify-passes
    config: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        for option in ("disable", "require", "print_before", "print_after"):
            require_names(option, getattr(self, option))


def pass_context(
    options: PassOptions, *, write: Writer, more: Iterable[PassInfo] = ()
) -> PassContext:
    """A context, not entered yet, that does what the options say.

    write: gets printed IR as it comes and the time profile when the context is left. more: passes
    that may be named in addition to the registered ones (those of a pipeline).
    Raises UserError for a level outside 0..3, for a name nobody has, with the nearest one, and
    where a pass is to be left out that always runs.
    """
    if not LOWEST_LEVEL <= options.opt_level <= HIGHEST_LEVEL:
        raise UserError(
            f"-O{options.opt_level}",
            "there is no such optimisation level",
            f"levels are -O{LOWEST_LEVEL} to -O{HIGHEST_LEVEL}",
        )
    known = {info.name: info for info in (*registered(), *more)}
    for option, names in _named_passes(options).items():
        for name in names:
            if name not in known and not (name == EVERY and option.startswith("--print")):
                raise UserError(
                    f"{option} {name}",
                    f"there is no pass {name!r}",
                    suggestion(name, known, "passes"),
                )
    for name in options.disable:
        if known[name].always:
            raise UserError(
                f"--disable-pass {name}",
                "nothing compiles without it",
                "see it with --print-ir-before and --print-ir-after, or leave out another pass",
            )
    return PassContext(
        opt_level=options.opt_level,
        required_pass=options.require,
        disabled_pass=options.disable,
        config={**({CHECK_WORD: True} if options.verify else {}), **(options.config or {})},
        instruments=_instruments(options, write),
    )


def require_ran(context: PassContext) -> None:
    """UserError for the first pass that was required in a context and has not run in it."""
    for name in context.required_in_vain():
        raise UserError(
            f"require {name}",
            "compiling did not run this pass",
            "it is disabled, too: leave out one of both"
            if name in context.disabled_pass
            else "run it on the model yourself, and compile what it returns",
        )


def _named_passes(options: PassOptions) -> dict[str, tuple[str, ...]]:
    return {
        "--disable-pass": options.disable,
        "require": options.require,
        "--print-ir-before": options.print_before,
        "--print-ir-after": options.print_after,
    }


def _instruments(options: PassOptions, write: Writer) -> list[object]:
    """Timing first (see `PassTiming`); printing before verifying, to show a refused model."""
    instruments: list[object] = []
    if options.time_passes:
        instruments.append(PassTiming(write=write))
    if options.print_before or options.print_after:
        instruments.append(PrintIR(write, before=options.print_before, after=options.print_after))
    if options.verify:
        instruments.append(VerifyIR())
    return instruments
