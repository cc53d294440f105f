"""What a searching strategy found: region by region, against what `matched` makes of it."""

from dataclasses import asdict, dataclass
from typing import Any

from opu_fuse.cost.groups import Cost
from opu_fuse.dfg.graph import Dfg


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Operators between values that must lie in memory whatever the grouping.

    nodes: DFG indices, ascending, owned biases included; decisions: edges that some legal group
    fuses; exact: False where the search gave up and took `matched`; best, matched: cost of the
    grouping found, and of `matched`.
    """

    nodes: tuple[int, ...]
    decisions: int
    exact: bool
    best: Cost
    matched: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """regions: those with something to decide, in DFG order; best, matched: cost of the whole
    model.
    """

    regions: tuple[Region, ...]
    best: Cost
    matched: Cost

    @property
    def exact(self) -> bool:
        return all(region.exact for region in self.regions)


def search_lines(dfg: Dfg, search: Search) -> list[str]:
    """The search in words: how far it looked, what it gained, where it gave up."""
    regions = search.regions
    most = max((r.decisions for r in regions), default=0)
    reach = "the best of all legal groupings" if search.exact else "not everywhere exactly"
    gain = _gain(search.best, search.matched)
    return [
        f"searched {len(regions)} regions, up to {most} decisions each: {reach}",
        f"predicted {cost_text(search.best)}; matched {cost_text(search.matched)}{gain}",
        *(
            f"  better than matched: {_span(dfg, r)}: {cost_text(r.best)} "
            f"instead of {cost_text(r.matched)}"
            for r in regions
            if r.best < r.matched
        ),
        *(
            f"  grouped as matched: {_span(dfg, r)}: {r.decisions} decisions leave too many "
            "groups open"
            for r in regions
            if not r.exact
        ),
    ]


def search_json(dfg: Dfg, search: Search) -> dict[str, Any]:
    """The search as plain dicts and lists, operators by name."""
    return {
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
    """A cost in words; what is not there is not mentioned."""
    words = [f"{cost.cycles} cycles", f"{cost.dram_bytes} bytes"]
    if cost.misfits:
        words.append(f"{cost.misfits} groups that fit no tile")
    if cost.host:
        words.append(f"{cost.host} operators on the host")
    return ", ".join(words)


def _gain(best: Cost, matched: Cost) -> str:
    if best.misfits != matched.misfits or best.host != matched.host or not matched.cycles:
        return ""
    return f" ({100 * (best.cycles / matched.cycles - 1):+.2f} % cycles)"


def _span(dfg: Dfg, region: Region) -> str:
    names = [dfg[i].name for i in region.nodes if dfg[i].owner is None]
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
