"""Sparsity maps of weights: of one-hot weights, and of the further int8 terms of wide ones."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.integer import ACCUMULATING, filters
from opu_fuse.dfg.views import feature_shape
from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN
from opu_fuse.hw.dram_layout import extent, is_plain, lanes_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Cells, Shape
from opu_fuse.lowering.pass_geometry import Geometry
from opu_fuse.lowering.polyphase import Phase


def with_cells(dfg: Dfg, geometry: Geometry, phase: Phase, shape: Shape, hw: HwSpec) -> Shape:
    """A phase of a pass with the sparsity maps of its weights."""
    return replace(
        shape,
        needed=_needed_cells(dfg, geometry, shape, hw),
        further=further_cells(dfg, geometry, phase, shape, hw),
    )


def _needed_cells(dfg: Dfg, geometry: Geometry, shape: Shape, hw: HwSpec) -> Cells | None:
    """`Shape.needed` of one-hot weights.

    They are those of a permutation of channels, and of a convolution that puts pixels next to each
    other for a norm: with patches of 2 x 2 pixels one weight row of four or more is not zero. Other
    layers keep their programs.
    """
    if geometry.anchor is None or shape.depthwise or not is_plain(geometry.out_pieces):
        return None
    node = dfg[geometry.anchor]
    if node.op == "shuffle":
        # A channel of zeros takes one of its rows: sums begin with some.
        order = np.maximum(node.attrs["order"], 0)
        ones = np.arange(len(order)), order, *(np.zeros_like(order) for _ in range(2))
        inputs = feature_shape(dfg[geometry.source].shape)[0]
        return next(_cells(dfg, geometry, shape, hw, (len(order), inputs), [ones]))
    if node.op != "conv" or "choice" not in node.attrs or not shape.passes:
        return None
    weight = filters(dfg, geometry.anchor)
    if weight.dtype != np.int8 or not np.all(weight.any(axis=(1, 2, 3))):
        return None
    return next(_cells(dfg, geometry, shape, hw, weight.shape[:2], [np.nonzero(weight)]))


def further_cells(
    dfg: Dfg, geometry: Geometry, phase: Phase, shape: Shape, hw: HwSpec
) -> tuple[Cells, ...]:
    """`Shape.further` of a phase of a pass. It depends on the weights' values, which grouping
    does not use.
    """
    if geometry.anchor is None or dfg[geometry.anchor].op not in ACCUMULATING:
        return ()
    weight = phase.filters(filters(dfg, geometry.anchor))
    if weight.dtype == np.int8:
        return ()
    if phase.taps is None:
        weight = weight.reshape(len(weight), -1, *shape.kernel)
    return tuple(_cells(dfg, geometry, shape, hw, weight.shape[:2], _further(weight)))


def _cells(
    dfg: Dfg,
    geometry: Geometry,
    shape: Shape,
    hw: HwSpec,
    channels: tuple[int, int],
    terms: Iterable[tuple[np.ndarray, ...]],
) -> Iterator[Cells]:
    """Yield a sparsity map for each of `terms`: indices (oc, ic, y, x) of nonzero weights.

    channels: output channels, and input channels of a group.
    """
    modes = hw.array.modes
    out = math.gcd(*(m.oc for m in modes), min(hw.array.units, hw.word_channels))
    inner = math.gcd(*(m.ic for m in modes))
    size = (
        -(-extent(geometry.out_pieces) // out),
        -(-extent(geometry.in_pieces) // inner),
        *shape.kernel,
    )
    inputs = feature_shape(dfg[geometry.source].shape)[0]
    first_inputs = _first_inputs(*channels, inputs)
    for oc, ic, y, x in terms:
        lanes = (
            lanes_of(geometry.out_pieces)[oc],
            lanes_of(geometry.in_pieces)[first_inputs[oc] + ic],
        )
        bits = np.zeros(size, np.bool_)
        bits[lanes[0] // out, lanes[1] // inner, y, x] = True
        yield Cells(out=out, inner=inner, size=size, bits=np.packbits(bits).tobytes())


def _first_inputs(channels: int, per_group: int, inputs: int) -> np.ndarray:
    """The first input channel that each output channel of a grouped convolution reads."""
    groups = inputs // per_group
    return np.arange(channels) // (channels // groups) * per_group


def _further(weight: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the indices of nonzero weights, per int8 term but the first (`quant.weight_parts`).

    Only the few weights that exceed int8 are examined again.
    """
    flat = weight.reshape(-1)
    indices = np.flatnonzero(flat != flat.astype(np.int8))
    left = flat[indices]
    while True:
        left = left - np.clip(left, INT8_MIN, INT8_MAX)
        indices, left = indices[left != 0], left[left != 0]
        if not len(indices):
            return
        yield np.unravel_index(indices, weight.shape)
