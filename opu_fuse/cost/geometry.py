"""A group of operators as a pass through the machine: its shape, operands and stages.

Reads the structure only, never scales, so that a float model and its quantised form give the same.
Cases, by the group's first working operator: (1) conv or dense: the array; a dense node reads the
flattened map as a convolution whose kernel is the whole map; (2) an explicit pad: its amounts join
the window of what follows; (3) an average whose window exceeds a tile: the array, as a depthwise
sum; (4) anything else: the copy path. Later operators become post stages.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from opu_fuse.cost.layer import POINT, Shape, Window
from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.views import Map, feature_shape, follow_views
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.isa import Stage
from opu_fuse.hw.spec import HwSpec

Pads = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOf:
    """A post stage and the operator that asks for it."""

    stage: Stage
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """shape: for tiling and cost; source, residual: DFG indices of the maps read from memory
    (changes of view looked through); output: of the stored value; anchor: what runs on the array,
    None on the copy path; pad: the explicit pad in front, if any; swapped: the residual adder gets
    the chain's value as its second operand; stages: the post chain; macs: of Conv and Gemm.
    """

    shape: Shape
    source: int
    residual: int | None
    output: int
    anchor: int | None
    pad: int | None
    swapped: bool
    stages: tuple[StageOf, ...]
    macs: int


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A geometry while its operators are read. value: DFG index of the chain's latest value; mid:
    the map of partial sums.
    """

    dfg: Dfg
    hw: HwSpec
    source: int
    value: int
    mid: Map
    window: Window = POINT
    pool: Window | None = None
    residual: int | None = None
    residual_at: str | None = None
    anchor: int | None = None
    pad: int | None = None
    swapped: bool = False
    groups: int = 1
    macs: int = 0
    stages: list[StageOf] = field(default_factory=list)

    def stage(self, stage: Stage, node: Node) -> None:
        self.stages.append(StageOf(stage=stage, node=node.index))


def group_geometry(dfg: Dfg, members: Iterable[int], hw: HwSpec) -> Geometry | None:
    """The geometry of a group, members in pipeline order; None when all are changes of view.

    Raises DoesNotFit when the machine's layout or tiles cannot express it.
    """
    nodes = [dfg[i] for i in members if not dfg[i].is_virtual]
    if not nodes:
        return None
    operand = nodes[0].operands[0]
    source = follow_views(dfg, operand)
    read = feature_shape(dfg[source].shape)
    draft = _Draft(dfg=dfg, hw=hw, source=source, value=operand, mid=read)
    if nodes[0].op != "dense":
        _same_map(dfg, nodes[0], operand)
    for node in nodes:
        if node.owner is None:
            _HANDLERS[node.op](draft, node)
        draft.value = node.index
    out = feature_shape(nodes[-1].shape)
    shape = Shape(
        array=draft.anchor is not None,
        in_channels=read[0],
        in_rows=read[1],
        in_cols=read[2],
        slot=hw.word_bytes,
        window=draft.window,
        groups=draft.groups,
        mid_channels=draft.mid[0],
        mid_rows=draft.mid[1],
        mid_cols=draft.mid[2],
        pool=draft.pool,
        out_rows=out[1],
        out_cols=out[2],
        residual=draft.residual_at,
    )
    return Geometry(
        shape=shape,
        source=source,
        residual=draft.residual,
        output=nodes[-1].index,
        anchor=draft.anchor,
        pad=draft.pad,
        swapped=draft.swapped,
        stages=tuple(draft.stages),
        macs=draft.macs,
    )


def _pad(draft: _Draft, node: Node) -> None:
    draft.window = replace(draft.window, pads=node.attrs["pads"])
    draft.pad = node.index
    draft.mid = feature_shape(node.shape)


def _conv(draft: _Draft, node: Node) -> None:
    attrs = node.attrs
    draft.window = Window(
        kernel=attrs["kernel"],
        strides=attrs["strides"],
        dilations=attrs["dilations"],
        pads=_sum_pads(draft.window.pads, attrs["pads"]),
    )
    draft.groups = attrs["group"]
    _array(draft, node)


def _dense(draft: _Draft, node: Node) -> None:
    """The flattened map as a convolution without padding over the whole map."""
    draft.window = Window(kernel=draft.mid[1:])
    _array(draft, node)


def _array(draft: _Draft, node: Node) -> None:
    weight = draft.dfg[node.operands[1]].const
    assert weight is not None
    draft.anchor = node.index
    draft.mid = feature_shape(node.shape)
    draft.macs = weight.size * draft.mid[1] * draft.mid[2]
    draft.stage(Stage.REQUANT, node)


def _activation(draft: _Draft, node: Node) -> None:
    draft.stage(Stage.ACT, node)


def _pool(draft: _Draft, node: Node) -> None:
    attrs = node.attrs
    window = Window(kernel=attrs["kernel"], strides=attrs["strides"], pads=attrs["pads"])
    positions = window.kernel[0] * window.kernel[1]
    if node.op == "avg_pool" and not draft.stages and positions > _largest_window(draft.hw):
        _pool_on_array(draft, node, window)
        return
    draft.stage(Stage.POOL, node)
    draft.pool = window
    if draft.residual is not None:
        draft.residual_at = "mid"


def _largest_window(hw: HwSpec) -> int:
    """Positions of the largest window that a tile can hold."""
    return min(hw.buffers.psum.bank_words, hw.buffers.feature.bank_words)


def _pool_on_array(draft: _Draft, node: Node, window: Window) -> None:
    if any(window.pads) and not node.attrs["count_include_pad"]:
        raise DoesNotFit(
            node.name,
            f"its window of {window.kernel[0]}×{window.kernel[1]} exceeds a tile and its padding "
            "is not counted",
            "count the padding (count_include_pad=1), or raise buffers.psum.words in the spec",
        )
    draft.anchor = node.index
    draft.window = window
    draft.groups = draft.mid[0]
    draft.mid = feature_shape(node.shape)
    draft.stage(Stage.REQUANT, node)


def _add(draft: _Draft, node: Node) -> None:
    """Residual: the operand that is not the chain's value comes from memory."""
    dfg = draft.dfg
    draft.swapped = follow_views(dfg, node.operands[0]) != follow_views(dfg, draft.value)
    other = node.operands[0 if draft.swapped else 1]
    _same_map(dfg, node, other)
    draft.stage(Stage.RESIDUAL, node)
    draft.residual = follow_views(dfg, other)
    draft.residual_at = "final"


def _same_map(dfg: Dfg, node: Node, operand: int) -> None:
    """A map is read as it was written: only dense looks through a flattening."""
    shape, stored = dfg[operand].shape, dfg[follow_views(dfg, operand)].shape
    if feature_shape(shape) != feature_shape(stored):
        raise DoesNotFit(
            node.name,
            f"it reads a map of shape {stored} as {shape}, the machine keeps maps in blocks of "
            "channels",
            "leave the operator on the host, or reshape behind it",
        )


def _sum_pads(a: Pads, b: Pads) -> Pads:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


_HANDLERS: dict[str, Callable[[_Draft, Node], None]] = {
    "pad": _pad,
    "conv": _conv,
    "dense": _dense,
    "add": _add,
    **dict.fromkeys(("relu", "clip", "leaky_relu"), _activation),
    **dict.fromkeys(("max_pool", "avg_pool"), _pool),
}

OPERATORS = frozenset(_HANDLERS)
"""Operators that `group_geometry` knows."""
