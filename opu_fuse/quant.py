"""Value annotations: how the integers of a tensor represent real numbers.

An int8 tensor `q` represents `(q - zero_point) * scale`. Activations carry one scale; weights
one scale per output channel (`axis`), zero point 0: one of their own is subtracted at import, which
takes 9 bits where int8 does not hold the difference (`weight_parts`). A value without annotation is
either float (no quantisation) or an accumulator (`acc`, int32) inside a group.
"""

import math
from collections.abc import Iterator
from enum import StrEnum

import numpy as np
from msgspec import Struct

META_KEY = "opu_fuse.quant"
"""Key under which an `onnx_ir.Value` carries its `QuantParams` (in `Value.meta`)."""
UINT8_SHIFT = 128
"""Offset between a uint8 and the int8 of equal meaning, zero points included."""
LEAST = 1e-30
"""Tensors with a narrower range are zero in any scale."""
FLOAT_KEY = "opu_fuse.float"
"""Key in `Node.metadata_props` of nodes that remain in floating point: the user ASKED for it, they
read or write minus infinity (INFINITE), which no scale has, or it is NEEDLESS to round them, since
they only move what nothing quantised computes or reads."""
ASKED, INFINITE, NEEDLESS = "asked", "infinite", "needless"
REWRITE_KEY = "opu_fuse.rewrite"
"""Key in `Node.metadata_props`: what a rewrite for fusing replaced, and why."""
CHOICE_KEY = "opu_fuse.choice"
"""Key in `Node.metadata_props` of convolutions with one-hot weights that a rewrite inserted: they
move values, and none of their products is one of the model's.
"""
PRODUCTS_KEY = "opu_fuse.products"
"""Key in `Node.metadata_props` of convolutions whose weights a rewrite filled up with zeros: the
number of multiplications that the model asks for.
"""
DIVISION_KEY = "opu_fuse.division"
"""Key in `Node.metadata_props` of a Div that a rewrite inserted (`model/divisions.py`)."""
GROUPED_KEY = "opu_fuse.grouped"
"""Key in `Node.metadata_props` of the last node of a Softmax over groups of channels that a rewrite
inserted (`model/grouped_softmax.py`)."""
PREQUANTISED_KEY = "opu_fuse.prequantised"
"""Key in `Model.meta` of a quantised canonical model: whether it came so; it is False for those
that were quantised here."""
NORMS_KEY = "opu_fuse.norms"
"""Key in `Graph.meta` of a model: the ONNX operators of `model/norms.py` that the machine runs."""
EQUALISED_KEY = "opu_fuse.equalised"
"""Key in `Graph.meta` of a float model: whether its layers will be equalised, whose weights then
remain those of convolutions.
"""
UNROUNDED_KEY = "opu_fuse.unrounded"
"""Key in `Value.meta` of a further input of the canonical model: the input of the user's model
whose numbers it has unrounded, while the other value of that input is rounded.
"""


_FINER = 7
"""By more bits than that int8 shifts no weight but 0."""


def finer_by(rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Bits by which each channel's accumulator unit becomes finer, so that its bias is a multiple
    of the unit. 0 where it is one already, and where int8 does not hold the channel's weights in
    such a unit, or int32 its sums.

    rows: integer weights, output channels first; steps: biases in units of the sums.
    """
    sizes = np.abs(rows.astype(np.int64)).reshape(len(rows), -1)
    largest, reach = sizes.max(axis=1, initial=0), 128 * sizes.sum(axis=1) + np.abs(steps)
    shifts = np.zeros(len(rows), np.int64)
    for bits in range(_FINER, -1, -1):  # the fewest that do come last
        holds = (largest << bits <= 127) & (np.ldexp(reach, bits) < 2**31) | (bits == 0)
        finer = np.ldexp(steps, bits)
        shifts = np.where((finer == np.rint(finer)) & holds, bits, shifts)
    return shifts


def as_int8(data: np.ndarray) -> np.ndarray:
    """Converts uint8 to the int8 that represent equal numbers."""
    return (data.astype(np.int16) - UINT8_SHIFT).astype(np.int8)


def narrowed(data: np.ndarray) -> np.ndarray:
    """Integers of up to 16 bits as int8 where that holds all of them, else as int16."""
    low, high = data.min(initial=0), data.max(initial=0)
    return data.astype(np.int8 if low >= -128 and high <= 127 else np.int16, copy=False)


def weight_parts(data: np.ndarray) -> Iterator[np.ndarray]:
    """int8 arrays whose sum is an array of weights, of int8 or int16: the first holds as much of
    each number as int8 can, so that the others are zero wherever they may be.
    """
    while data.dtype != np.int8:
        part = np.clip(data, -128, 127).astype(np.int8)
        yield part
        data = narrowed(data - part)
        if not data.any():
            return
    yield data


class Domain(StrEnum):
    """The two value domains of the machine (acc never leaves a group)."""

    ACC = "acc"
    ACT = "act"


class QuantParams(Struct, frozen=True, kw_only=True):
    """Scale(s) and zero point of one tensor.

    scale: one positive float per channel along `axis`, or a single one when `axis` is None.
    zero_point: int8 value that represents 0.0 (0 for weights). bits: 8 for activations and
    weights, 16 for weights that int8 does not hold, 32 for biases.
    """

    scale: tuple[float, ...]
    zero_point: int = 0
    axis: int | None = None
    bits: int = 8

    def __post_init__(self) -> None:
        if not all(0.0 < s < math.inf for s in self.scale):
            raise ValueError(f"scale must be positive and finite, got {self.scale}")
        if self.axis is None and len(self.scale) != 1:
            raise ValueError(f"{len(self.scale)} scales without an axis")

    @property
    def per_tensor(self) -> float:
        """The only scale of a per-tensor annotation."""
        if len(self.scale) != 1:
            raise ValueError("per-tensor scale asked of a per-channel annotation")
        return self.scale[0]

    @property
    def is_pow2(self) -> bool:
        """True when every scale is a power of two (OPU's "fraction length" scheme)."""
        return all(np.frexp(s)[0] == 0.5 for s in self.scale)

    def quantize(self, x: np.ndarray) -> np.ndarray:
        """Real numbers -> int8, halves to even, as ONNX QuantizeLinear computes it (float32
        division).
        """
        with np.errstate(over="ignore"):  # what is too large for a float32 saturates
            scaled = x.astype(np.float32) / np.float32(self.per_tensor)
        return np.clip(np.rint(scaled) + self.zero_point, -128, 127).astype(np.int8)

    def clips(self, x: np.ndarray) -> np.ndarray:
        """Which real numbers int8 cuts off: those further beyond its ends than rounding goes."""
        steps = x.astype(np.float64) / self.per_tensor + self.zero_point
        return np.abs(steps + 0.5) > 128.0

    def dequantize(self, q: np.ndarray) -> np.ndarray:
        """Integers -> float32, as ONNX DequantizeLinear computes it."""
        axes = () if self.axis is None else [-1 if i == self.axis else 1 for i in range(q.ndim)]
        scale = np.asarray(self.scale, np.float32).reshape(axes)
        return (q.astype(np.int32) - self.zero_point).astype(np.float32) * scale


def covering(low: float, high: float) -> QuantParams:
    """All steps from `low` to `high`, with zero between them."""
    scale = float(np.float32((high - low) / 255.0))
    return QuantParams(scale=(scale,), zero_point=int(np.rint(-128 - low / scale)))
