"""Lower a matched group to a `Layer`: its geometry and the integer parameters of its stages."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from msgspec.structs import asdict, replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.integer import operator, pad_fill, quant_of, requant_params, settings, tied_quant
from opu_fuse.dfg.pre_array import CLAMPS, pre_slots, rescales
from opu_fuse.dfg.views import feature_shape
from opu_fuse.errors import DoesNotFit
from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN
from opu_fuse.fuse.partition import Group
from opu_fuse.hw.isa.table import HEAD_NAME, unit_register
from opu_fuse.hw.spec.chain import PostModule, chain_of, stage_name
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import LaneMap
from opu_fuse.lowering.handlers import StageOf, chain_operand, ends_before
from opu_fuse.lowering.pass_geometry import Geometry, group_geometry, moves_nothing
from opu_fuse.schedule.layer import Interior, Layer, NormPasses
from opu_fuse.schedule.wide_weights import with_cells
from opu_fuse.units import BY_STAGE
from opu_fuse.units.affine import affine_params, gate_registers
from opu_fuse.units.base import Stage
from opu_fuse.units.operator import Settings
from opu_fuse.units.pool import average_params

Registers = dict[str, int]
_MOVING = frozenset({"pad", "permute", "upsample"})
"""Operators without a value of their own inside a pass."""


def lower_group(dfg: Dfg, group: Group, hw: HwSpec, lanes: LaneMap) -> tuple[Layer, ...]:
    """The layers of a group, one per phase; none when nothing in it computes.

    lanes: `layout.lanes.map_lanes`. Raises DoesNotFit and ModelError.
    """
    members = [m.node for m in group.matches]
    geometry, order = pass_of(dfg, group, hw, lanes)
    if geometry is None:
        return ()
    post: Registers = {}
    parts: dict[tuple[int, int], Registers] = {}
    records: list[np.ndarray] = []
    norm: NormPasses | None = None
    for item, module in zip(geometry.stages, order, strict=True):
        own = _settings(dfg, geometry, item, hw)
        post |= _unit_registers(own.registers, module.bank)
        if own.per_channel is not None:
            records.append(np.array(list(own.per_channel), BY_STAGE[item.stage].record))
        if own.passes:
            norm = _norm(dfg, item, own, module.bank, hw)
        parts |= {count: _unit_registers(more, module.bank) for count, more in own.by_count.items()}
    whole = Layer(
        **asdict(geometry),
        group=group.index,
        name=" + ".join(
            dfg[i].name for i in members if dfg[i].owner is None and not moves_nothing(dfg[i])
        ),
        phase=geometry.phases[0][0],
        order=tuple(module.name for module in order),
        post=post,
        pad_value=_pad_value(dfg, geometry),
        pre_registers=_pre(dfg, geometry, hw),
        residual_units=tuple(m.bank for m in order if m.stage is Stage.RESIDUAL),
        table_units=tuple(m.bank for m in order if m.stage is Stage.TABLE),
        functions=tuple(
            _entries(dfg, item.node) for item in geometry.stages if item.stage is Stage.TABLE
        ),
        norm=norm,
        by_count=parts,
        per_channel=tuple(records),
        interiors=_interiors(dfg, members, geometry),
    )
    layers = [
        replace(whole, phase=p, shape=with_cells(dfg, geometry, p, s, hw))
        for p, s in geometry.phases
    ]
    return layers[0], *(replace(layer, macs=0) for layer in layers[1:])


def _entries(dfg: Dfg, node: int) -> bytes:
    from opu_fuse.dfg.function_tables import (
        table_entries,  # what computes functions; few have tables
    )

    return table_entries(dfg, node).tobytes()


def _norm(dfg: Dfg, item: StageOf, own: Settings, bank: int, hw: HwSpec) -> NormPasses:
    node, unit, looks_up = dfg[item.node], BY_STAGE[item.stage], None
    channels = feature_shape(node.shape)[0]
    lanes = unit.lanes_read.get(node.op)
    passes = own.passes
    if node.op in unit.looks_up:
        scale = float(quant_of(dfg[node.operands[0]]).per_tensor)
        looks_up = node.op, scale, float(node.attrs.get("epsilon", 0.0))
    if lanes is not None:
        idle = ({"norm_idle": hw.word_channels - count} for count in lanes)
        passes = tuple({**one, **more} for one, more in zip(passes, idle, strict=True))
    return NormPasses(
        unit=bank,
        idle=-channels % hw.word_channels,
        statistics=tuple(_unit_registers(registers, bank) for registers in passes),
        looks_up=looks_up,
    )


def pass_of(
    dfg: Dfg, group: Group, hw: HwSpec, lanes: LaneMap
) -> tuple[Geometry | None, tuple[PostModule, ...]]:
    """The geometry of a matched group and the modules of its stages; independent of its scales.

    The match decides which operators run before the array. Raises DoesNotFit.
    """
    front = {m.node for m in group.matches if m.module in chain_of(hw).front}
    changed = next((i for i in front if rescales(dfg, dfg[i])), None)
    if changed is not None:
        raise _only_clamps(dfg, changed)
    geometry = group_geometry(dfg, [m.node for m in group.matches], hw, lanes, front)
    return geometry, () if geometry is None else _order(dfg, group, geometry, hw)


def _unit_registers(registers: Mapping[str, int], bank: int) -> Registers:
    """Rename registers of a unit to their names in an instruction."""
    return {unit_register(name, bank): value for name, value in registers.items()}


def _order(dfg: Dfg, group: Group, geometry: Geometry, hw: HwSpec) -> tuple[PostModule, ...]:
    """The modules on which the group was matched, in stage order.

    Raises DoesNotFit if a module cannot run its stage, or the chain has no such order.
    """
    chain, modules = chain_of(hw), {m.node: m.module for m in group.matches}
    names: list[str] = []
    uses = Counter[str]()
    for item in geometry.stages:
        module = HEAD_NAME if item.stage is Stage.REQUANT else str(modules[item.node])
        name = stage_name(module, uses[module])
        uses[module] += 1
        if name not in chain.by_name or chain.by_name[name].stage is not item.stage:
            what = f"it was matched on module {name}, which is no stage {item.stage.name}"
            raise ends_before(dfg[item.node], what)
        names.append(name)
    mistake = chain.mistake(chain.pack(names))
    if mistake is not None:
        raise DoesNotFit(
            dfg[geometry.output].name,
            f"its pass would be {' -> '.join(names) or 'a copy'}, but {mistake}",
            "end the group earlier",
        )
    return tuple(chain.by_name[name] for name in names)


def _interiors(dfg: Dfg, members: list[int], geometry: Geometry) -> tuple[Interior, ...]:
    """Every quantised value of the chain, after the stage that computes it."""
    stage, pooled = -1, False
    stage_index = {item.node: i for i, item in enumerate(geometry.stages)}
    interiors = []
    for index in members:
        if index in stage_index:
            stage = stage_index[index]
            pooled = pooled or geometry.stages[stage].stage is Stage.POOL
        node = dfg[index]
        is_computed = stage >= 0 and not moves_nothing(node) and node.op not in _MOVING
        if len(geometry.phases) > 1:
            is_computed = is_computed and index == geometry.output
        if node.quant is not None and is_computed:
            interiors.append(Interior(stage=stage, node=index, pooled=pooled))
    return tuple(interiors)


def _pad_value(dfg: Dfg, geometry: Geometry) -> int:
    """The int8 that data fetch reads outside the input: the fill of a pad, or the zero point."""
    own = None
    anchor = None if geometry.anchor is None else dfg[geometry.anchor]
    if anchor is not None and (anchor.op == "transposed_conv" or any(anchor.attrs.get("pads", ()))):
        # the windows of a transposed convolution's phases reach beyond its input
        own = quant_of(dfg[anchor.operands[0]]).zero_point
    if geometry.pad is None:
        return own or 0
    fill = pad_fill(dfg, geometry.pad)
    if own is not None and own != fill:
        raise DoesNotFit(
            dfg[geometry.pad].name,
            f"it pads with {fill}, the operator after it with {own}; a pass has one fill value",
            "let them run one after the other (--strategy none)",
        )
    return fill


def _settings(dfg: Dfg, geometry: Geometry, item: StageOf, hw: HwSpec) -> Settings:
    """Settings of one stage; the requantiser scales the output of its operator or pre unit."""
    if item.stage is not Stage.REQUANT:
        return settings(dfg, item.node, item.stage, hw.numeric, swap=item.swapped)
    node = dfg[item.node]
    moves = node.op in {"shuffle", "transpose"} and not node.is_turned_layer
    if moves:
        tied_quant(dfg, item.node)
    if moves or item.node in geometry.pre:
        zero = 0
    elif node.op == "avg_pool":
        zero = average_params(operator(dfg, item.node), hw.numeric).y_zero
    else:
        zero = requant_params(dfg, item.node, hw.numeric).zero_point
    return Settings(registers={"requant_zero": zero})


def _pre(dfg: Dfg, geometry: Geometry, hw: HwSpec) -> Registers:
    """Registers of the pre chain; the activation only clamps, its scales are tied."""
    if not geometry.pre:
        return {}
    slots = pre_slots(dfg, geometry.pre)
    registers = {"pre": len(slots), "gate": 0}
    for unit, nodes in enumerate(slots):
        own = {"pre_zero": 0, "pre_lo": INT8_MIN, "pre_hi": INT8_MAX}
        for index in nodes:
            if index == geometry.pre[0] and geometry.gate is not None:
                second = chain_operand(dfg, dfg[index]) == 1
                own |= gate_registers(operator(dfg, index, swap=second))
            elif dfg[index].op in CLAMPS:
                own |= _clamp(dfg, index, hw)
            else:
                own["pre_zero"] = affine_params(operator(dfg, index)).y_zero
        registers |= {unit_register(name, unit): value for name, value in own.items()}
    return registers


def _clamp(dfg: Dfg, index: int, hw: HwSpec) -> Registers:
    act = settings(dfg, index, Stage.ACT, hw.numeric).registers
    slopes = (act["act_pos"], act["act_neg"], act["act_shift"])
    if (*slopes, act["act_x_zero"]) != (1, 1, 0, act["act_y_zero"]):
        raise _only_clamps(dfg, index)
    return {"pre_lo": act["act_lo"], "pre_hi": act["act_hi"]}


def _only_clamps(dfg: Dfg, index: int) -> DoesNotFit:
    return DoesNotFit(
        dfg[index].name,
        "before the array an activation only clamps, its scales differ",
        "quantise its input and output with one scale, or end the group before it",
    )
