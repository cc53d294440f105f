"""A group of operators as a pass through the machine: its shape, operands and stages.

Reads the structure only, never scales, so that a float model and its quantised form give the same.
Cases, by the group's first working operator: (1) conv or dense: the array; a dense node reads the
flattened map as a convolution whose kernel is the whole map; (2) an explicit pad: its amounts join
the window of what follows (behind the array: of a max pool); (3) an average whose window exceeds a
tile: the array, as a depthwise sum; (4) a channel shuffle: the array, as a permutation; (5) a
transposed convolution: the array, phase by phase (`phases`); (6) anything else: the copy path.
Concatenations and splits in front move nothing (`lanes`), a channel
affine and an activation in front are the pre chain. Later operators become post stages, an upsample
at the end is done by the store.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from opu_fuse.cost.lanes import LAYOUT, LaneMap, is_depthwise
from opu_fuse.cost.layer import POINT, Shape, Window
from opu_fuse.cost.phases import WHOLE, Phase, phases
from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.integer import ACCUMULATING
from opu_fuse.dfg.views import Map, feature_shape, follow_views
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.isa import Stage
from opu_fuse.hw.layout import Pieces, extent, is_plain
from opu_fuse.hw.spec import HwSpec

Pads = tuple[int, int, int, int]
NO_PADS: Pads = (0, 0, 0, 0)
LOWEST = -3.4e38
"""What is not above it is quantised to -128, whatever the scale."""

_CLAMPS = ("relu", "clip")
PRE_CHAINS = frozenset(
    {("batch_norm",), *((op,) for op in _CLAMPS), *(("batch_norm", op) for op in _CLAMPS)}
)
"""What the pre chain can do in one pass."""


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
    pre: tuple[int, ...]
    swapped: bool
    stages: tuple[StageOf, ...]
    macs: int
    phases: tuple[tuple[Phase, Shape], ...]
    in_pieces: Pieces
    out_pieces: Pieces


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
    pool_pads: Pads = NO_PADS
    pre: list[int] = field(default_factory=list)
    swapped: bool = False
    broadcast: bool = False
    groups: int = 1
    depthwise: bool = False
    transposed: Node | None = None
    upsample: tuple[int, int] = (1, 1)
    macs: int = 0
    stages: list[StageOf] = field(default_factory=list)
    front: int = 0

    def stage(self, stage: Stage, node: Node) -> None:
        self.stages.append(StageOf(stage=stage, node=node.index))


def group_geometry(dfg: Dfg, members: Iterable[int], hw: HwSpec, lanes: LaneMap) -> Geometry | None:
    """The geometry of a group, members in pipeline order; None when nothing in it computes. lanes:
    `lanes.map_lanes` of the DFG.

    Raises DoesNotFit when the machine's layout or tiles cannot express it.
    """
    nodes = [node for node in (dfg[i] for i in members) if not moves_nothing(node)]
    if not nodes:
        return None
    operand = nodes[0].operands[_chain_operand(dfg, nodes[0])]
    source = follow_views(dfg, operand)
    read = feature_shape(dfg[source].shape)
    draft = _Draft(dfg=dfg, hw=hw, source=source, value=operand, mid=read)
    if nodes[0].op != "dense":
        _same_map(dfg, nodes[0], operand)
    draft.front = _pre_chain(draft, nodes)
    for node in nodes[draft.front :]:
        if draft.upsample != (1, 1):
            raise DoesNotFit(
                node.name, "nothing can follow an upsample in a pass", "let it run by itself"
            )
        if draft.pool_pads != NO_PADS and node.op != "max_pool":
            raise _lost_pad(node)
        if node.owner is None:
            _HANDLERS[node.op](draft, node)
        draft.value = node.index
    if draft.pool_pads != NO_PADS:
        raise _lost_pad(nodes[-1])
    return _finished(draft, read, nodes[-1], lanes)


def moves_nothing(node: Node) -> bool:
    """Changes of view, concatenations and splits, which are a matter of layout."""
    return node.is_virtual or node.op in LAYOUT


def _finished(draft: _Draft, read: Map, last: Node, lanes: LaneMap) -> Geometry:
    out = feature_shape(last.shape)
    inside, outside = lanes[draft.source].pieces, lanes[last.index].pieces
    if (draft.anchor is None or draft.depthwise) and inside != outside:
        raise DoesNotFit(
            last.name,
            "its operands have their channels in different lanes",
            "let one of them be computed by a convolution in the same group",
        )
    if draft.residual is not None and lanes[draft.residual].pieces != outside:
        raise DoesNotFit(
            last.name,
            "its operands have their channels in different lanes",
            "concatenate maps whose channels are multiples of a word",
        )
    holes = not (is_plain(inside) and is_plain(outside))
    shape = Shape(
        array=draft.anchor is not None,
        depthwise=draft.depthwise,
        in_channels=extent(inside),
        in_rows=read[1],
        in_cols=read[2],
        slot=draft.hw.word_bytes,
        window=draft.window,
        groups=extent(inside) if draft.depthwise else 1 if holes else draft.groups,
        mid_channels=draft.mid[0] if is_plain(outside) else extent(outside),
        mid_rows=draft.mid[1],
        mid_cols=draft.mid[2],
        pool=draft.pool,
        out_rows=out[1] // draft.upsample[0],
        out_cols=out[2] // draft.upsample[1],
        residual=draft.residual_at,
        broadcast=draft.broadcast,
        pre=bool(draft.pre),
        upsample=draft.upsample,
    )
    parts = _phases(draft, shape) if draft.transposed else ((WHOLE, shape),)
    return Geometry(
        shape=parts[0][1],
        phases=parts,
        source=draft.source,
        residual=draft.residual,
        output=last.index,
        anchor=draft.anchor,
        pad=draft.pad,
        pre=tuple(draft.pre),
        swapped=draft.swapped,
        stages=tuple(draft.stages),
        macs=draft.macs,
        in_pieces=inside,
        out_pieces=outside,
    )


def _phases(draft: _Draft, shape: Shape) -> tuple[tuple[Phase, Shape], ...]:
    assert draft.transposed is not None
    if shape.pool or shape.residual or shape.upsample != (1, 1):
        raise DoesNotFit(
            draft.transposed.name,
            "a transposed convolution makes rows and columns in phases, and what follows it in the "
            "group needs them side by side",
            "end the group behind it",
        )
    return tuple(
        (
            phase,
            replace(
                shape, window=window, mid_rows=rows, mid_cols=cols, out_rows=rows, out_cols=cols
            ),
        )
        for phase, window, rows, cols in phases(
            draft.transposed.attrs, shape.out_rows, shape.out_cols
        )
    )


def _chain_operand(dfg: Dfg, node: Node) -> int:
    """Position of the operand that comes along the pipeline: a product's gate comes from the
    side.
    """
    full = [feature_shape(dfg[i].shape)[1:] == feature_shape(node.shape)[1:] for i in node.operands]
    return full.index(True) if node.op == "multiply" and True in full else 0


def _pre_chain(draft: _Draft, nodes: Sequence[Node]) -> int:
    """Takes the channel affine and the activation in front of the array; their number."""
    array = next((i for i, n in enumerate(nodes) if n.op in ACCUMULATING), 0)
    count = array - (array > 0 and nodes[array - 1].op == "pad")
    front = [node.op for node in nodes[: count or 1]]
    if "batch_norm" not in front and not count:
        return 0
    if not count:
        raise DoesNotFit(
            nodes[0].name,
            "it stands before the array, and no convolution follows it in the group",
            "let a convolution follow, or leave it on the host",
        )
    if tuple(front) not in PRE_CHAINS:
        raise DoesNotFit(
            nodes[0].name,
            f"{' and '.join(front)} cannot pass before the array together",
            "end the group before the convolution",
        )
    if (
        draft.hw.array.depthwise
        and nodes[array].op == "conv"
        and is_depthwise(draft.dfg, nodes[array])
    ):
        raise DoesNotFit(
            nodes[array].name,
            "depthwise windows do not pass the pre chain",
            "end the group before the convolution",
        )
    draft.pre = [node.index for node in nodes[:count]]
    draft.value = nodes[count - 1].index
    return count


def _pad(draft: _Draft, node: Node) -> None:
    """In front of the chain: into the window of what follows. Later: into that of a max pool."""
    if draft.anchor is not None or draft.stages:
        if node.attrs["value"] > LOWEST:
            raise DoesNotFit(
                node.name,
                f"it pads partial results with {node.attrs['value']}, which a pool leaves out",
                "pad with -inf before a MaxPool, or end the group before it",
            )
        draft.pool_pads = node.attrs["pads"]
        return
    draft.window = replace(draft.window, pads=node.attrs["pads"])
    draft.pad = node.index
    draft.mid = feature_shape(node.shape)


def _lost_pad(node: Node) -> DoesNotFit:
    return DoesNotFit(
        node.name,
        "behind the array only a max pool can take padding",
        "end the group before the padding",
    )


def _conv(draft: _Draft, node: Node) -> None:
    attrs = node.attrs
    draft.window = Window(
        kernel=attrs["kernel"],
        strides=attrs["strides"],
        dilations=attrs["dilations"],
        pads=_sum_pads(draft.window.pads, attrs["pads"]),
    )
    draft.groups = attrs["group"]
    draft.depthwise = draft.hw.array.depthwise and is_depthwise(draft.dfg, node)
    _array(draft, node)


def _transposed(draft: _Draft, node: Node) -> None:
    draft.transposed = node
    draft.groups = node.attrs["group"]
    draft.depthwise = draft.hw.array.depthwise and draft.groups > 1
    rows, cols = draft.mid[1:]
    _array(draft, node)
    weight = draft.dfg[node.operands[1]].const
    assert weight is not None
    draft.macs = weight.size * rows * cols


def _shuffle(draft: _Draft, node: Node) -> None:
    """Channels change places: a convolution with a permutation."""
    draft.anchor = node.index
    draft.stage(Stage.REQUANT, node)


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
    pads = _sum_pads(draft.pool_pads, attrs["pads"])
    draft.pool_pads = NO_PADS
    window = Window(kernel=attrs["kernel"], strides=attrs["strides"], pads=pads)
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
    positions = window.kernel[0] * window.kernel[1]
    if positions & (positions - 1) and not draft.hw.numeric.multiplier_bits:
        raise DoesNotFit(
            node.name,
            f"its window of {positions} positions exceeds a tile, and without multipliers the "
            "array divides by powers of two only",
            "raise buffers.psum.words in the spec, or set numeric.multiplier_bits",
        )
    draft.anchor = node.index
    draft.window = window
    draft.groups = draft.mid[0]
    draft.depthwise = draft.hw.array.depthwise
    draft.mid = feature_shape(node.shape)
    draft.stage(Stage.REQUANT, node)


def _upsample(draft: _Draft, node: Node) -> None:
    draft.upsample = node.attrs["scale"]


def _table(draft: _Draft, node: Node) -> None:
    draft.stage(Stage.TABLE, node)


def _multiply(draft: _Draft, node: Node) -> None:
    """A product with a map, or with one pixel that stands for all."""
    dfg = draft.dfg
    at = _chain_operand(dfg, node)
    if follow_views(dfg, node.operands[at]) != follow_views(dfg, draft.value):
        at = 1 - at
    other = node.operands[1 - at]
    if feature_shape(dfg[node.operands[at]].shape) != feature_shape(node.shape):
        raise DoesNotFit(
            node.name,
            "the pipeline would carry the gate, which is one pixel",
            "let it end the group before",
        )
    draft.swapped = at == 1
    draft.broadcast = feature_shape(dfg[other].shape)[1:] == (1, 1) != feature_shape(node.shape)[1:]
    draft.stage(Stage.RESIDUAL, node)
    draft.residual = follow_views(dfg, other)
    draft.residual_at = "final"


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
    "multiply": _multiply,
    "table": _table,
    "transposed_conv": _transposed,
    "shuffle": _shuffle,
    "upsample": _upsample,
    **dict.fromkeys(("relu", "clip", "leaky_relu"), _activation),
    **dict.fromkeys(("max_pool", "avg_pool"), _pool),
}

OPERATORS = frozenset({*_HANDLERS, "batch_norm", *LAYOUT})
"""Operators that `group_geometry` knows."""
