"""What a case is, and what can come of it.

A case is known by its kind and its seed, never by who runs it or when: `Kind.draw(seed)` makes the
same case in every process. A kind judges a case on each of its machines; what the product raises
passes through, and `outcome_of` says what it means.
"""

import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from opu_fuse.errors import UserError

LONGEST_LINE = 2000


class Outcome(StrEnum):
    """The first two are what the product promises; each of the others is a find."""

    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"
    INTERNAL = "internal"
    HANG = "hang"
    MEMORY = "memory"
    CRASH = "crash"

    @property
    def is_find(self) -> bool:
        return self not in {Outcome.RIGHT, Outcome.REFUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """line: why it was refused, what is wrong, or what was raised and where; "" when right.
    about: anything more about the case, counted in the table ("rtl", ...).
    """

    outcome: Outcome
    line: str = ""
    machine: str = ""
    about: tuple[str, ...] = ()
    seconds: float = 0.0
    peak_mib: int = 0


class Kind(Protocol):
    """One kind of cases: `networks`, `models`, ... Modules of this folder hold one as `KIND`.

    name: as on the command line. share: how many cases of it, relative to other kinds, in a
    campaign of several. Cases are pickled on their way to the process that judges them while they
    are shrunk.
    """

    name: str
    share: float

    def draw(self, seed: int) -> Any:
        """The case of a seed."""
        ...

    def machines(self, case: Any) -> Sequence[str]:
        """Names under which the case is judged, at least one: machines, or "" where none counts."""
        ...

    def judge(self, case: Any, machine: str) -> str | None:
        """None when it is right, otherwise what is wrong, in one line. Whatever the product
        raises is left alone: a UserError is a refusal, the rest are finds.
        """
        ...

    def seconds(self, case: Any) -> float:
        """How long one machine may take: `worker.SECONDS_PER_CASE`, unless something is built."""
        ...

    def smaller(self, case: Any, machine: str) -> Iterator[Any]:
        """Cases a little smaller than this one, the most promising first; any number, lazily."""
        ...

    def write(self, case: Any, folder: Path) -> None:
        """The case as files (which a person can read, where possible)."""
        ...


def judged(kind: Kind, case: Any, machine: str) -> Verdict:
    """What comes of a case on a machine, as long as the process lives."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # the user would see them on the screen
            wrong = kind.judge(case, machine)
    except BaseException as error:  # noqa: BLE001 whatever it is, it is the find
        return outcome_of(error, machine)
    if wrong is None:
        return Verdict(outcome=Outcome.RIGHT, machine=machine)
    return Verdict(outcome=Outcome.WRONG, line=wrong[:LONGEST_LINE], machine=machine)


def outcome_of(error: BaseException, machine: str = "") -> Verdict:
    """A deliberate error of one line is a refusal; everything else is not meant to happen."""
    text = str(error)
    if isinstance(error, UserError):
        if "\n" not in text:
            return Verdict(outcome=Outcome.REFUSED, line=text[:LONGEST_LINE], machine=machine)
        text = "refused in several lines: " + text.replace("\n", " | ")
    line = f"{type(error).__name__}: {' '.join(text.split())} at {_place(error)}"
    memory = isinstance(error, MemoryError)
    outcome = Outcome.MEMORY if memory else Outcome.INTERNAL
    return Verdict(outcome=outcome, line=line[:LONGEST_LINE], machine=machine)


def _place(error: BaseException) -> str:
    """file:function of the innermost frame of the product, then that of the raise."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/opu_fuse/" in f.filename]
    named = [f"{Path(f.filename).parent.name}/{Path(f.filename).name}:{f.name}" for f in ours[-1:]]
    if frames and (not ours or frames[-1] is not ours[-1]):
        named.append(f"{Path(frames[-1].filename).name}:{frames[-1].name}")
    return " < ".join(named)
