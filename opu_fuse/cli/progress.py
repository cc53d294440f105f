"""How far the command is: a bar with the time left on a terminal, a line a minute elsewhere."""

import math
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from threading import Event, Thread

from opu_fuse.cli.console import err, out
from opu_fuse.number_text import duration
from opu_fuse.process.progress import Listener, listening

LINE_SECONDS = 60.0
"""Between two lines where no bar can be drawn."""
_LEAST_SECONDS, _LEAST_SHARE = 3.0, 0.03
"""What is known of the speed before these says little about the time left."""

COMPILE_SHARES = {
    "quantise": 0.78,
    "build the data-flow graph": 0.01,
    "fuse and tile": 0.04,
    "schedule": 0.12,
    "generate the program": 0.04,
    "write": 0.01,
}
"""Of the time of a compilation with calibration data; measured on four networks of the zoo."""


class Estimate:
    """What is being done, and when it will be done if it continues at the same speed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._begun = clock, clock()
        self.what, self.share = "load", 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begun

    @property
    def left(self) -> float:
        """Seconds; NaN while nobody knows."""
        if self.elapsed < _LEAST_SECONDS or self.share < _LEAST_SHARE:
            return math.nan
        return self.elapsed * (1.0 - self.share) / self.share

    @property
    def left_text(self) -> str:
        """`1:05 left`, or nothing."""
        return f"{duration(self.left)} left" if math.isfinite(self.left) else ""

    def __str__(self) -> str:
        parts = (self.what, f"{self.share:.0%} done", f"{duration(self.elapsed)} elapsed")
        return ", ".join(filter(None, (*parts, self.left_text)))


@contextmanager
def progress(*, measured: bool = False) -> Generator[Listener]:
    """Shows what the caller and the block report (`process/progress.py`).
    measured: the texts say the time left already.
    """
    if out.quiet:
        yield lambda *_: None
        return
    with _bar(measured) if err.is_terminal else _lines(measured) as show, listening(show):
        yield show


@contextmanager
def stages(shares: Mapping[str, float]) -> Generator[Callable[[str], None]]:
    """Progress through stages that begin when they are named to the function. shares: of the time,
    by stage; what the stage reports is a part of it.
    """
    firsts = dict(zip(shares, accumulate(shares.values(), initial=0.0), strict=False))
    current = next(iter(shares))
    with progress() as show:

        def begin(stage: str) -> None:
            nonlocal current
            current = stage
            show(stage, firsts[stage])

        def inside(what: str, share: float) -> None:
            show(what, firsts[current] + shares[current] * share)

        with listening(inside):
            yield begin


def time_left(what: str, done: int, total: int, seconds: float) -> str:
    """How far some work is. seconds: to its end, NaN or infinite where nobody knows."""
    known = f", {duration(seconds)} left" if math.isfinite(seconds) else ""
    return f"{done:,} of {total:,} {what}{known}"


@contextmanager
def _bar(measured: bool) -> Generator[Listener]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    estimate = Estimate()
    columns = (
        *(BarColumn(bar_width=24), TaskProgressColumn(), TimeElapsedColumn()),
        *(TextColumn("{task.fields[left]}"), TextColumn("{task.description}", markup=False)),
    )
    with Progress(*columns, console=err.rich, transient=True) as bar:
        task = bar.add_task(estimate.what, total=1.0, left="")

        def show(what: str, share: float) -> None:
            estimate.what, estimate.share = what, share
            left = "" if measured else estimate.left_text
            bar.update(task, description=what, completed=share, left=left)

        yield show


@contextmanager
def _lines(measured: bool) -> Generator[Listener]:
    estimate, done = Estimate(), Event()

    def show(what: str, share: float) -> None:
        estimate.what, estimate.share = what, share

    def print_lines() -> None:
        while not done.wait(LINE_SECONDS):
            err.print(estimate.what if measured else str(estimate))

    thread = Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield show
    finally:
        done.set()
        thread.join()
