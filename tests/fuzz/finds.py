"""From a find to the smallest case that fails in the same way, written down."""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Kind, Outcome, Verdict
from tests.fuzz.worker import Request

TRIES = 400
"""Smaller cases that are tried for one find."""
SHRUNK_ALIKE = 2
"""Finds of one signature that are shrunk; the others are only written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Find:
    """A case that failed, and did so again. tries: smaller cases that were judged."""

    kind: str
    seed: int
    verdict: Verdict
    case: Any
    tries: int = 0

    @property
    def text(self) -> str:
        machine = f" --machine {self.verdict.machine}" if self.verdict.machine else ""
        again = f"python -m tests.fuzz --kind {self.kind} --only-seed {self.seed}{machine}"
        return f"{self.verdict.outcome}: {self.verdict.line}\n{again}\n"


@dataclass(slots=True)
class Finds:
    """All finds of a campaign, as they come. folder: where they are written; None: nowhere."""

    folder: Path | None
    shrink: bool = True
    found: list[Find] = field(default_factory=list)
    _alike: dict[str, int] = field(default_factory=dict)

    def follow(
        self, kind: Kind, seed: int, verdict: Verdict
    ) -> Generator[Request, list[Verdict], None]:
        """The job that runs a find again, shrinks it and writes it."""
        again = yield Request(kind=kind.name, seed=seed, machine=verdict.machine)
        if not any(v.outcome.is_find for v in again):
            line = f"only once, then {[str(v.outcome) for v in again]}: {verdict.line}"
            once = Verdict(outcome=verdict.outcome, line=line, machine=verdict.machine)
            self.add(kind, Find(kind=kind.name, seed=seed, verdict=once, case=None))
            return
        mark = signature(verdict)
        self._alike[mark] = self._alike.get(mark, 0) + 1
        found = Find(kind=kind.name, seed=seed, verdict=verdict, case=kind.draw(seed))
        if self.shrink and self._alike[mark] <= SHRUNK_ALIKE:
            found = yield from shrunk(kind, found)
        self.add(kind, found)

    def add(self, kind: Kind, find: Find) -> None:
        self.found.append(find)
        if self.folder is None:
            return
        machine = f"-{find.verdict.machine}" if find.verdict.machine else ""
        name = f"{find.kind}-{find.seed}{machine}-{find.verdict.outcome}"
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "find.txt").write_text(find.text, encoding="utf-8")
        if find.case is not None:
            kind.write(find.case, folder)


def shrunk(kind: Kind, find: Find) -> Generator[Request, list[Verdict], Find]:
    """Goes to a smaller case as long as one fails in the same way."""
    tries, tries_left = find.tries, TRIES
    candidates: Iterator[Any] = kind.smaller(find.case, find.verdict.machine)
    while tries_left and (case := next(candidates, None)) is not None:
        tries, tries_left = tries + 1, tries_left - 1
        machine = find.verdict.machine
        verdicts = yield Request(kind=kind.name, seed=find.seed, case=case, machine=machine)
        same = next((v for v in verdicts if alike(v, find.verdict)), None)
        if same is not None:
            find = Find(kind=find.kind, seed=find.seed, verdict=same, case=case, tries=tries)
            candidates = kind.smaller(case, machine)
    return find


def alike(one: Verdict, other: Verdict) -> bool:
    """The same failure. A wrong bit may move to another tensor; an exception has its place."""
    return one.outcome is other.outcome and _cause(one) == _cause(other)


def _cause(verdict: Verdict) -> str:
    """What is kept while a find is shrunk: of an exception the place, of wrong values only whether
    an output is among them.
    """
    if verdict.outcome is Outcome.INTERNAL:
        return without_names(verdict.line)[:100]
    if verdict.outcome is not Outcome.WRONG:
        return ""
    first = re.split(r"['\"\d]", verdict.line, maxsplit=1)[0].strip()
    return "values" if first in {"memory", "captured"} else first


def signature(verdict: Verdict) -> str:
    """What failures of one cause share: the outcome, the line without names and numbers."""
    return f"{verdict.outcome}: {without_names(verdict.line)[:160]}"


def without_names(line: str) -> str:
    """A line without quoted names, numbers and names that hold numbers."""
    line = re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\([^)]*\)", "‹›", line)
    return re.sub(r"\S*\d\S*", "‹›", line)
