"""A group of operators as a pass through the machine: its shape, operands and stages.

It reads the structure only, never scales, so a float model and its quantised form get the same
geometry. The group's first computing operator decides the case:

1. conv or dense: the array; a dense node reads the flattened map as a convolution whose kernel is
   the whole map;
2. an explicit pad: its amounts join the window of the next operator (after the array: of a max
   pool);
3. an average whose window exceeds a tile, or that is faster there: the array, as a depthwise sum;
4. a channel shuffle: the array, as a permutation;
5. a transposed convolution: the array, phase by phase (`polyphase.phases`);
6. anything else: the copy path.

Concatenations and splits before it move nothing (`layout/lanes.py`). A channel affine, or a gate
and an activation, before the array are the pre chain. Later operators become post stages; the store
performs an upsample or a permutation of pixels at the end.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence

from msgspec.structs import replace

from opu_fuse.dfg.graph import PRODUCTS, Dfg, Kind, Node
from opu_fuse.dfg.integer import ACCUMULATING
from opu_fuse.dfg.packed_copies import packs
from opu_fuse.dfg.pre_array import CLAMPS, is_affine, is_gate, pre_slots
from opu_fuse.dfg.views import Map, feature_shape, shape_read
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.dram_layout import Pieces, extent, is_plain
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import (
    LAYOUT,
    LaneMap,
    begins_word,
    loads_zeros,
    sharing_words,
)
from opu_fuse.layout.pixel_packing import UNIT, Pass
from opu_fuse.layout.shape import Shape, Side
from opu_fuse.lowering.handlers import (
    HANDLERS,
    NO_PADS,
    Draft,
    StageOf,
    chain_operand,
    ends_before,
    lost_pad,
)
from opu_fuse.lowering.norm_passes import norm_sizes
from opu_fuse.lowering.operand_maps import sequences, summed_lanes
from opu_fuse.lowering.polyphase import WHOLE, Phase, phases
from opu_fuse.lowering.stored_maps import same_map
from opu_fuse.units import BY_STAGE
from opu_fuse.units.base import Stage
from opu_fuse.units.pool import PoolKind

_LAST = ("a permutation", "an upsample")


class Geometry(Pass, frozen=True, kw_only=True):
    """A pass of a group, independent of scales and tiles. Operators are DFG indices.

    anchor: the operator that runs on the array; None on the copy path;
    pad: the explicit pad before it, if any;
    pre: operators of the pre chain;
    stages: the post chain;
    macs: multiplications of Conv and Gemm, without pixels that the pool after them leaves out;
    phases: (phase, shape) of each pass, several for a transposed convolution;
    zeroes: other lanes of the second map's words than those that are summed are loaded as zeros.
    """

    anchor: int | None
    pad: int | None
    pre: tuple[int, ...]
    stages: tuple[StageOf, ...]
    macs: int
    phases: tuple[tuple[Phase, Shape], ...]
    zeroes: bool = False

    @property
    def operands(self) -> tuple[int, ...]:
        """DFG indices of all maps that it reads."""
        sources = () if self.source <= UNIT else (self.source,)
        others = (node for node in (self.gate, self.second) if node is not None)
        return *sources, *self.residuals, *others


def group_geometry(
    dfg: Dfg,
    members: Iterable[int],
    hw: HwSpec,
    lanes: LaneMap,
    front: Collection[int] | None = None,
) -> Geometry | None:
    """The geometry of a group; None when nothing in it computes.

    members: its DFG nodes in pipeline order;
    lanes: `lanes.map_lanes` of the DFG;
    front: members matched on modules before the array (default: as many as possible).

    Raises DoesNotFit when the machine's layout or tiles cannot express it.
    """
    nodes = [node for node in (dfg[i] for i in members) if not moves_nothing(node)]
    if not nodes:
        return None
    operand = nodes[0].operands[chain_operand(dfg, nodes[0])]
    source = dfg.base(operand)
    read = shape_read(dfg, operand)
    last = [n.index for n in nodes if n.op not in {"permute", "upsample"}][-1:]
    draft = Draft(dfg=dfg, hw=hw, source=source, value=operand, last=last, pre_pool=read)
    if nodes[0].op not in {"dense", "transpose"}:
        same_map(dfg, nodes[0], operand)
    before_array = _pre_chain(draft, nodes, front)
    for node in nodes[before_array:]:
        if draft.upsample != (1, 1) or draft.permute is not None:
            raise DoesNotFit(
                node.name,
                f"nothing can follow {_LAST[draft.permute is None]} in a pass",
                "let it run by itself",
            )
        if draft.pool_pads != NO_PADS and node.op != "max_pool":
            raise lost_pad(node)
        if node.owner is None:
            HANDLERS[node.op](draft, node)
        draft.value = node.index
    if draft.pool_pads != NO_PADS:
        raise lost_pad(nodes[-1])
    if draft.depthwise and draft.pre:
        raise ends_before(
            nodes[before_array], "depthwise windows do not pass the pre chain", "the convolution"
        )
    return _finished(draft, read, nodes[-1], lanes)


def structure(dfg: Dfg, members: Iterable[int], lanes: LaneMap, hw: HwSpec) -> Hashable:
    """Memo key of `group_geometry`: equal for groups with the same shapes and phases.

    It omits names and DFG indices. Networks repeat few different structures often.
    """
    numbers: dict[int, int] = {}

    def value(index: int) -> Hashable:
        if dfg.nodes[index].kind is Kind.CONST:
            return dfg.nodes[index].shape
        base = dfg.base(index)
        number = numbers.setdefault(base, len(numbers))
        return number, dfg.nodes[index].shape, dfg.nodes[base].shape, lanes[base].pieces

    return tuple(
        [
            (
                node.op,
                node.owner is None,
                node.access,
                tuple(node.attrs.items()),
                tuple([value(i) for i in node.operands]),
                node.op in PRODUCTS and _products_lanes(dfg, node, lanes, hw),
                value(node.index),
                dfg.read_by_products(node.index),
                lanes[node.index].pieces,
            )
            for node in [dfg.nodes[i] for i in members]
        ]
    )


def _products_lanes(dfg: Dfg, node: Node, lanes: LaneMap, hw: HwSpec) -> Hashable:
    own = tuple([begins_word(dfg.base(i), lanes, hw.word_channels) for i in node.operands])
    zeroes = loads_zeros(dfg, node, lanes, hw)
    return own, zeroes, not sharing_words(dfg, node, lanes, hw)


def moves_nothing(node: Node) -> bool:
    """Whether an operator is pure layout: a view, a concatenation or a split."""
    return node.is_virtual or node.op in LAYOUT


def _finished(draft: Draft, read: Map, last: Node, lanes: LaneMap) -> Geometry:
    out = draft.stored or feature_shape(last.shape)
    inside, outside = summed_lanes(draft, lanes), lanes[last.index].pieces
    anchored = draft.anchor is not None and not draft.depthwise
    word = draft.hw.word_channels
    whole = f"give what a Concat or Split before it joins or cuts multiples of {word} channels"
    residuals = tuple([item.side for item in draft.stages if item.side is not None])
    operands = [lanes[node].pieces for node in residuals]
    if any(pieces != outside for pieces in (operands if anchored else [inside, *operands])):
        what = "its operands have their channels in different lanes"
        raise DoesNotFit(last.name, what, whole)
    if draft.gate is not None and lanes[draft.gate].pieces != inside:
        raise DoesNotFit(
            draft.dfg[draft.pre[0]].name,
            "its gate has its channels in other lanes than the map",
            whole,
        )
    holes = not (is_plain(inside) and is_plain(outside))
    first_window = next(
        (i for i, item in enumerate(draft.stages) if BY_STAGE[item.stage].windows), 0
    )
    if draft.source <= UNIT:
        read = (extent(inside), draft.sequences, draft.pre_pool[2])
    first_lane = min(first for first, _ in outside) if anchored else 0
    in_first_word = first_lane < word
    if draft.second is not None:
        if outside != ((outside[0][0], draft.pre_pool[0]),) or not in_first_word:
            raise DoesNotFit(last.name, "its channels have to lie next to each other", whole)
    elif not in_first_word:
        first_lane = 0  # the words before hold nothing, and are computed with zeros as weights
    images = sequences(draft)
    shape = Shape(
        array=draft.anchor is not None,
        depthwise=draft.depthwise,
        sums=draft.sums,
        in_channels=extent(inside),
        in_rows=read[1] // images,
        in_cols=read[2],
        in_runs=_runs(inside) if anchored and draft.second is None else (),
        slot=draft.hw.word_bytes,
        window=draft.window,
        groups=extent(inside) if draft.depthwise else 1 if holes else draft.groups,
        pre_pool_channels=draft.pre_pool[0] if is_plain(outside) else extent(outside),
        pre_pool_rows=draft.pre_pool[1] // images,
        pre_pool_cols=draft.pre_pool[2],
        pool=draft.pool,
        out_rows=out[1] // draft.upsample[0] // images,
        out_cols=out[2] // draft.upsample[1],
        sides=tuple(
            [
                Side(before_pool=i < first_window, broadcast=item.broadcast)
                for i, item in enumerate(draft.stages)
                if item.side is not None
            ]
        ),
        tables=sum(item.stage is Stage.TABLE for item in draft.stages),
        pre=len(pre_slots(draft.dfg, draft.pre)),
        gated=draft.gate is not None,
        upsample=draft.upsample,
        permute=draft.permute,
        first_lane=first_lane,
        pool_kind=draft.pool_kind,
        images=images,
        param_words=sum(BY_STAGE[item.stage].words for item in draft.stages),
        **norm_sizes(draft, outside),
        computed=draft.second is not None,
        zeros=draft.dfg.read_by_products(last.index),
        unit=draft.source <= UNIT,
        repacks=draft.anchor is not None and packs(draft.dfg[draft.anchor]),
    )
    shape = replace(shape, pools_with_halo=_pools_with_halo(shape, draft))
    parts = _phases(draft, shape) if draft.transposed else ((WHOLE, shape),)
    return Geometry(
        shape=parts[0][1],
        phases=parts,
        source=draft.source,
        residuals=residuals,
        gate=draft.gate,
        output=last.index,
        anchor=draft.anchor,
        pad=draft.pad,
        pre=tuple(draft.pre),
        stages=tuple(draft.stages),
        macs=draft.macs,
        in_pieces=inside,
        out_pieces=outside,
        second=draft.second,
        zeroes=draft.anchor is not None
        and loads_zeros(draft.dfg, draft.dfg[draft.anchor], lanes, draft.hw),
    )


def _runs(pieces: Pieces) -> Pieces:
    """(first, count) of neighbouring lanes that hold channels, ascending; () where all do."""
    runs: list[tuple[int, int]] = []
    for first, count in sorted(pieces):
        if runs and sum(runs[-1]) == first:
            first, before = runs.pop()
            count += before
        runs.append((first, count))
    return () if is_plain(tuple(runs)) else tuple(runs)


def _pools_with_halo(shape: Shape, draft: Draft) -> bool:
    """Whether tiles of a max pool pass a pooling halo on, instead of computing shared rows twice.

    Every window must touch at most two tiles, and every tile must compute a row of its own.
    """
    pool = shape.pool
    if pool is None or shape.pool_kind is not PoolKind.MAX or draft.transposed or not shape.array:
        return False
    if (
        draft.stages[-1].stage is not Stage.POOL
        or shape.sides
        or shape.permute
        or shape.upsample != (1, 1)
        or not chain_of(draft.hw).supports_pooling_halo
    ):
        return False
    (rows, _), (stride, _) = pool.kernel, pool.strides
    last = (shape.out_rows - 1) * stride - pool.pads[0] + rows - stride
    return stride < rows <= 2 * stride and last < shape.pre_pool_rows


def _phases(draft: Draft, shape: Shape) -> tuple[tuple[Phase, Shape], ...]:
    assert draft.transposed is not None
    if shape.pool or shape.sides or shape.permute or shape.upsample != (1, 1):
        raise DoesNotFit(
            draft.transposed.name,
            "a transposed convolution computes rows and columns in phases, and what follows in the "
            "group needs neighbouring ones together",
            "end the group after it",
        )
    return tuple(
        (
            phase,
            replace(
                shape,
                window=window,
                pre_pool_rows=rows,
                pre_pool_cols=cols,
                out_rows=rows,
                out_cols=cols,
                phased=True,
            ),
        )
        for phase, window, rows, cols in phases(draft.transposed.attrs, shape)
    )


def _pre_chain(draft: Draft, nodes: Sequence[Node], front: Collection[int] | None) -> int:
    """Lower the operators before the array; return their number.

    A channel affine without a convolution after it passes the array unchanged.
    """
    array = next((i for i, n in enumerate(nodes) if n.op in ACCUMULATING), 0)
    count = array - (array > 0 and nodes[array - 1].op == "pad")
    if not count:
        count = _front_alone(draft, nodes, front)
        if not count:
            return 0
        draft.anchor = nodes[count - 1].index
        if draft.pre_pool[0] % draft.hw.word_channels == 0:
            draft.groups = (
                draft.pre_pool[0] // draft.hw.word_channels
            )  # each block meets itself alone
        draft.stage(StageOf(stage=Stage.REQUANT, node=nodes[count - 1].index))
    for node in nodes[:count]:
        if is_gate(draft.dfg, node.index):
            draft.gate = _gate(draft, nodes, node)
        elif node.op not in CLAMPS and not is_affine(draft.dfg, node.index):
            raise ends_before(node, f"{node.op} cannot pass before the array", "the convolution")
    draft.pre = [node.index for node in nodes[:count]]
    units, limit = len(pre_slots(draft.dfg, draft.pre)), chain_of(draft.hw).pre_units
    if units > limit:
        raise ends_before(
            nodes[0],
            f"the operators before the array take {units} units of {limit}",
            "the convolution",
        )
    draft.value = nodes[count - 1].index
    return count


def _gate(draft: Draft, nodes: Sequence[Node], node: Node) -> int:
    """The map that holds one value for each channel of the source."""
    if not chain_of(draft.hw).gates or node is not nodes[0]:
        raise ends_before(
            node,
            "a gate before the array comes first in its group, on a machine with gates there",
            "the convolution",
        )
    other = node.operands[1 - chain_operand(draft.dfg, node)]
    same_map(draft.dfg, node, other)
    return draft.dfg.base(other)


def _front_alone(draft: Draft, nodes: Sequence[Node], front: Collection[int] | None) -> int:
    """Number of operators of the pre chain in a group without an operator for the array.

    A clamp alone does not need the array either.
    """
    affine = is_affine(draft.dfg, nodes[0].index)
    if front is None:
        return affine * (2 if len(nodes) > 1 and nodes[1].op in CLAMPS else 1)
    if not affine and not is_gate(draft.dfg, nodes[0].index):
        return 0
    return next((i for i, node in enumerate(nodes) if node.index not in front), len(nodes))
