"""One mistake in the values of a spec, before its file and line are known."""

import difflib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from opu_fuse.units import RUNS
from opu_fuse.units.base import ModuleKind


class Problem(Struct, frozen=True, kw_only=True):
    """path: keys that lead to the culprit in the YAML; what and help: as in `errors.UserError`."""

    path: tuple[str | int, ...]
    what: str
    help: str


def bad(path: tuple[str | int, ...], what: str, help_: str) -> Problem:
    """A `Problem`, short."""
    return Problem(path=path, what=what, help=help_)


def unbuilt(path: tuple[str | int, ...], what: str, fix: str) -> Problem:
    """A problem of a machine that is valid but that the RTL does not support."""
    return Problem(
        path=path,
        what=f"the RTL cannot build this: {what}",
        help=f"{fix}, or set `build: false` to partition only",
    )


_COMMON_WORDS = {
    "activation": ModuleKind.COMPARATOR,
    "bias": ModuleKind.ADDER,
    "convolution": ModuleKind.IPA,
    "lut": ModuleKind.TABLE,
    "pooling": ModuleKind.POOL,
}
"""What people call modules."""


def kinds_called(word: str) -> tuple[ModuleKind, ...]:
    """Kinds of module for the name of an operator, or for another common word."""
    common = _COMMON_WORDS.get(word)
    return (common,) if common else RUNS.get(word, ())


def did_you_mean(word: str, known: Iterable[str], runs_on: Sequence[str] = ()) -> str:
    """` ('word' runs on x)` where the word is of an operator, ` (did you mean 'x'?)` where a known
    word is close, else nothing.
    """
    if runs_on:
        return f" ({word!r} runs on {' or '.join(runs_on)})"
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
