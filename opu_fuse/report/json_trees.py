"""What `--json` prints, as plain trees; all numbers of one run of the program (totals of a run by
how often it ran).
"""

import math
from dataclasses import asdict
from typing import Any, Protocol

from opu_fuse.bundle.derived_facts import (
    images_per_second,
    instruction_texts,
    mac_efficiency,
    total_macs,
)
from opu_fuse.bundle.program import Bundle, GroupInfo, HostPiece, HostSegment, Tensor
from opu_fuse.bundle.result import CheckResult, OfModel, RunResult
from opu_fuse.report.group_rows import GroupRow, group_rows, has_cycles, per_run

SCHEMA_VERSION = 1

Tree = dict[str, Any]


class Machine(Protocol):
    """What is needed of a hardware spec."""

    @property
    def name(self) -> str: ...

    @property
    def macs(self) -> int: ...

    @property
    def clock_mhz(self) -> float: ...


def run_json(
    bundle: Bundle, hw: Machine, result: RunResult, check: CheckResult | None = None
) -> Tree:
    """The object of `run --json`. cycles, mac_efficiency, milliseconds and images_per_second are
    null where the engine has no time; check is null when nothing was compared.
    """
    timed = has_cycles(result)
    cycles, macs = per_run(result, "cycles"), total_macs(bundle)
    return {
        "schema_version": SCHEMA_VERSION,
        "engine": result.engine,
        "cycles": cycles if timed else None,
        "macs": macs,
        "mac_efficiency": mac_efficiency(hw.macs, macs, cycles) if timed else None,
        "batch": bundle.batch,
        "milliseconds": cycles / hw.clock_mhz / 1000 if timed else None,
        "images_per_second": images_per_second(bundle, hw.clock_mhz, cycles) if timed else None,
        "dram_bytes_read": per_run(result, "dram_bytes_read"),
        "dram_bytes_written": per_run(result, "dram_bytes_written"),
        "groups": [_run_group(row) for row in group_rows(bundle, result)],
        "check": None if check is None else _check(check),
    }


def inspect_json(bundle: Bundle, *, memory: bool = False, asm: bool = False) -> Tree:
    """The object of `inspect --json`: the groups with predictions, segments, ports, and for every
    operator of the user's model where it runs; with the memory map and the instructions where
    asked for.
    """
    tree: Tree = {
        "schema_version": SCHEMA_VERSION,
        "model": bundle.model,
        "model_hash": bundle.model_hash,
        "tool_version": bundle.tool_version,
        "spec_hash": f"{bundle.spec_hash:011x}",
        "macs": total_macs(bundle),
        "batch": bundle.batch,
        "window_bytes": bundle.window_bytes,
        "inputs": [_port(bundle, p.name) for p in bundle.inputs],
        "outputs": [_port(bundle, p.name) for p in bundle.outputs],
        "groups": [_inspect_group(row) for row in group_rows(bundle)],
        "segments": [_segment(bundle, i, asm=asm) for i in range(len(bundle.segments))],
        "boundaries": [
            {"from": b.source, "to": b.target, "reason": b.reason} for b in bundle.boundaries
        ],
        "sources": _sources(bundle),
    }
    if memory:
        tree["memory"] = memory_json(bundle)
    return tree


def _run_group(row: GroupRow) -> Tree:
    return {
        "index": row.group.index,
        "name": row.group.name,
        "cycles": row.cycles if row.measured else None,
        "macs": row.group.macs,
        "mac_efficiency": row.mac_efficiency if row.measured else None,
    }


def _check(check: CheckResult) -> Tree:
    return {
        "reference": check.reference,
        "max_abs_diff": check.max_abs_diff,
        "mismatches": check.mismatches,
        "elements": check.elements,
        "passed": check.passed,
        "model": None if check.of_model is None else _of_model(check.of_model),
    }


def _of_model(against: OfModel) -> Tree:
    """snr_db is null where nothing differs, limit where there is no bound."""
    return {
        "file": against.model or None,
        "not_compared": against.why or None,
        "random_inputs": against.noise,
        "outputs": [
            {
                "name": output.name,
                "snr_db": output.snr_db,
                "differing": output.differing,
                "elements": output.elements,
                "max_abs_diff": _finite(output.max_abs_diff),
                "limit": _finite(output.limit),
                "passed": output.passed,
            }
            for output in against.outputs
        ],
    }


def _finite(number: float | None) -> float | None:
    """JSON has no infinity."""
    return number if number is not None and math.isfinite(number) else None


def _inspect_group(row: GroupRow) -> Tree:
    group = row.group
    return {
        "index": group.index,
        "name": group.name,
        "ops": [{"name": o.name, "op": o.op, "module": o.module} for o in group.ops],
        "inputs": list(group.inputs),
        "outputs": list(group.outputs),
        "macs": group.macs,
        "predicted_cycles": group.cycles,
        "predicted_mac_efficiency": row.mac_efficiency,
        "dram_bytes": group.dram_bytes,
        "instructions": _instructions(group),
    }


def _instructions(group: GroupInfo) -> list[Tree]:
    return [
        {
            "segment": r.segment,
            "first": r.first,
            "last": r.last,
            "first_word": r.first_word,
            "last_word": r.last_word,
        }
        for r in group.instructions
    ]


def _sources(bundle: Bundle) -> list[Tree]:
    """Operators of the user's model -> the operators they became -> group -> instructions. group
    is null on the host (then segment is the host's) and for views that nobody has to make.
    """
    group_of = {op.name: g for g in bundle.groups for op in g.ops}
    segment_of = {
        op.name: number
        for number, segment in enumerate(bundle.segments)
        if isinstance(segment, HostSegment)
        for op in segment.ops
    }

    def location(name: str) -> Tree:
        group = group_of.get(name)
        if group is None:
            return {"name": name, "group": None, "host_segment": segment_of.get(name)}
        return {"name": name, "group": group.index, "instructions": _instructions(group)}

    return [
        {"name": source, "operators": [location(name) for name in origin.names]}
        for source, origin in bundle.source_map.items()
    ]


def _port(bundle: Bundle, name: str) -> Tree:
    port = next(p for p in (*bundle.inputs, *bundle.outputs) if p.name == name)
    turn = port.turn
    return {
        "name": port.name,
        "dtype": port.dtype,
        "shape": list(port.shape),
        "scale": port.scale,
        "zero_point": port.zero_point,
        "turn": turn and {k: list(sizes) for k, sizes in asdict(turn).items()},
        "table": port.table and asdict(port.table),
    }


def _segment(bundle: Bundle, number: int, *, asm: bool) -> Tree:
    segment = bundle.segments[number]
    if isinstance(segment, HostSegment):
        return {
            "kind": "host",
            "ops": [{"name": n, "op": o, "reason": r} for n, o, r in segment.ops],
            "pieces": [_piece(piece) for piece in segment.pieces],
            "cuts": [{"from": p, "to": c, "reason": r} for p, c, r in segment.cuts],
        }
    tree: Tree = {
        "kind": "machine",
        "words": segment.words,
        "instructions": len(segment.groups),
        "groups": sorted({g for g in segment.groups if g >= 0}),
    }
    if asm:
        texts = instruction_texts(bundle, segment)
        pairs = zip(segment.groups, texts, strict=True)
        tree["listing"] = [{"group": group, "text": text} for group, text in pairs]
    return tree


def _piece(piece: HostPiece) -> Tree:
    """not_fused is null for the operators of a kernel."""
    return {
        "member": piece.member,
        "inputs": list(piece.inputs),
        "outputs": list(piece.outputs),
        "ops": [{"name": name, "not_fused": why or None} for name, why in piece.ops],
    }


def memory_json(bundle: Bundle) -> Tree:
    """The memory window: constants, program, and every feature map."""
    return {
        "constants": {"offset": 0, "bytes": int(bundle.constants.size)},
        "program": {"offset": bundle.program_offset, "bytes": 4 * len(bundle.words)},
        "tensors": [_tensor(t) for t in bundle.tensors],
    }


def _tensor(t: Tensor) -> Tree:
    return {
        "name": t.name,
        "shape": list(t.shape),
        "offset": t.offset,
        "bytes": t.layout.size_bytes,
        "slot": t.layout.slot,
        "scale": t.scale,
        "zero_point": t.zero_point,
        "first_group": t.first_group,
        "last_group": t.last_group,
    }
