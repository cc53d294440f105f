"""A run as a Chrome trace: open it in Perfetto or chrome://tracing, one track per engine."""

import json
from collections.abc import Iterator
from typing import Any

from opu_fuse.bundle.facts import instruction_texts, machine_of
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.bundle.result import Retire, RunResult

TRACKS = ("fetch", "load", "compute", "post", "store")
_PROCESS = 1


def trace_json(bundle: Bundle, result: RunResult) -> str:
    """JSON text of the first sample's retire records.

    Times are microseconds at the spec's clock; `args` of every slice hold its cycles, group and
    assembly text. Machine segments follow each other without the host's time between them.
    """
    events = [*_names(bundle), *_slices(bundle, result)]
    tree = {"displayTimeUnit": "ns", "traceEvents": events}
    return json.dumps(tree, separators=(",", ":"))


def _names(bundle: Bundle) -> Iterator[dict[str, Any]]:
    hw = machine_of(bundle)
    yield _meta("process_name", 0, name=f"{bundle.model} on {hw.name}")
    for track, name in enumerate(TRACKS):
        yield _meta("thread_name", track, name=name)
        yield _meta("thread_sort_index", track, sort_index=track)


def _meta(kind: str, track: int, **args: str | int) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": kind, "args": args}


def _slices(bundle: Bundle, result: RunResult) -> Iterator[dict[str, Any]]:
    clock_mhz = machine_of(bundle).clock_mhz
    texts = {
        number: instruction_texts(bundle, segment)
        for number, segment in enumerate(bundle.segments)
        if isinstance(segment, MachineSegment)
    }
    starts = _segment_starts(result.trace)
    for r in result.trace:
        group = bundle.groups[r.group].name if r.group >= 0 else ""
        text = texts[r.segment][r.instruction]
        yield {
            "ph": "X",
            "pid": _PROCESS,
            "tid": TRACKS.index(r.engine),
            "name": f"{text.split()[0].partition('.')[2]} {group}".rstrip(),
            "cat": r.engine,
            "ts": (starts[r.segment] + r.start) / clock_mhz,
            "dur": (r.end - r.start) / clock_mhz,
            "args": {
                "group": r.group,
                "instruction": r.instruction,
                "start_cycle": r.start,
                "cycles": r.end - r.start,
                "text": text,
            },
        }


def _segment_starts(trace: tuple[Retire, ...]) -> dict[int, int]:
    """Cycle at which every segment begins when they follow each other."""
    ends: dict[int, int] = {}
    for r in trace:
        ends[r.segment] = max(ends.get(r.segment, 0), r.end)
    starts: dict[int, int] = {}
    at = 0
    for segment in sorted(ends):
        starts[segment] = at
        at += ends[segment]
    return starts
