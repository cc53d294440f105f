"""The operators of a group, one handler each: what they add to the pass through the machine."""

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.packed_copies import AGAIN
from opu_fuse.dfg.views import Map, feature_shape
from opu_fuse.errors import DoesNotFit
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lanes import LAYOUT, is_depthwise
from opu_fuse.layout.permutation import Permutation
from opu_fuse.layout.pixel_packing import UNIT
from opu_fuse.layout.shape import POINT, Window
from opu_fuse.lowering.pool_windows import exceeds_pools, is_summed_faster, largest_window
from opu_fuse.lowering.stored_maps import permuted, same_map
from opu_fuse.normalisation import BY_ROWS
from opu_fuse.units import BY_STAGE, STAGE_OF_OPERATOR
from opu_fuse.units.base import Stage
from opu_fuse.units.pool import PoolKind

Pads = tuple[int, int, int, int]
NO_PADS: Pads = (0, 0, 0, 0)
LOWEST = float(np.finfo(np.float32).min)
"""What is not above it is quantised to -128, whatever the scale."""


class StageOf(Struct, frozen=True, kw_only=True):
    """A post stage and the operator that needs it.

    side: DFG index of the map that it reads from memory (views looked through);
    broadcast: one pixel of that map serves all;
    swapped: the chain's value is its second operand.
    """

    stage: Stage
    node: int
    side: int | None = None
    broadcast: bool = False
    swapped: bool = False


class Draft(Struct, kw_only=True):
    """A geometry under construction, operator by operator.

    value: DFG index of the chain's latest value;
    pre_pool: sizes of the map of partial sums;
    second: map that the array reads as weights;
    sequences: rows of a product or norm that are computed one by one (`operand_maps.sequences`);
    stored: map whose pixels the store permutes;
    last: the operator before the store, if any. The other fields are those of `Geometry` and
    `Shape`.
    """

    dfg: Dfg
    hw: HwSpec
    source: int
    value: int
    last: list[int]
    pre_pool: Map
    window: Window = POINT
    pool: Window | None = None
    pool_kind: PoolKind = PoolKind.MAX
    anchor: int | None = None
    pad: int | None = None
    pool_pads: Pads = NO_PADS
    pre: list[int] = field(default_factory=list)
    gate: int | None = None
    second: int | None = None
    sequences: int = 1
    groups: int = 1
    depthwise: bool = False
    sums: bool = False
    transposed: Node | None = None
    upsample: tuple[int, int] = (1, 1)
    permute: Permutation | None = None
    stored: Map | None = None
    macs: int = 0
    stages: list[StageOf] = field(default_factory=list)

    def stage(self, added: StageOf) -> None:
        """Add a stage.

        Raises DoesNotFit for a second pool, and for the array after a stage. The matcher checks the
        number of units.
        """
        stage, node = added.stage, self.dfg[added.node]
        if BY_STAGE[stage].windows and any(item.stage is stage for item in self.stages):
            raise ends_before(node, "a pass pools once, and its group does already")
        crops = self.pad is not None and min(self.dfg[self.pad].attrs["pads"]) < 0
        if stage is Stage.REQUANT and (self.stages or crops):  # its padding would show what is cut
            raise ends_before(node, "the array comes first in a pass")
        self.stages.append(added)

    def on_array(self, node: Node) -> None:
        """Run an operator on the array, whose partial sums are its result."""
        self.anchor = node.index
        self.pre_pool = feature_shape(node.shape)
        self.stage(StageOf(stage=Stage.REQUANT, node=node.index))


def ends_before(node: Node, what: str, which: str = "it") -> DoesNotFit:
    """The error for an operator that a group cannot go on with. which: where the group ends."""
    return DoesNotFit(node.name, what, f"end the group before {which}")


def chain_operand(dfg: Dfg, node: Node) -> int:
    """Position of the operand that comes along the pipeline: one pixel, such as a gate, comes from
    the side.
    """
    full = [feature_shape(dfg[i].shape)[1:] == feature_shape(node.shape)[1:] for i in node.operands]
    return full.index(True) if node.op in {"add", "multiply"} and True in full else 0


def _pad(draft: Draft, node: Node) -> None:
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
    if draft.pad is not None:
        raise ends_before(
            node, f"a pass pads once before its first stage, and {draft.dfg[draft.pad].name} does"
        )
    draft.window = replace(draft.window, pads=node.attrs["pads"])
    draft.pad = node.index
    draft.pre_pool = feature_shape(node.shape)


def lost_pad(node: Node) -> DoesNotFit:
    """The error for a pad after the array that no max pool takes."""
    return ends_before(node, "after the array only a max pool can take padding", "the padding")


def _conv(draft: Draft, node: Node) -> None:
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


def _transposed(draft: Draft, node: Node) -> None:
    if draft.window.pads != NO_PADS:
        raise ends_before(
            node, "a transposed convolution reads its input in phases, without a padding before"
        )
    draft.transposed = node
    draft.groups = node.attrs["group"]
    draft.depthwise = draft.hw.array.depthwise and draft.groups > 1
    _array(draft, node, draft.pre_pool[1:])


def _dense(draft: Draft, node: Node) -> None:
    """The flattened map as a convolution over the whole map, padded if a pad is in front."""
    draft.window = Window(kernel=draft.pre_pool[1:], pads=draft.window.pads)
    _array(draft, node)


def _matmul(draft: Draft, node: Node) -> None:
    """The second operand's pixels are the output channels of a dense layer."""
    dfg = draft.dfg
    if dfg.base(node.operands[0]) != dfg.base(draft.value) or draft.window.pads != NO_PADS:
        raise ends_before(node, "a product of two maps reads both from memory, as they are")
    draft.second = dfg.base(node.operands[1])
    draft.sequences = feature_shape(dfg[node.operands[1]].shape)[1]
    draft.on_array(node)
    channels, *pixels = feature_shape(node.shape)
    draft.macs = dfg[node.operands[0]].shape[1] * channels * pixels[0] * pixels[1]


def _transpose(draft: Draft, node: Node) -> None:
    """Each row of the map times a matrix: its pixels are the output channels."""
    if draft.dfg.base(node.operands[0]) != draft.dfg.base(draft.value):
        raise ends_before(node, "what it exchanges comes from memory")
    draft.second = draft.dfg.base(node.operands[0])
    draft.source = UNIT - 1 - node.operands[1] if node.is_turned_layer else UNIT
    draft.sequences = feature_shape(node.shape)[1]
    draft.on_array(node)
    if node.is_turned_layer:
        weight = draft.dfg[node.operands[1]].shape
        draft.macs = math.prod((*weight, *feature_shape(node.shape)[:2]))


def _array(draft: Draft, node: Node, size: tuple[int, ...] | None = None) -> None:
    """size: rows and columns by which all weights are multiplied; None: those of the result."""
    weight = draft.dfg[node.operands[1]].const
    assert weight is not None
    draft.on_array(node)
    rows, cols = size or draft.pre_pool[1:]
    draft.macs = 0 if {"choice", AGAIN} & {*node.attrs} else weight.size * rows * cols


def _by_value(draft: Draft, node: Node) -> None:
    """A stage that needs nothing but the value."""
    stage = STAGE_OF_OPERATOR[node.op].stage
    assert stage is not None
    if BY_ROWS in node.attrs:
        if draft.anchor is not None or draft.stages or draft.window != POINT:
            raise ends_before(node, "it normalises rows of a map one by one")
        draft.sequences = feature_shape(node.shape)[1]
    draft.stage(StageOf(stage=stage, node=node.index))


def _pool(draft: Draft, node: Node) -> None:
    attrs = node.attrs
    pads = _sum_pads(draft.pool_pads, attrs["pads"])
    draft.pool_pads = NO_PADS
    window = Window(kernel=attrs["kernel"], strides=attrs["strides"], pads=pads)
    positions = window.kernel[0] * window.kernel[1]
    beyond = exceeds_pools(draft.hw, node)
    large = beyond or positions > largest_window(draft.hw)
    quick = node.index in draft.last and is_summed_faster(
        draft.hw, window, feature_shape(node.shape)[1:]
    )
    if node.op == "avg_pool" and not draft.stages and (large or quick):
        _pool_on_array(draft, node, window)
        return
    if beyond:
        raise ends_before(
            node, "its window exceeds every pool module, and the array is busy in its group"
        )
    draft.stage(StageOf(stage=Stage.POOL, node=node.index))
    (_, rows, cols), out = draft.pre_pool, feature_shape(node.shape)[1:]
    # What no window reads is not computed (and then more than all multipliers would have worked).
    read = window.reads(0, out[0], rows) * window.reads(1, out[1], cols)
    draft.macs = draft.macs // (rows * cols) * read
    draft.pool = window
    draft.pool_kind = PoolKind.MAX if node.op == "max_pool" else PoolKind.AVERAGE


def _pool_on_array(draft: Draft, node: Node, window: Window) -> None:
    rows, cols = window.kernel
    what, larger = "a tile", "raise buffers.psum.words in the spec"
    if exceeds_pools(draft.hw, node):
        what, larger = "the machine's pool modules", "use smaller windows"
    if any(window.pads) and not node.attrs["count_include_pad"]:
        raise DoesNotFit(
            node.name,
            f"its window of {rows}×{cols} exceeds {what} and its padding is not counted",
            f"count the padding (count_include_pad=1), or {larger}",
        )
    positions = rows * cols
    if positions & (positions - 1) and not draft.hw.numeric.multiplier_bits:
        raise DoesNotFit(
            node.name,
            f"its window of {positions} positions exceeds {what}, and without multipliers the "
            "array divides by powers of two only",
            f"{larger}, or set numeric.multiplier_bits",
        )
    draft.window = replace(window, pads=_sum_pads(draft.window.pads, window.pads))
    draft.groups = draft.pre_pool[0]
    draft.depthwise = draft.sums = draft.hw.array.depthwise
    draft.on_array(node)


def _upsample(draft: Draft, node: Node) -> None:
    draft.upsample = node.attrs["scale"]


def _permute(draft: Draft, node: Node) -> None:
    alone = draft.anchor is None and not draft.stages and draft.window == POINT
    draft.stored = draft.pre_pool if alone else feature_shape(draft.dfg[draft.value].shape)
    windows = draft.pool is not None or draft.transposed is not None
    # The array computes several pixels of so few channels at a time, which post reads together.
    narrow = draft.anchor is not None and 2 * draft.pre_pool[0] <= draft.hw.word_channels
    alike = all(item.side is None for item in draft.stages)
    pixelwise = alike and not windows and not narrow
    draft.permute = permuted(node, draft.stored[2], alone=alone, pixelwise=pixelwise)


def _with_map(draft: Draft, node: Node) -> None:
    """A sum or product with a map from memory, which may be constant, or with one pixel that is
    broadcast.
    """
    dfg = draft.dfg
    at = chain_operand(dfg, node)
    if dfg.base(node.operands[at]) != dfg.base(draft.value):
        at = 1 - at
    other = node.operands[1 - at]
    if feature_shape(dfg[node.operands[at]].shape) != feature_shape(node.shape):
        raise DoesNotFit(
            node.name,
            "the pipeline would carry its operand of one pixel",
            "let it end the group before",
        )
    if node.access[1 - at] is not Access.FULL and dfg[other].kind is Kind.CONST:
        raise DoesNotFit(  # the residual stage reads from the memory of feature maps
            node.name,
            f"its operand {dfg[other].name} is a constant, and no convolution of its group takes "
            "it up",
            "let it follow a convolution directly",
        )
    if node.op == "add":
        same_map(dfg, node, other)
    item = StageOf(
        stage=Stage.RESIDUAL,
        node=node.index,
        side=dfg.base(other),
        broadcast=feature_shape(dfg[other].shape)[1:] == (1, 1) != feature_shape(node.shape)[1:],
        swapped=at == 1,
    )
    draft.stage(item)


def _batch_norm(draft: Draft, node: Node) -> None:  # noqa: ARG001  one signature for all operators
    """One that leads its group is the pre chain's (`geometry`)."""
    raise ends_before(
        node,
        "before the array a channel affine comes first, its group has begun with another operator",
    )


def _sum_pads(a: Pads, b: Pads) -> Pads:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


HANDLERS: dict[str, Callable[[Draft, Node], None]] = {
    **dict.fromkeys(STAGE_OF_OPERATOR, _by_value),
    "pad": _pad,
    "conv": _conv,
    "dense": _dense,
    "matmul": _matmul,
    "transpose": _transpose,
    "add": _with_map,
    "multiply": _with_map,
    "transposed_conv": _transposed,
    "shuffle": Draft.on_array,  # a convolution with ones and zeros
    "upsample": _upsample,
    "permute": _permute,
    "batch_norm": _batch_norm,
    **dict.fromkeys(("max_pool", "avg_pool"), _pool),
}

OPERATORS = frozenset({*HANDLERS, *LAYOUT})
"""Operators that `group_geometry` knows."""
