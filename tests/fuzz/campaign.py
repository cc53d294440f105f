"""A campaign: cases by their seeds for as long as is allowed; finds followed, all counted."""

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.cases import Kind, Outcome, Verdict
from tests.fuzz.finds import Find, Finds, signature, without_names
from tests.fuzz.pool import Job, Pool
from tests.fuzz.worker import Request

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """minutes: all kinds together; cases: of each kind (whichever ends first;
    None: no such limit). seed: the first; only_seed: that case and no other. machine: that one
    only. jobs: processes. folder: for finds.
    """

    kinds: Sequence[Kind]
    minutes: float | None = None
    cases: int | None = None
    seed: int = 1
    only_seed: int | None = None
    machine: str | None = None
    jobs: int = 2
    folder: Path | None = None
    shrink: bool = True


@dataclass(slots=True)
class Counts:
    """What came of everything that ran. seconds, slowest, peak_mib: of single verdicts, by kind."""

    outcomes: Counter[tuple[str, str, Outcome]] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    seeds: dict[str, tuple[int, int]] = field(default_factory=dict)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    slowest: dict[str, tuple[float, int]] = field(default_factory=dict)
    peak_mib: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, kind: str, seed: int, verdicts: Sequence[Verdict]) -> None:
        first, last = self.seeds.get(kind, (seed, seed))
        self.seeds[kind] = (min(first, seed), max(last, seed))
        for v in verdicts:
            self.outcomes[kind, v.machine, v.outcome] += 1
            if v.outcome is Outcome.REFUSED:
                self.reasons[kind, without_names(v.line)[:110]] += 1
            self.seconds[kind] += v.seconds
            self.slowest[kind] = max(self.slowest.get(kind, (0.0, 0)), (v.seconds, seed))
            self.peak_mib[kind] = max(self.peak_mib.get(kind, (0, 0)), (v.peak_mib, seed))


def run(plan: Plan, tell: Callable[[str], None] = log.info) -> tuple[Counts, Finds]:
    """All cases of a plan. tell: hears of finds as they come."""
    counts = Counts()
    finds = Finds(folder=plan.folder, shrink=plan.shrink)
    kinds = {k.name: k for k in plan.kinds}
    with Pool(kinds, plan.jobs) as pool:

        def case(kind: Kind, seed: int) -> Job:
            request = Request(kind=kind.name, seed=seed, machine=plan.machine)
            verdicts = yield request
            counts.add(kind.name, seed, verdicts)
            for v in verdicts:
                if v.outcome.is_find:
                    tell(f"{kind.name} {seed} {v.machine} {v.outcome}: {v.line}")
                    pool.add(finds.follow(kind, seed, v))

        try:
            pool.run(case(kind, seed) for kind, seed in _order(plan))
        except KeyboardInterrupt:
            tell("stopped: what was judged until then")
    return counts, finds


def _order(plan: Plan) -> Iterator[tuple[Kind, int]]:
    """Kinds and seeds, the kinds side by side in proportion to their shares."""
    if plan.only_seed is not None:
        yield from ((kind, plan.only_seed) for kind in plan.kinds)
        return
    begun = time.monotonic()
    turns = {kind.name: 0.0 for kind in plan.kinds}
    given = Counter[str]()
    while plan.minutes is None or time.monotonic() - begun < 60 * plan.minutes:
        open_kinds = [k for k in plan.kinds if plan.cases is None or given[k.name] < plan.cases]
        if not open_kinds:
            return
        kind = min(open_kinds, key=lambda k: turns[k.name])
        turns[kind.name] += 1 / kind.share
        yield kind, plan.seed + given[kind.name]
        given[kind.name] += 1


def table(counts: Counts, finds: Finds) -> str:
    """What came of a campaign: kinds and machines × outcomes, refusals by reason, finds."""
    outcomes = list(Outcome)
    rows = [["kind", "machine", *map(str, outcomes)]]
    for kind, machine in sorted({(k, m) for k, m, _ in counts.outcomes}):
        found = (counts.outcomes[kind, machine, o] for o in outcomes)
        rows.append([kind, machine or "-", *(str(n) if n else "." for n in found)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    lines += [_sums(counts, kind) for kind in sorted(counts.seeds)]
    if counts.reasons:
        lines.append("refused because")
        lines += [f"  {n:6} {kind}: {why}" for (kind, why), n in counts.reasons.most_common(40)]
    kinds_of_find: dict[str, list[Find]] = {}
    for find in finds.found:
        kinds_of_find.setdefault(f"{find.kind} {signature(find.verdict)}", []).append(find)
    for alike in sorted(kinds_of_find.values(), key=len, reverse=True):
        smallest = max(alike, key=lambda f: f.tries)
        lines.append(f"FIND ×{len(alike)} {smallest.text.rstrip()}")
    return "\n".join(line.rstrip() for line in lines)


def _sums(counts: Counts, kind: str) -> str:
    of_kind = {key: n for key, n in counts.outcomes.items() if key[0] == kind}
    total = sum(of_kind.values())
    refused = sum(n for (_, _, o), n in of_kind.items() if o is Outcome.REFUSED)
    first, last = counts.seeds[kind]
    slowest, peak = counts.slowest.get(kind, (0.0, 0)), counts.peak_mib.get(kind, (0, 0))
    return (
        f"{kind}: seeds {first} to {last}, {total} judged, {100 * refused / max(total, 1):.1f} % "
        f"refused, {counts.seconds[kind] / max(total, 1):.2f} s each; slowest {slowest[0]:.1f} s "
        f"(seed {slowest[1]}), peak {peak[0]} MiB (seed {peak[1]})"
    )
