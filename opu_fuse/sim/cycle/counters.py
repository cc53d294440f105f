"""Counters of busy and waiting cycles of each engine, from the times of its instructions."""

from collections.abc import Iterator

from opu_fuse.hw.isa.table import Engine
from opu_fuse.sim.cycle.issue import Issue
from opu_fuse.sim.cycle.machine import CycleMachine

WORDS = "words"
"""Reason of a stall: the next instruction is not fetched yet."""

Gap = tuple[int, int, str]
"""(from, to, reason)."""


def gaps(issue: Issue) -> Iterator[Gap]:
    """Cycles in which nothing was open and an instruction was still to come."""
    open_until = 0
    for n, start in enumerate(issue.starts):
        headed = max(issue.headed[n], open_until)
        granted, source = issue.granted[n]
        if start > open_until:
            if headed > open_until:
                yield open_until, min(headed, start), WORDS
            if granted > headed:
                yield headed, min(granted, start), Engine(source).name.lower()
        open_until = max(open_until, issue.ends[n])


def engine_counters(machine: CycleMachine, cycles: int) -> dict[str, int]:
    """Totals of one run, those of the RTL under the same names.

    busy_<engine>: cycles with an open instruction (fetch: words passed on); stall_<engine>: the
    next instruction waited for a token, or a retirement for room in a counter (fetch: for room in
    a queue). More than the RTL counts: work_<engine>, cycles with a beat, step or iteration;
    idle_<engine>_<reason>: nothing was open, for want of words or of an engine's token.
    """
    counters = {
        "cycles": cycles,
        "instructions_fetch": len(machine.fetch.own),
        "busy_fetch": machine.fetch.words,
        "stall_fetch": machine.fetch.stalled,
    }
    for number, issue in machine.issues.items():
        name = Engine(number).name.lower()
        counters[f"instructions_{name}"] = len(issue.ends)
        counters[f"busy_{name}"] = _busy(issue)
        counters[f"stall_{name}"] = _waited(issue)
        counters[f"work_{name}"] = machine.units[number].worked
        for start, end, reason in gaps(issue):
            key = f"idle_{name}_{reason}"
            counters[key] = counters.get(key, 0) + end - start
    return counters


def _busy(issue: Issue) -> int:
    total = open_until = 0
    for start, end in zip(issue.starts, issue.ends, strict=True):
        total += end - max(start, open_until)
        open_until = end
    return total


def _waited(issue: Issue) -> int:
    tokens = sum(
        max(granted - headed, 0)
        for headed, (granted, _) in zip(issue.headed, issue.granted, strict=True)
    )
    return tokens + issue.held
