"""A program and its run as one tree, which `report` writes as JSON and draws.

Operators, groups and reasons are those of the program file, figures those of the cycle engine. How
operators are connected and what the other strategies would do is recomputed from the quantised
model inside the program; without one there are no edges, no bound and no strategies.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from opu_fuse.bundle.derived_facts import images_per_second, mac_efficiency, total_macs
from opu_fuse.bundle.program import HostSegment
from opu_fuse.bundle.result import RunResult
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.dfg.views import elements
from opu_fuse.errors import UserError
from opu_fuse.fuse.norm_operators import norms_of
from opu_fuse.fuse.requantise_modules import with_requantisers
from opu_fuse.fuse.strategies.registry import partition as fuse_partition
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.pipeline import Options, Program, prepare_model
from opu_fuse.report.group_rows import host_summary
from opu_fuse.report.run_figures import ENGINE_LIMITS, RunFigures
from opu_fuse.report.timeline import timeline
from opu_fuse.report.trace import Slice, slices
from opu_fuse.sim.memory_over_time import memory_over_time
from opu_fuse.tiling.dram_lower_bound import bound_bytes
from opu_fuse.timing.group_cost import Cost, GroupCosts

SCHEMA_VERSION = 1

Tree = dict[str, Any]


def overview(program: Program, accuracy: Tree | None = None) -> Tree:
    """One program on the cycle engine. accuracy: the object of `accuracy --json` for it."""
    facts = _ProgramRun(program, program.run(engine="cycle"))
    return {
        "schema_version": SCHEMA_VERSION,
        "model": program.bundle.model,
        "tool_version": program.bundle.tool_version,
        "machine": program.hw.name,
        "description": program.hw.description,
        "spec": program.bundle.spec_yaml,
        "summary": _summary(facts, accuracy),
        "operators": list(_operators(facts)),
        "edges": _edges(facts),
        "groups": [*facts.figures.groups()],
        "modules": facts.figures.modules(),
        "engines": _engines(facts),
        "timeline": timeline(facts.slices),
        "memory": _memory(facts),
        "strategies": list(_strategies(facts)),
        "accuracy": accuracy,
    }


def accuracy_of(program: Program, measured: Collection[Tree]) -> Tree | None:
    """The one of several objects of `accuracy --json` that is about a program, None if none is."""
    name = (program.bundle.model, program.hw.name)
    return next((a for a in measured if (a.get("model"), a.get("machine")) == name), None)


@dataclass(frozen=True)
class _ProgramRun:
    """A program, its run, and derived facts that several parts of the tree need."""

    program: Program
    run: RunResult

    @cached_property
    def dfg(self) -> Dfg | None:
        import onnx

        if not self.program.bundle.qdq:
            return None
        model = onnx.load_from_string(self.program.bundle.qdq)
        norms = norms_of(self.program.hw)
        prepared = prepare_model(model, Options(budget=1e6), norms=norms)
        dfg = build_dfg(prepared.canonical, quantised=True)
        return with_requantisers(dfg, self.program.hw)

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        return tuple(slices(self.program.bundle, self.run))

    @cached_property
    def figures(self) -> RunFigures:
        return RunFigures(self.program.bundle, self.program.hw, self.run)


def _summary(facts: _ProgramRun, accuracy: Tree | None) -> Tree:
    bundle, hw, counters = facts.program.bundle, facts.program.hw, facts.run.counters
    cycles, macs, host = counters.get("cycles", 0), total_macs(bundle), host_summary(bundle)
    on_machine = sum(len(g.ops) for g in bundle.groups)
    everything = on_machine + host.operators
    return {
        "cycles": cycles,
        "clock_mhz": hw.clock_mhz,
        "clock": hw.clock,
        "batch": bundle.batch,
        "milliseconds": cycles / hw.clock_mhz / 1000,
        "images_per_second": images_per_second(bundle, hw.clock_mhz, cycles),
        "macs": macs,
        "mac_units": hw.macs,
        "mac_efficiency": mac_efficiency(hw.macs, macs, cycles),
        "dram_bytes_read": counters.get("dram_bytes_read", 0),
        "dram_bytes_written": counters.get("dram_bytes_written", 0),
        "dram_bound_bytes": _bound(facts),
        "dram_bytes_per_cycle": hw.dram.bytes_per_cycle,
        "dram_latency": hw.dram.latency,
        "groups": len(bundle.groups),
        "operators": everything,
        "host_operators": host.operators,
        "host_share": host.operators / everything if everything else 0.0,
        "on_chip_bytes": hw.on_chip_bytes,
        "window_bytes": bundle.window_bytes,
        "accuracy": accuracy and [_output(o) for o in accuracy.get("outputs", ())],
    }


def _output(output: Tree) -> Tree:
    return {key: output.get(key) for key in ("name", "ratio", "agreement", "right")}


def _bound(facts: _ProgramRun) -> int | None:
    if facts.dfg is None:
        return None
    node_index = {n.name: n.index for n in facts.dfg.calls}
    groups = [
        [node_index[o.name] for o in g.ops if o.name in node_index]
        for g in facts.program.bundle.groups
    ]
    return bound_bytes(facts.dfg, groups, facts.program.bundle.batch)


def _operators(facts: _ProgramRun) -> Iterator[Tree]:
    """Operators in topological order if the model is known, else in program order."""
    bundle = facts.program.bundle
    shapes = {n.name: list(n.shape) for n in facts.dfg.calls} if facts.dfg else {}
    order = {name: index for index, name in enumerate(shapes)}
    cuts: dict[str, list[Tree]] = defaultdict(list)
    for source, target, reason in bundle.boundaries:
        cuts[source].append({"to": target, "reason": reason})
    operators: list[Tree] = [
        {"name": o.name, "op": o.op, "group": g.index, "module": o.module, "host": None}
        for g in bundle.groups
        for o in g.ops
    ]
    operators += [
        {"name": name, "op": op, "group": None, "module": None, "host": reason}
        for segment in bundle.segments
        if isinstance(segment, HostSegment)
        for name, op, reason in segment.ops
    ]
    for tree in sorted(operators, key=lambda t: order.get(t["name"], len(order))):
        name = tree["name"]
        yield {**tree, "shape": shapes.get(name), "boundaries": cuts[name]}


def _edges(facts: _ProgramRun) -> list[list[str]]:
    """[from, to] by names of operators. Operators that the compiler removed are skipped."""
    dfg = facts.dfg
    if dfg is None:
        return [[source, target] for source, target, _ in facts.program.bundle.boundaries]
    present = {o["name"] for o in _operators(facts)}

    def makers(index: int) -> Iterator[str]:
        node = dfg[index]
        if node.kind is Kind.CALL and node.name in present:
            yield node.name
        elif node.kind in (Kind.CALL, Kind.TUPLE_GET):
            for operand in elements(dfg, index):
                yield from makers(operand)

    return [
        [maker, node.name]
        for node in dfg.calls
        if node.name in present
        for maker in dict.fromkeys(m for i in elements(dfg, node.index) for m in makers(i))
    ]


def _engines(facts: _ProgramRun) -> Tree:
    counters = facts.run.counters
    return {
        engine: {
            key: counters.get(f"{key}_{engine}", 0)
            for key in ("instructions", "busy", "work", "stall")
        }
        for engine in ENGINE_LIMITS
    }


def _memory(facts: _ProgramRun) -> Tree:
    """Over time; alive_bytes: feature maps in DRAM that are still going to be read."""
    usage = memory_over_time(facts.program.bundle, facts.program.hw, facts.run)
    at = usage.cycles[1:]
    ends: dict[int, int] = {}
    for track, _, _, _, end, args in facts.slices:
        if track == "groups":
            ends[args["group"]] = end
    last = list(np.maximum.accumulate([ends.get(g.index, 0) for g in facts.program.bundle.groups]))
    alive = np.zeros(len(at))
    for tensor in facts.program.bundle.tensors:
        if tensor.home == tensor.name and tensor.first_group < len(last):
            begin = last[tensor.first_group - 1] if tensor.first_group > 0 else 0
            end = last[min(tensor.last_group, len(last) - 1)] if last else 0
            alive[(at > begin) & (at <= end)] += tensor.layout.size_bytes
    return {
        "cycles": [round(float(c)) for c in usage.cycles],
        "read": usage.read.round(3).tolist(),
        "written": usage.written.round(3).tolist(),
        "alive_bytes": alive.astype(int).tolist(),
        "on_chip": {
            name: {"words": usage.capacity[name], "occupied": words.tolist()}
            for name, words in usage.on_chip.items()
        },
    }


def _strategies(facts: _ProgramRun) -> Iterator[Tree]:
    """The groups of every strategy, timed in closed form; `this`: whether the program has them."""
    dfg, hw = facts.dfg, facts.program.hw
    if dfg is None:
        return
    costs = GroupCosts(dfg, hw)
    own = {frozenset(o.name for o in g.ops) for g in facts.program.bundle.groups}
    on_machine = frozenset[str]().union(*own)
    for strategy in StrategyName:
        try:
            partition = fuse_partition(dfg, hw, strategy=strategy)
        except UserError as error:
            yield {"strategy": strategy.value, "error": str(error)}
            continue
        members = [[m.node for m in g.matches] for g in partition.groups]
        cost = sum(map(costs.of, members), Cost())
        yield {
            "strategy": strategy.value,
            "error": None,
            "groups": len(members),
            "host_operators": len(partition.host),
            "legal": partition.legal and not cost.misfits,
            "predicted_cycles": cost.cycles,
            "dram_bytes": cost.dram_bytes,
            "this": own
            == {on_machine & {dfg[i].name for i in group} for group in members} - {frozenset()},
        }
