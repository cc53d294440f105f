"""The report of a searching strategy: costs by region, compared with `matched`."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from opu_fuse.dfg.graph import Dfg
from opu_fuse.number_text import counted
from opu_fuse.timing.group_cost import Cost


class Region(Struct, frozen=True, kw_only=True):
    """Operators between values that every grouping stores in memory.

    nodes: DFG indices, ascending, owned biases included.
    decisions: edges that some legal group fuses.
    exact: False where the search gave up and took `matched`.
    best, matched: cost of the search's grouping, and of `matched`.
    """

    nodes: tuple[int, ...]
    decisions: int
    exact: bool
    best: Cost
    matched: Cost


class Change(Struct, frozen=True, kw_only=True):
    """An accepted regrouping.

    nodes: DFG indices of the regrouped operators, ascending; saved: cycles that it saves.
    """

    nodes: tuple[int, ...]
    saved: int


class Timed(Struct, frozen=True, kw_only=True):
    """The local search, which times whole partitions with their layout.

    before: predicted cycles of the start partition (`matched`, or groups that run more operators on
    the machine) with the tiles of the closed form; best: cycles after all accepted changes; tried:
    number of changes timed; taken: the accepted changes.
    """

    before: int
    best: int
    tried: int
    taken: tuple[Change, ...]


class Search(Struct, frozen=True, kw_only=True):
    """The report of a search.

    regions: those with at least one decision, in DFG order; best, matched: cost of the whole model,
    as the sum of the groups' own costs; timed: the local search that chose the groups, None where
    the groups with the least sum were taken.
    """

    regions: tuple[Region, ...]
    best: Cost
    matched: Cost
    timed: Timed | None = None

    @property
    def exact(self) -> bool:
        return all(region.exact for region in self.regions)


def search_lines(dfg: Dfg, search: Search) -> list[str]:
    """The report as text: extent of the search, its gain, and where it gave up."""
    regions = search.regions
    most = max((r.decisions for r in regions), default=0)
    reach = "the best of all legal groupings" if search.exact else "not everywhere exactly"
    summed = "" if search.timed is None else ", group by group"
    given_up = "grouped as matched" if search.timed is None else "only changes to matched"
    return [
        f"searched {len(regions)} regions, up to {most} decisions each: {reach}{summed}",
        *(_summed(dfg, search) if search.timed is None else _timed(dfg, search.timed)),
        *(
            f"  {given_up}: {_span(dfg, r.nodes)}: {r.decisions} decisions leave too many "
            "groups open"
            for r in regions
            if not r.exact
        ),
    ]


def _summed(dfg: Dfg, search: Search) -> Iterator[str]:
    gain = _gain(search.best, search.matched)
    yield f"predicted {cost_text(search.best)}; matched {cost_text(search.matched)}{gain}"
    for r in search.regions:
        if r.best < r.matched:
            best, matched = cost_text(r.best), cost_text(r.matched)
            yield f"  better than matched: {_span(dfg, r.nodes)}: {best} instead of {matched}"


def _timed(dfg: Dfg, timed: Timed) -> Iterator[str]:
    gain = f" ({100 * (timed.best / timed.before - 1):+.2f} %)" if timed.before else ""
    yield (
        f"predicted {timed.best} cycles before other tiles are timed; without these changes "
        f"{timed.before}{gain}; {timed.tried} changes timed"
    )
    for change in timed.taken:
        yield f"  better than matched: {_span(dfg, change.nodes)}: {change.saved} cycles less"


def search_json(dfg: Dfg, search: Search) -> dict[str, Any]:
    """The search as plain dicts and lists, operators by name."""
    timed = search.timed
    return {
        "timed": timed and {**asdict(timed), "taken": [_change(dfg, c) for c in timed.taken]},
        "exact": search.exact,
        "best": asdict(search.best),
        "matched": asdict(search.matched),
        "regions": [
            {
                "nodes": [dfg[i].name for i in region.nodes],
                "decisions": region.decisions,
                "exact": region.exact,
                "best": asdict(region.best),
                "matched": asdict(region.matched),
            }
            for region in search.regions
        ],
    }


def cost_text(cost: Cost) -> str:
    """A cost as text, without zero misfits and host operators."""
    words = [counted(cost.cycles, "cycle"), counted(cost.dram_bytes, "byte")]
    if cost.misfits:
        words.append(f"{counted(cost.misfits, 'group')} that fit no tile")
    if cost.host:
        words.append(f"{counted(cost.host, 'operator')} on the host")
    return ", ".join(words)


def _gain(best: Cost, matched: Cost) -> str:
    if best.misfits != matched.misfits or best.host != matched.host or not matched.cycles:
        return ""
    return f" ({100 * (best.cycles / matched.cycles - 1):+.2f} % cycles)"


def _change(dfg: Dfg, change: Change) -> dict[str, Any]:
    return {"nodes": [dfg[i].name for i in change.nodes], "saved": change.saved}


def _span(dfg: Dfg, nodes: Sequence[int]) -> str:
    names = [dfg[i].name for i in nodes if dfg[i].owner is None]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
