"""A trace as columns, short enough for a page."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opu_fuse.report.trace import Slice

MOST_SLICES = 30_000
"""Of a timeline that has one for every instruction; more would make a page that nobody can open."""


def timeline(slices: Sequence[Slice]) -> dict[str, Any]:
    """Slices as columns: track, name, group (-1: none), from, to, and whether it is a wait. whole:
    there is one for every instruction; else those of a group that follow each other are one.
    """
    whole = len(slices) <= MOST_SLICES
    if not whole:
        slices = list(_runs(slices))
    return {
        "whole": whole,
        "track": [s[0] for s in slices],
        "name": [s[1] for s in slices],
        "wait": [s[2] == "stall" for s in slices],
        "from": [s[3] for s in slices],
        "to": [s[4] for s in slices],
        "group": [s[5].get("group", -1) for s in slices],
    }


def _runs(slices: Iterable[Slice]) -> Iterator[Slice]:
    """Slices of a track with the same group as one, waits left out."""
    latest: dict[str, Slice] = {}
    for track, name, category, start, end, args in slices:
        if category == "stall":
            continue
        before = latest.get(track)
        if before is not None and before[5].get("group") == args.get("group"):
            latest[track] = (*before[:4], end, before[5])
            continue
        if before is not None:
            yield before
        latest[track] = (track, name.partition(" [")[0], category, start, end, args)
    yield from latest.values()
