"""A matched group -> a `Layer`: which stages run in which order with which numbers.

Cases, by the group's first working operator: (1) conv or dense: the array, REQUANT first; a
dense node reads the flattened map as a convolution whose kernel is the whole map; (2) an
explicit pad: its amounts join the window of what follows; (3) anything else: the copy path.
Later operators become post stages.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from opu_fuse.cost.layer import POINT, Shape, Window
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
from opu_fuse.errors import DoesNotFit
from opu_fuse.fuse.partition import Group
from opu_fuse.hw.isa import PoolKind, Stage
from opu_fuse.hw.spec import HwSpec
from opu_fuse.schedule.layer import Average, Interior, Layer
from opu_fuse.schedule.tensors import feature_shape, follow_views

ACTIVATIONS = ("relu", "clip", "leaky_relu")
POOLS = ("max_pool", "avg_pool")


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A layer while its operators are read. value: DFG index of the chain's latest value."""

    dfg: Dfg
    hw: HwSpec
    source: int
    value: int
    window: Window = POINT
    pool: Window | None = None
    residual: int | None = None
    residual_at: str | None = None
    anchor: int | None = None
    groups: int = 1
    pad_value: int = 0
    macs: int = 0
    mid: tuple[int, int, int] = (0, 0, 0)
    average: Average | None = None
    order: list[Stage] = field(default_factory=list)
    post: dict[str, int] = field(default_factory=dict)
    interiors: list[Interior] = field(default_factory=list)


def lower_group(dfg: Dfg, group: Group, hw: HwSpec) -> Layer | None:
    """The layer of a group; None when all its operators are changes of view. Raises DoesNotFit
    and ModelError.
    """
    nodes = [dfg[m.node] for m in group.matches if not dfg[m.node].is_virtual]
    if not nodes:
        return None
    source = nodes[0].operands[0]
    draft = _Draft(dfg=dfg, hw=hw, source=follow_views(dfg, source), value=source)
    draft.mid = in_shape = feature_shape(dfg[draft.source].shape)
    if nodes[0].op != "dense":
        _same_map(draft, nodes[0], source)
    for node in nodes:
        if node.owner is None:
            _HANDLERS[node.op](draft, node)
        draft.value = node.index
        if node.quant is not None and draft.order:
            draft.interiors.append(
                Interior(stage=len(draft.order) - 1, node=node.index, pooled=draft.pool is not None)
            )
    channels, rows, cols = draft.mid
    out = feature_shape(nodes[-1].shape)
    return Layer(
        group=group.index,
        name=" + ".join(n.name for n in nodes if n.owner is None),
        shape=Shape(
            array=draft.anchor is not None,
            in_channels=in_shape[0],
            in_rows=in_shape[1],
            in_cols=in_shape[2],
            slot=hw.word_bytes,
            window=draft.window,
            groups=draft.groups,
            mid_channels=channels,
            mid_rows=rows,
            mid_cols=cols,
            pool=draft.pool,
            out_rows=out[1],
            out_cols=out[2],
            residual=draft.residual_at,
        ),
        source=draft.source,
        residual=draft.residual,
        output=nodes[-1].index,
        anchor=draft.anchor,
        order=tuple(draft.order),
        post=draft.post,
        pad_value=draft.pad_value,
        macs=draft.macs,
        average=draft.average,
        interiors=tuple(draft.interiors),
    )


def _pad(draft: _Draft, node: Node) -> None:
    tied_quant(draft.dfg, node.index)
    draft.window = replace(draft.window, pads=node.attrs["pads"])
    draft.pad_value = pad_fill(draft.dfg, node.index)
    draft.mid = feature_shape(node.shape)


def _conv(draft: _Draft, node: Node) -> None:
    attrs = node.attrs
    own = attrs["pads"]
    before = draft.window.pads
    fill = quant_of(draft.dfg[node.operands[0]]).zero_point
    if any(own) and any(before) and draft.pad_value != fill:
        raise DoesNotFit(
            node.name,
            f"it pads with {fill}, the explicit pad in front with {draft.pad_value}; a pass has "
            "one fill value",
            "let them run one after the other (--strategy none)",
        )
    if any(own):
        draft.pad_value = fill
    draft.window = Window(
        kernel=attrs["kernel"],
        strides=attrs["strides"],
        dilations=attrs["dilations"],
        pads=_sum_pads(before, own),
    )
    draft.groups = attrs["group"]
    _array(draft, node)


def _dense(draft: _Draft, node: Node) -> None:
    """The flattened map as a convolution without padding over the whole map."""
    draft.window = Window(kernel=draft.mid[1:])
    _array(draft, node)


def _array(draft: _Draft, node: Node) -> None:
    params = requant_params(draft.dfg, node.index, draft.hw.numeric)
    weight = draft.dfg[node.operands[1]].const
    assert weight is not None
    draft.anchor = node.index
    draft.mid = feature_shape(node.shape)
    draft.macs = weight.size * draft.mid[1] * draft.mid[2]
    draft.order.append(Stage.REQUANT)
    draft.post["requant_zero"] = params.zero_point


def _activation(draft: _Draft, node: Node) -> None:
    p = act_params(draft.dfg, node.index, draft.hw.numeric)
    draft.order.append(Stage.ACT)
    draft.post |= {
        "act_pos": p.pos,
        "act_neg": p.neg,
        "act_shift": p.shift,
        "act_x_zero": p.x_zero,
        "act_y_zero": p.y_zero,
        "act_lo": p.lo,
        "act_hi": p.hi,
    }


def _pool(draft: _Draft, node: Node) -> None:
    attrs = node.attrs
    window = Window(kernel=attrs["kernel"], strides=attrs["strides"], pads=attrs["pads"])
    if (
        node.op == "avg_pool"
        and not draft.order
        and window.kernel[0] * window.kernel[1] > _largest_window(draft)
    ):
        _pool_on_array(draft, node, window)
        return
    draft.order.append(Stage.POOL)
    draft.pool = window
    if draft.residual is not None:
        draft.residual_at = "mid"
    if node.op == "max_pool":
        tied_quant(draft.dfg, node.index)
        draft.post["pool_kind"] = int(PoolKind.MAX)
        return
    p = average_params(draft.dfg, node.index, draft.hw.numeric)
    draft.post |= {
        "pool_kind": int(PoolKind.AVERAGE),
        "pool_x_zero": p.x_zero,
        "pool_y_zero": p.y_zero,
    }
    if len(p.mults) == 1:
        ((_, only),) = p.mults
        draft.post |= {"pool_mult": only.mult, "pool_shift": only.shift}
        return
    counts = {(r, c): p.multiplier_for(r, c) for r in set(p.row_counts) for c in set(p.col_counts)}
    draft.average = Average(by_count={key: (m.mult, m.shift) for key, m in counts.items()})


def _largest_window(draft: _Draft) -> int:
    """Positions of the largest window that a tile can hold."""
    return min(draft.hw.buffers.psum.bank_words, draft.hw.buffers.feature.bank_words)


def _pool_on_array(draft: _Draft, node: Node, window: Window) -> None:
    """An average whose window exceeds a tile: a depthwise sum with weights of one, kernel part
    by kernel part.
    """
    p = average_params(draft.dfg, node.index, draft.hw.numeric)
    if len(p.mults) > 1:
        raise DoesNotFit(
            node.name,
            f"its window of {window.kernel[0]}×{window.kernel[1]} exceeds a tile and its padding "
            "is not counted",
            "count the padding (count_include_pad=1), or raise buffers.psum.words in the spec",
        )
    draft.anchor = node.index
    draft.window = window
    draft.groups = draft.mid[0]
    draft.pad_value = p.x_zero
    draft.mid = feature_shape(node.shape)
    draft.order.append(Stage.REQUANT)
    draft.post["requant_zero"] = p.y_zero


def _same_map(draft: _Draft, node: Node, operand: int) -> None:
    """A map is read as it was written: only dense looks through a flattening."""
    shape = draft.dfg[operand].shape
    stored = draft.dfg[follow_views(draft.dfg, operand)].shape
    if feature_shape(shape) != feature_shape(stored):
        raise DoesNotFit(
            node.name,
            f"it reads a map of shape {stored} as {shape}, the machine keeps maps in blocks of "
            "channels",
            "leave the operator on the host, or reshape behind it",
        )


def _add(draft: _Draft, node: Node) -> None:
    """Residual: the operand that is not the chain's value comes from memory."""
    chain_first = follow_views(draft.dfg, node.operands[0]) == follow_views(draft.dfg, draft.value)
    other = node.operands[1] if chain_first else node.operands[0]
    p = residual_params(draft.dfg, node.index, draft.hw.numeric, swap=not chain_first)
    _same_map(draft, node, other)
    draft.order.append(Stage.RESIDUAL)
    draft.residual = follow_views(draft.dfg, other)
    draft.residual_at = "final"
    draft.post |= {
        "res_a_mult": p.a_mult,
        "res_b_mult": p.b_mult,
        "res_shift": p.shift,
        "res_a_zero": p.a_zero,
        "res_b_zero": p.b_zero,
        "res_y_zero": p.y_zero,
    }


def _sum_pads(
    a: tuple[int, int, int, int], b: tuple[int, int, int, int]
) -> tuple[int, int, int, int]:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


_HANDLERS: dict[str, Callable[[_Draft, Node], None]] = {
    "pad": _pad,
    "conv": _conv,
    "dense": _dense,
    "add": _add,
    **dict.fromkeys(ACTIVATIONS, _activation),
    **dict.fromkeys(POOLS, _pool),
}
