"""Pixel packing: several neighbouring pixels of a narrow map share one word, one slot each.

The network's inputs use the smallest slots that hold their channels, unless a reader needs whole
words. A map whose channels fill at most half a word of W bytes can have slots of W/2 or W/4 bytes,
under four conditions:

* the group that computes it runs in an array mode with that many pixels per cycle;
* all its readers accept slots;
* maps that are added to it have the same packing (constant ones are stored so);
* its pool, if any, takes the maximum of two neighbouring columns.

The algorithm is a fixpoint iteration: it starts from the densest packing and removes packing that
violates a condition, until nothing changes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg, Kind
from opu_fuse.dfg.views import feature_shape, values_in_other_rows
from opu_fuse.hw.dram_layout import Pieces, is_plain
from opu_fuse.hw.spec.hw_spec import HwSpec, Mode
from opu_fuse.layout.shape import Shape
from opu_fuse.units.pool import PoolKind

UNIT = -1
"""Source of a pass that reads the unit matrix, which is no value of the DFG. Numbers below are
those of turned layers: `UNIT - 1 - n` where node n has the weights.
"""
MIN_SLOT = 4
"""Fewest bytes of a pixel of a packed network input."""


class Pass(Struct, frozen=True, kw_only=True):
    """A pass through the machine: its sizes and the maps that it reads and writes (DFG indices).

    shape: its sizes, for tiling and cost;
    source, residuals: maps that it reads from memory (views looked through); source UNIT or less: a
        constant matrix, which is no map (`lowering/handlers.py`);
    gate: the map that multiplies the channels of the source before the array, if any;
    second: the map that the array reads as weights, if any;
    output: the value that it stores;
    in_pieces, out_pieces: lanes of the channels of source and output.
    """

    shape: Shape
    source: int
    residuals: tuple[int, ...]
    output: int
    in_pieces: Pieces
    out_pieces: Pieces
    gate: int | None = None
    second: int | None = None

    def sum_pieces(self, hw: HwSpec) -> Pieces:
        """Lanes of the output channels in a pixel's partial sums."""
        first = self.shape.out_slot * hw.word_channels // self.shape.px
        return tuple([(lane - first, lanes) for lane, lanes in self.out_pieces])

    @property
    def fields(self) -> dict[str, Any]:
        """These fields, for a record that adds others."""
        return {name: getattr(self, name) for name in Pass.__struct_fields__}


def choose_slots(
    dfg: Dfg, layers: Iterable[Pass], fixed: Collection[int], hw: HwSpec
) -> dict[int, int]:
    """Bytes per pixel, by DFG index. Values that are not in the result have one pixel per word.

    layers: in execution order; fixed: values that have one pixel per word in any case.
    """
    if hw.word_bytes != hw.word_channels:
        return {}
    layers = tuple(layers)
    whole_words = {layer.source for layer in layers if not _reads_slots(layer, hw)}
    whole_words.update(fixed, values_in_other_rows(dfg))
    whole_words.update(i for x in layers for i in (x.gate, x.second) if i is not None)
    residuals = {node for layer in layers for node in layer.residuals}
    inputs = (i for i in dfg.inputs if i not in whole_words | residuals)
    channels = {i: feature_shape(dfg[i].shape)[0] for i in inputs}
    slots = {i: max(MIN_SLOT, 1 << (n - 1).bit_length()) for i, n in channels.items()}
    slots = {i: slot for i, slot in slots.items() if slot < hw.word_bytes}
    constants = {node for node in residuals if dfg[node].kind is Kind.CONST}
    px = _pack_pixels(layers, slots, whole_words, hw, constants)
    return slots | {node: hw.word_bytes // n for node, n in px.items() if n > 1}


def _pack_pixels(
    layers: Sequence[Pass],
    slots: Mapping[int, int],
    whole_words: Collection[int],
    hw: HwSpec,
    constants: Collection[int],
) -> dict[int, int]:
    """Pixels per word of every layer's output, and of constant maps, by fixpoint iteration.

    slots: bytes per pixel of the network's inputs; whole_words: values that are not packed;
    constants: maps that take the packing of the layer that reads them.
    """
    px = {layer.output: _most(layer, hw) for layer in layers}
    px |= {node: 1 for node in whole_words if node in px}
    changed = True
    while changed:
        changed = False
        for layer in layers:
            slot = hw.word_bytes // px.get(layer.source, 1)
            slot = slots.get(layer.source, slot)
            best = _fitting(replace(layer.shape, slot=slot), px[layer.output], hw)
            own = {node: best for node in layer.residuals if node in constants and node not in px}
            px |= own
            if any(px.get(node, 1) != best for node in layer.residuals):
                best = 1
            if best != px[layer.output]:
                px[layer.output], changed = best, True
            for node in layer.residuals:
                if px.get(node, best) != best:
                    px[node], changed = 1, True
    return px


def _reads_slots(layer: Pass, hw: HwSpec) -> bool:
    """Whether the array can read a layer's input from slots.

    The channels of a pixel must fit one segment of some array mode.
    """
    shape = layer.shape
    if shape.depthwise or shape.pre or not shape.array or shape.computed:
        return False
    if not is_plain(layer.in_pieces):
        return False
    return shape.in_channels <= max(m.ic for m in hw.array.modes if m.px == 1)


def _most(layer: Pass, hw: HwSpec) -> int:
    """The most pixels of a layer's output that some mode packs into a word."""
    shape = layer.shape
    gated = any(side.broadcast for side in shape.sides)
    whole = shape.depthwise or shape.pre or gated or shape.computed or shape.passes
    packable = shape.array and not whole
    if (
        not packable
        or shape.phased
        or shape.upsample != (1, 1)
        or shape.permute
        or not _pools_slots(shape)
        or not is_plain(layer.out_pieces)
    ):
        return 1
    return max(
        (m.px for m in hw.array.modes if shape.pre_pool_channels * m.px <= hw.word_channels),
        default=1,
    )


def _pools_slots(shape: Shape) -> bool:
    """Whether a layer's pool, if any, can run on packed pixels.

    The hardware then takes the maximum of two neighbouring pixels (`pool_slots`).
    """
    pool = shape.pool
    if pool is None:
        return True
    halves = pool.kernel[1] == pool.strides[1] == 2 and shape.pre_pool_cols == 2 * shape.out_cols
    is_max = shape.pool_kind is PoolKind.MAX
    return is_max and halves and not (pool.pads[1] or pool.pads[3] or shape.sides)


def _fitting(shape: Shape, most: int, hw: HwSpec) -> int:
    """The most pixels per word, up to `most`, for which data fetch can feed some array mode."""
    for px in (4, 2):
        if px <= most and any(can_fetch(replace(shape, px=px), m, hw) for m in hw.array.modes):
            return px
    return 1


def can_fetch(shape: Shape, mode: Mode, hw: HwSpec) -> bool:
    """Whether data fetch can feed an array mode that packs partial sums as the layer requires.

    The segments of all pixels of one cycle must be inside two neighbouring words.
    """
    sweeps = shape.sweeps(mode)
    if mode.px * sweeps != shape.px or (shape.computed and mode.ic != hw.word_channels):
        return False
    if sweeps > 1 and hw.word_channels // shape.px % mode.oc:
        return False
    pixel_distance = (mode.px - 1) * shape.window.strides[1] * sweeps
    if shape.slot == hw.word_bytes:
        return pixel_distance <= 1
    return mode.ic >= shape.in_channels and pixel_distance * shape.slot + mode.ic <= (
        hw.word_bytes + shape.column_bytes
    )
