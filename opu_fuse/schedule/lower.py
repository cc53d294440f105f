"""A matched group -> a `Layer`: its geometry, with the integer parameters of every stage."""

from collections.abc import Callable
from dataclasses import replace

from opu_fuse.cost.draft import StageOf
from opu_fuse.cost.geometry import Geometry, group_geometry, moves_nothing
from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.integer import (
    act_params,
    average_params,
    pad_fill,
    quant_of,
    requant_params,
    residual_params,
    tied_quant,
)
from opu_fuse.dfg.scaling import CLAMPS, affine_params, pre_slots, product_params
from opu_fuse.errors import DoesNotFit
from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN
from opu_fuse.fuse.partition import Group
from opu_fuse.hw.chain import PostModule, chain_of
from opu_fuse.hw.isa import (
    HEAD_NAME,
    REGISTER,
    Engine,
    PoolKind,
    ResidualKind,
    Stage,
    unit_register,
)
from opu_fuse.hw.spec import HwSpec
from opu_fuse.layout.lanes import LaneMap
from opu_fuse.schedule.layer import Average, Interior, Layer

Registers = dict[str, int]


def lower_group(dfg: Dfg, group: Group, hw: HwSpec, lanes: LaneMap) -> tuple[Layer, ...]:
    """The layer of a group, one per phase; none when nothing in it computes. lanes:
    `layout.lanes.map_lanes`. Raises DoesNotFit and ModelError.
    """
    members = [m.node for m in group.matches]
    found = geometry_of(dfg, group, hw, lanes)
    if found is None:
        return ()
    post: Registers = {}
    average: Average | None = None
    order = _order(dfg, group, found, hw)
    for item, module in zip(found.stages, order, strict=True):
        if item.stage is Stage.POOL:
            registers, average = _pool(dfg, dfg[item.node], hw)
        else:
            registers = _STAGES[item.stage](dfg, found, item, hw)
        post |= {_register(name, module.bank): value for name, value in registers.items()}
    whole = Layer(
        group=group.index,
        name=" + ".join(
            dfg[i].name for i in members if dfg[i].owner is None and not moves_nothing(dfg[i])
        ),
        shape=found.shape,
        phase=found.phases[0][0],
        source=found.source,
        residual=found.residual,
        output=found.output,
        anchor=found.anchor,
        order=tuple(module.name for module in order),
        post=post,
        pad_value=_pad_value(dfg, found),
        macs=found.macs,
        in_pieces=found.in_pieces,
        out_pieces=found.out_pieces,
        pre=found.pre,
        pre_registers=_pre(dfg, found, hw),
        table=next((s.node for s in found.stages if s.stage is Stage.TABLE), None),
        average=average,
        pool_bank=next((m.bank for m in order if m.stage is Stage.POOL), 0),
        interiors=_interiors(dfg, members, found),
    )
    rest = (replace(whole, phase=p, shape=s, macs=0) for p, s in found.phases[1:])
    return (whole, *rest)


def geometry_of(dfg: Dfg, group: Group, hw: HwSpec, lanes: LaneMap) -> Geometry | None:
    """The geometry of a matched group: what runs before the array, the match says. Raises
    DoesNotFit.
    """
    front = {m.node for m in group.matches if m.module in chain_of(hw).front}
    return group_geometry(dfg, [m.node for m in group.matches], hw, lanes, front)


def _register(name: str, bank: int) -> str:
    staged = REGISTER[Engine.POST, name].stage is not None
    return unit_register(name, bank) if staged else name


def _order(dfg: Dfg, group: Group, found: Geometry, hw: HwSpec) -> tuple[PostModule, ...]:
    """The modules on which the group was matched, in the order of its stages. What the graph has
    not, or another kind of module than the stage needs, is no program.
    """
    chain, modules = chain_of(hw), {m.node: m.module for m in group.matches}
    names: list[str] = []
    for item in found.stages:
        name = HEAD_NAME if item.stage is Stage.REQUANT else str(modules[item.node])
        if name not in chain.by_name or chain.by_name[name].stage is not item.stage:
            raise DoesNotFit(
                dfg[item.node].name,
                f"it was matched on module {name}, which is no stage {item.stage.name}",
                "end the group before it",
            )
        names.append(name)
    mistake = chain.mistake(chain.pack(names))
    if mistake is not None:
        raise DoesNotFit(
            dfg[found.output].name,
            f"its pass would be {' -> '.join(names) or 'a copy'}, but {mistake}",
            "end the group earlier",
        )
    return tuple(chain.by_name[name] for name in names)


def _interiors(dfg: Dfg, members: list[int], found: Geometry) -> tuple[Interior, ...]:
    """Every quantised value of the chain, after the stage that makes it."""
    stage, pooled = -1, False
    made = {item.node: i for i, item in enumerate(found.stages)}
    interiors = []
    for index in members:
        if index in made:
            stage = made[index]
            pooled = pooled or found.stages[stage].stage is Stage.POOL
        node = dfg[index]
        made_here = stage >= 0 and not moves_nothing(node) and node.op not in {"upsample", "pad"}
        if len(found.phases) > 1:
            made_here = made_here and index == found.output
        if node.quant is not None and made_here:
            interiors.append(Interior(stage=stage, node=index, pooled=pooled))
    return tuple(interiors)


def _pad_value(dfg: Dfg, found: Geometry) -> int:
    """What data fetch reads outside the input: the fill of an explicit pad, or the zero point."""
    own = None
    anchor = None if found.anchor is None else dfg[found.anchor]
    if anchor is not None and (anchor.op == "transposed_conv" or any(anchor.attrs.get("pads", ()))):
        # the windows of a transposed convolution's phases reach beyond its input
        own = quant_of(dfg[anchor.operands[0]]).zero_point
    if found.pad is None:
        return own or 0
    tied_quant(dfg, found.pad)
    fill = pad_fill(dfg, found.pad)
    if own is not None and own != fill:
        raise DoesNotFit(
            dfg[found.pad].name,
            f"it pads with {fill}, the operator behind it with {own}; a pass has one fill value",
            "let them run one after the other (--strategy none)",
        )
    return fill


def _requant(dfg: Dfg, found: Geometry, item: StageOf, hw: HwSpec) -> Registers:
    node = dfg[item.node]
    if node.op == "shuffle":
        tied_quant(dfg, item.node)
    if node.op == "shuffle" or item.node in found.pre:
        return {"requant_zero": 0}
    if node.op == "avg_pool":
        return {"requant_zero": average_params(dfg, item.node, hw.numeric).y_zero}
    return {"requant_zero": requant_params(dfg, item.node, hw.numeric).zero_point}


def _act(dfg: Dfg, found: Geometry, item: StageOf, hw: HwSpec) -> Registers:  # noqa: ARG001  one signature for all stages
    p = act_params(dfg, item.node, hw.numeric)
    return {
        "act_pos": p.pos,
        "act_neg": p.neg,
        "act_shift": p.shift,
        "act_x_zero": p.x_zero,
        "act_y_zero": p.y_zero,
        "act_lo": p.lo,
        "act_hi": p.hi,
    }


def _pre(dfg: Dfg, found: Geometry, hw: HwSpec) -> Registers:
    """Registers of the pre chain; the activation only clamps, its scales are tied."""
    if not found.pre:
        return {}
    slots = pre_slots(dfg, found.pre)
    registers = {"pre": len(slots)}
    for unit, nodes in enumerate(slots):
        own = {"pre_zero": 0, "pre_lo": INT8_MIN, "pre_hi": INT8_MAX}
        for index in nodes:
            own |= _clamp(dfg, index, hw) if dfg[index].op in CLAMPS else _shifted(dfg, index)
        registers |= {unit_register(name, unit): value for name, value in own.items()}
    return registers


def _shifted(dfg: Dfg, index: int) -> Registers:
    return {"pre_zero": affine_params(dfg, index).y_zero}


def _clamp(dfg: Dfg, index: int, hw: HwSpec) -> Registers:
    act = act_params(dfg, index, hw.numeric)
    if (act.pos, act.neg, act.shift, act.x_zero) != (1, 1, 0, act.y_zero):
        raise DoesNotFit(
            dfg[index].name,
            "before the array an activation only clamps, its scales differ",
            "quantise its input and output with one scale, or end the group before it",
        )
    return {"pre_lo": act.lo, "pre_hi": act.hi}


def _table(dfg: Dfg, found: Geometry, item: StageOf, hw: HwSpec) -> Registers:  # noqa: ARG001  one signature for all stages
    return {}


def _residual(dfg: Dfg, found: Geometry, item: StageOf, hw: HwSpec) -> Registers:
    if dfg[item.node].op == "multiply":
        return _product(dfg, found, item, hw)
    p = residual_params(dfg, item.node, hw.numeric, swap=found.swapped)
    return {
        "res_kind": int(ResidualKind.ADD),
        "res_broadcast": 0,
        "res_a_mult": p.a_mult,
        "res_b_mult": p.b_mult,
        "res_shift": p.shift,
        "res_a_zero": p.a_zero,
        "res_b_zero": p.b_zero,
        "res_y_zero": p.y_zero,
    }


def _product(dfg: Dfg, found: Geometry, item: StageOf, hw: HwSpec) -> Registers:
    p = product_params(dfg, item.node, hw.numeric, swap=found.swapped)
    return {
        "res_kind": int(ResidualKind.MULTIPLY),
        "res_broadcast": int(found.shape.broadcast),
        "res_a_mult": p.mult,
        "res_shift": p.shift,
        "res_a_zero": p.a_zero,
        "res_b_zero": p.b_zero,
        "res_y_zero": p.y_zero,
    }


def _pool(dfg: Dfg, node: Node, hw: HwSpec) -> tuple[Registers, Average | None]:
    """Registers, and a multiplier per number of positions where padding is left uncounted."""
    if node.op == "max_pool":
        tied_quant(dfg, node.index)
        return {"pool_kind": int(PoolKind.MAX)}, None
    p = average_params(dfg, node.index, hw.numeric)
    registers = {
        "pool_kind": int(PoolKind.AVERAGE),
        "pool_x_zero": p.x_zero,
        "pool_y_zero": p.y_zero,
    }
    if len(p.mults) == 1:
        ((_, only),) = p.mults
        return registers | {"pool_mult": only.mult, "pool_shift": only.shift}, None
    counts = {(r, c): p.multiplier_for(r, c) for r in set(p.row_counts) for c in set(p.col_counts)}
    return registers, Average(by_count={key: (m.mult, m.shift) for key, m in counts.items()})


_STAGES: dict[Stage, Callable[[Dfg, Geometry, StageOf, HwSpec], Registers]] = {
    Stage.REQUANT: _requant,
    Stage.ACT: _act,
    Stage.RESIDUAL: _residual,
    Stage.TABLE: _table,
}
