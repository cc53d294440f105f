"""Convert a plan to the contents of the program file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import onnx
from msgspec import Struct

from opu_fuse.bundle.fused_onnx import serialised
from opu_fuse.bundle.instruction_ranges import instruction_ranges
from opu_fuse.bundle.program import (
    Boundary,
    Bundle,
    DerivedNodes,
    GroupInfo,
    HostSegment,
    InstructionRange,
    MachineSegment,
    Op,
    Port,
    Segment,
    StageTensor,
    Tensor,
)
from opu_fuse.codegen.constants import pack_constants
from opu_fuse.codegen.last_writers import BEFORE, last_writers
from opu_fuse.dfg.build import sources_of
from opu_fuse.dfg.graph import Border, Dfg, Kind, Node, real_data
from opu_fuse.dfg.value_types import ValueType, type_of_data
from opu_fuse.dfg.views import feature_shape
from opu_fuse.errors import ModelError
from opu_fuse.fuse.outline import outline
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.isa.footprint import moved_bytes
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.schedule.plan import MachineProgram, Plan
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.schedule.tile_choice import PlannedLayer


class Origin(Struct, frozen=True, kw_only=True):
    """The origin of a program.

    model, model_hash: name of the model, and hash of its file;
    tool_version: version of this tool;
    qdq: the quantised model, if it is stored with the program.
    """

    model: str
    model_hash: str
    tool_version: str
    qdq: onnx.ModelProto | None


def build_bundle(dfg: Dfg, partition: Partition, plan: Plan, hw: HwSpec, origin: Origin) -> Bundle:
    """Build the program file contents. Groups are numbered in execution order; groups of views only
    have no number.
    """
    number = _execution_order(plan)
    types: dict[str, ValueType] = {}
    segments, hosts = _segments(dfg, partition, plan, number, types)
    words = _words(plan)
    ranges = instruction_ranges(segments, words, plan.program_offset)
    qdq, fused = _models(dfg, partition, number, origin)
    group_of = {
        m.node: number[g.index] for g in partition.groups if g.index in number for m in g.matches
    }
    return Bundle(
        model=origin.model,
        model_hash=origin.model_hash,
        spec_yaml=hw.to_yaml(),
        spec_hash=hw.spec_hash,
        tool_version=origin.tool_version,
        tensors=tuple(_tensors(dfg, plan, group_of)),
        inputs=_inputs(dfg, types),
        outputs=tuple(map(partial(_port, types), [dfg[i] for i in dfg.outputs], dfg.exits)),
        groups=tuple(_groups(dfg, partition, plan, number, hw, ranges)),
        segments=segments,
        boundaries=tuple(
            Boundary(dfg[b.source].name, dfg[b.target].name, b.reason) for b in partition.boundaries
        ),
        source_map=_source_map(dfg, group_of),
        window_bytes=plan.window_bytes,
        program_offset=plan.program_offset,
        constants=pack_constants(dfg, plan, hw),
        words=words,
        hosts=hosts,
        qdq=qdq,
        fused=fused,
        batch=plan.layout.images,
    )


def _models(
    dfg: Dfg, partition: Partition, number: Mapping[int, int], origin: Origin
) -> tuple[bytes, bytes]:
    """The quantised model, and its copy with groups as functions."""
    if origin.qdq is None:
        return b"", b""
    qdq, tensors = serialised(origin.qdq)
    fused = outline(dfg, partition, origin.qdq, number, tensors)
    return qdq, fused.SerializeToString(deterministic=True)


def _words(plan: Plan) -> np.ndarray:
    """All program words, each segment at its offset from `program_offset`, zero between."""
    programs = [s for s in plan.segments if isinstance(s, MachineProgram)]
    if not programs:
        return np.zeros(0, np.uint32)
    starts = [(p.program_offset - plan.program_offset) // 4 for p in programs]
    words = np.zeros(starts[-1] + len(programs[-1].words), np.uint32)
    for start, program in zip(starts, programs, strict=True):
        words[start : start + len(program.words)] = program.words
    return words


def _execution_order(plan: Plan) -> dict[int, int]:
    """Group index of the partition -> number in execution order. Loads do not count: weights are
    prefetched.
    """
    seen: dict[int, int] = {}
    second = plan.two_results
    for segment in plan.segments:
        if isinstance(segment, MachineProgram):
            for group, instruction in zip(segment.groups, segment.instructions, strict=True):
                if group >= 0 and instruction.engine is not Engine.LOAD:
                    seen.setdefault(group, len(seen))
                    if group in second:
                        seen.setdefault(second[group], len(seen))
    return seen


def _segments(
    dfg: Dfg,
    partition: Partition,
    plan: Plan,
    number: Mapping[int, int],
    types: dict[str, ValueType],
) -> tuple[tuple[Segment, ...], dict[str, bytes]]:
    """types: see `codegen.host.host_model`."""
    reasons = {op.node: op.reason for op in partition.host}
    segments: list[Segment] = []
    members: dict[str, bytes] = {}
    for segment in plan.segments:
        if isinstance(segment, HostWork):
            from opu_fuse.host.build.pieces import host_segment  # most networks need none

            hosts = sum(isinstance(s, HostSegment) for s in segments)
            host, own = host_segment(dfg, segment.nodes, reasons, hosts, types)
            segments.append(host)
            members |= own
        else:
            segments.append(
                MachineSegment(
                    program_offset=segment.program_offset,
                    words=len(segment.words),
                    groups=tuple(number.get(g, BEFORE) for g in segment.groups),
                    tiles=segment.tiles,
                )
            )
    constant = [i for i in dfg.outputs if dfg[i].kind is Kind.CONST]
    if constant:
        from opu_fuse.host.build.pieces import constant_segment

        hosts = sum(isinstance(s, HostSegment) for s in segments)
        host, own = constant_segment(dfg, constant, hosts)
        segments.append(host)
        members |= own
    return tuple(segments), members


def host_models(dfg: Dfg, plan: Plan) -> tuple[onnx.ModelProto, ...]:
    """The ONNX model of every host segment of the program, whole."""
    from opu_fuse.host.build.segment import constant_model, host_model

    types: dict[str, ValueType] = {}
    work = [s.nodes for s in plan.segments if isinstance(s, HostWork)]
    models = [host_model(dfg, nodes, f"host_{n:03d}", types) for n, nodes in enumerate(work)]
    if constant := [i for i in dfg.outputs if dfg[i].kind is Kind.CONST]:
        models.append(constant_model(dfg, constant, f"host_{len(models):03d}"))
    return tuple(m.model for m in models)


def _tensors(dfg: Dfg, plan: Plan, group_of: Mapping[int, int]) -> Iterator[Tensor]:
    """Stored values and their views."""
    readers: dict[int, list[int]] = {node: [] for node in plan.placements}
    for planned in (parts[0] for parts in plan.layers.values()):
        layer = planned.layer
        for node in {*layer.operands} & readers.keys():
            readers[node].append(group_of[layer.output])
    written_by = last_writers(dfg, plan, group_of)
    ends = {dfg.base(o) for o in dfg.outputs}
    last_group = max(group_of.values(), default=BEFORE)
    for node, base in _maps(dfg, plan):
        if base not in plan.placements:
            continue
        placement, quant = plan.placements[base], dfg[base].quant
        assert quant is not None
        first = written_by.get(base, BEFORE)
        yield Tensor(
            name=node.value,
            qdq_name=node.tensor,
            shape=node.shape,
            layout=placement.layout,
            offset=placement.offset,
            home=dfg[plan.uses[base].storage.alias_root].value,
            scale=quant.per_tensor,
            zero_point=quant.zero_point,
            first_group=first,
            last_group=last_group if base in ends else max(readers[base], default=first),
        )


def _maps(dfg: Dfg, plan: Plan) -> Iterator[tuple[Node, int]]:
    """Yield machine values and their views, each view under its own name, with the value.

    Views that the host runs are left out: they own their bytes, which may be reused. So are
    constant maps, which are data of the program like weights.
    """
    on_host = {
        n for segment in plan.segments if isinstance(segment, HostWork) for n in segment.nodes
    }
    for node in dfg.nodes:
        base = dfg.base(node.index)
        viewed = base != node.index and node.index in on_host
        is_constant = dfg[base].kind is Kind.CONST
        if base in plan.uses and node.value and not viewed and not is_constant:
            yield node, base


def _inputs(dfg: Dfg, types: Mapping[str, ValueType]) -> tuple[Port, ...]:
    """One port for each input of the user's model, also for those that are two values here."""
    ports: dict[str, Port] = {}
    for index, border in zip(dfg.inputs, dfg.entries, strict=True):
        port = _port(types, dfg[index], border)
        first = ports.setdefault(port.name, port)
        if first is not port:
            ports[port.name] = replace(first, unrounded=port.value)
    return tuple(ports.values())


def _port(types: Mapping[str, ValueType], node: Node, border: Border | None) -> Port:
    """types: of values that only ONNX Runtime knows the type of."""
    quant = None if node.kind is Kind.CONST else node.quant
    known = border.type if border else node.type or types.get(node.value)
    if node.const is not None:
        known = type_of_data(real_data(node))
    if known is None or known.shape is None:
        raise ModelError(
            f"output {node.value!r}",
            "has no static shape, not even its rank is known before the run",
            "let what decides on its shape be constants",
        )
    return Port(
        name=border.name if border else node.value,
        dtype=known.dtype.numpy().name,
        shape=known.shape,
        value=node.value,
        scale=None if quant is None else quant.per_tensor,
        zero_point=0 if quant is None else quant.zero_point,
        turn=border.turn if border else None,
        table=border.lookup.rounded(quant) if border and border.lookup and quant else None,
    )


def _groups(
    dfg: Dfg,
    partition: Partition,
    plan: Plan,
    number: Mapping[int, int],
    hw: HwSpec,
    ranges: Mapping[int, tuple[InstructionRange, ...]],
) -> Iterator[GroupInfo]:
    moved = _moved_bytes(plan, number, hw)
    written: dict[int, list[int]] = {}  # base allocation -> outputs of groups inside it
    for group in sorted(plan.layers):
        node = plan.layers[group][0].layer.output
        written.setdefault(plan.uses[node].storage.alias_root, []).append(node)
    views: dict[int, list[Node]] = {}
    for node, base in _maps(dfg, plan):
        if base not in plan.placements:
            views.setdefault(base, []).append(node)
    pass_of = {norm: group for group, norm in plan.two_results.items()}
    numbered = sorted((number[g.index], g) for g in partition.groups if g.index in number)
    for index, group in numbered:
        parts = plan.layers[group.index]
        layer = parts[0].layer
        first, *others = layer.operands
        reads = (
            *_outputs_in(first, written, plan),
            *(n for n in others if dfg[n].kind is not Kind.CONST),
        )
        name = layer.name
        if group.index in pass_of:  # it reads the partial sums of another result
            reads = (plan.layers[pass_of[group.index]][0].layer.output,)
            name = f"{name} (second result of group {number[pass_of[group.index]]})"
        yield GroupInfo(
            index=index,
            name=name,
            ops=tuple(
                Op(name=dfg[m.node].name, op=dfg[m.node].op, module=m.module) for m in group.matches
            ),
            inputs=tuple(dict.fromkeys(dfg[n].value for n in reads)),
            outputs=(dfg[layer.output].value,),
            macs=layer.macs * plan.layout.images,
            cycles=round(plan.cycles[layer.output]),
            dram_bytes=moved.get(index, 0),
            stages=tuple(_stages(dfg, parts[0], views)),
            instructions=ranges[index],
        )


def _outputs_in(node: int, written: Mapping[int, Sequence[int]], plan: Plan) -> Iterator[int]:
    """Yield a value, or the outputs of groups that it consists of where it is not in DRAM.

    written: base allocation -> these outputs.
    """
    storage = plan.uses[node].storage
    inside = () if node in plan.placements else written.get(storage.alias_root, ())
    found = [each for each in inside if plan.uses[each].storage.overlaps(storage)]
    yield from found or (node,)


def _stages(
    dfg: Dfg, planned: PlannedLayer, not_stored: Mapping[int, Sequence[Node]]
) -> Iterator[StageTensor]:
    """Stages of a group. not_stored: values that are not stored to DRAM, with their views."""
    layer = planned.layer
    for interior in layer.interiors:
        channels, rows, cols = feature_shape(dfg[interior.node].shape)
        for node in not_stored.get(interior.node, (dfg[interior.node],)):
            yield StageTensor(
                stage=interior.stage,
                name=node.value,
                qdq_name=node.tensor,
                pooled=interior.pooled,
                stored=interior.node == layer.output and interior.node not in not_stored,
                channels=channels,
                pieces=layer.out_pieces,
                px=layer.shape.stored_px,
                rows=rows,
                cols=cols,
            )


def _moved_bytes(plan: Plan, number: Mapping[int, int], hw: HwSpec) -> dict[int, int]:
    """DRAM bytes of the loads and stores of every group."""
    moved: dict[int, int] = {}
    for program in (s for s in plan.segments if isinstance(s, MachineProgram)):
        for instruction, group in zip(program.instructions, program.groups, strict=True):
            if group in number and instruction.engine in (Engine.LOAD, Engine.STORE):
                index = number[group]
                moved[index] = moved.get(index, 0) + moved_bytes(instruction, hw)
    return moved


def _source_map(dfg: Dfg, group_of: Mapping[int, int]) -> dict[str, DerivedNodes]:
    """Operator of the user's model -> canonical operators and the (last) group that runs it, -1
    on the host.
    """
    nowhere = DerivedNodes((), BEFORE)
    sources: dict[str, DerivedNodes] = {}
    for node in dfg.calls:
        for source in node.source:
            names, group = sources.get(source, nowhere)
            latest = max(group, group_of.get(node.index, BEFORE))
            sources[source] = DerivedNodes((*names, node.name), latest)
    for node in (n for border in (*dfg.entries, *dfg.exits) if border for n in border.nodes):
        for source in sources_of(node):
            names, group = sources.get(source, nowhere)
            sources[source] = DerivedNodes((*names, node.name or ""), group)
    return dict(sorted(sources.items()))
