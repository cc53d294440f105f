"""A run as a Chrome trace, for Perfetto or chrome://tracing: a track per engine, one for groups."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from opu_fuse.bundle.derived_facts import instruction_texts, machine_of
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import RunResult

TRACKS = ("fetch", "load", "compute", "post", "store")
GROUPS = "groups"
_PROCESS = 1

Event = dict[str, Any]
Slice = tuple[str, str, str, int, int, Event]
"""(track, name, category, from, to, args); cycles since the first segment began."""


def trace_json(bundle: Bundle, result: RunResult) -> str:
    """JSON text of the first sample's retire records, and its stalls where the engine records them.

    Times are microseconds at the spec's clock. The slice of an instruction begins when the one
    before it on its engine has retired, if that is later than its start; `args` hold its cycles,
    group and assembly text. A group's slice runs from the previous group's last retirement to its
    own. Machine segments follow each other without the host's time between them.
    """
    clock_mhz = machine_of(bundle).clock_mhz
    events = [*_names(bundle), *(_event(s, clock_mhz) for s in slices(bundle, result))]
    tree = {"displayTimeUnit": "ns", "traceEvents": events}
    return json.dumps(tree, separators=(",", ":"))


def slices(bundle: Bundle, result: RunResult) -> Iterator[Slice]:
    """Those of groups, of instructions, and of stalls."""
    starts = result.segment_starts
    yield from _groups(bundle, result, starts)
    yield from _instructions(bundle, result, starts)
    yield from _stalls(result, starts)


def _names(bundle: Bundle) -> Iterator[Event]:
    yield _meta("process_name", 0, name=f"{bundle.model} on {machine_of(bundle).name}")
    for track, name in enumerate((*TRACKS, GROUPS)):
        yield _meta("thread_name", track, name=name)
        yield _meta("thread_sort_index", track, sort_index=-1 if name == GROUPS else track)


def _meta(kind: str, track: int, **args: str | int) -> Event:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": kind, "args": args}


def _event(piece: Slice, clock_mhz: float) -> Event:
    track, name, category, start, end, args = piece
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": (*TRACKS, GROUPS).index(track),
        "name": name,
        "cat": category,
        "ts": start / clock_mhz,
        "dur": (end - start) / clock_mhz,
        "args": args,
    }


def _groups(bundle: Bundle, result: RunResult, starts: dict[int, int]) -> Iterator[Slice]:
    last: dict[int, int] = {}
    for r in result.trace:
        if r.group >= 0:
            last[r.group] = max(last.get(r.group, 0), starts[r.segment] + r.end)
    before = 0
    for index in sorted(last):
        if last[index] > before:
            name = bundle.groups[index].name
            yield GROUPS, name, GROUPS, before, last[index], {"group": index}
            before = last[index]


def _instructions(bundle: Bundle, result: RunResult, starts: dict[int, int]) -> Iterator[Slice]:
    texts, names = {}, {}
    for number, segment in enumerate(bundle.segments):
        if isinstance(segment, MachineSegment):
            texts[number] = instruction_texts(bundle, segment)
            names[number] = _slice_names(bundle, segment, texts[number])
    free: dict[str, int] = {}
    for r in result.trace:
        start, end = starts[r.segment] + r.start, starts[r.segment] + r.end
        args = {
            "group": r.group,
            "instruction": r.instruction,
            "start_cycle": r.start,
            "cycles": r.end - r.start,
            "text": texts[r.segment][r.instruction],
        }
        name = names[r.segment][r.instruction]
        yield r.engine, name, r.engine, max(start, min(free.get(r.engine, 0), end)), end, args
        free[r.engine] = end


def _slice_names(bundle: Bundle, segment: MachineSegment, texts: Sequence[str]) -> list[str]:
    """Opcode and group of every instruction; where the group has several tiles also the first
    output row, column and channel block of the tile that it computes, post-processes or stores.
    """
    posts = Counter(
        group for group, text in zip(segment.groups, texts, strict=True) if text.startswith("post.")
    )
    tiles = iter(segment.tiles)
    names: list[str] = []
    latest: dict[int, str] = {}
    computing: dict[int, list[int]] = {}  # instructions whose tile is known from the next post
    for number, (group, text) in enumerate(zip(segment.groups, texts, strict=True)):
        engine, _, opcode = text.split()[0].partition(".")
        name = f"{opcode} {bundle.groups[group].name}" if group >= 0 else opcode
        if engine == "compute":
            computing.setdefault(group, []).append(number)
        elif engine == "post":
            _, _, row, col, block = next(tiles)
            latest[group] = f" [{row}, {col}; {block}]" if posts[group] > 1 else ""
            for earlier in computing.pop(group, ()):
                names[earlier] += latest[group]
        names.append(name + (latest.get(group, "") if engine in ("post", "store") else ""))
    return names


def _stalls(result: RunResult, starts: dict[int, int]) -> Iterator[Slice]:
    for s in result.stalls:
        begin = starts[s.segment]
        name = f"waits for {s.reason}"
        yield s.engine, name, "stall", begin + s.start, begin + s.end, {"reason": s.reason}
