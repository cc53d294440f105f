"""The one integer arithmetic of opu-fuse.

Golden model, functional engine, code generator and RTL benches all use these functions; nothing
else rounds. All take and return numpy arrays (int64 inside, so that no product of the machine
overflows). `rne` rounds halves to even, as ONNX Runtime.
"""

import functools
import math

import numpy as np
from msgspec import Struct

INT8_MIN, INT8_MAX = -128, 127
MAX_SHIFT = 47
"""Largest right shift: a 32-bit sum times a 16-bit multiplier has 47 bits and a sign."""
MIN_SHIFT = -16
"""Largest left shift; only machines that shift instead of multiplying, and the units before the
array, have one."""


_FARTHEST = 62
"""Right shift from which on all results are 0; twice the rest of a longer one exceeds 64 bits."""


class Multiplier(Struct, frozen=True, kw_only=True):
    """A positive real ratio as `mult / 2**shift`; `shift` may be negative (a left shift)."""

    mult: int
    shift: int

    @property
    def ratio(self) -> float:
        return self.mult * 2.0**-self.shift


def rne_shift(x: np.ndarray, shift: np.ndarray | int) -> np.ndarray:
    """`rne(x / 2**shift)` on int64 below 2**61, halves to even; negative shifts multiply."""
    x = np.asarray(x, np.int64)
    shift = np.asarray(shift, np.int64)
    right = np.clip(shift, 0, _FARTHEST)
    floor = x >> right
    twice = (x - (floor << right)) << 1
    unit = np.int64(1) << right
    up = (twice > unit) | ((twice == unit) & ((floor & 1) == 1))
    return np.where(shift >= 0, floor + up, x << np.maximum(-shift, 0))


def clamp8(x: np.ndarray, lo: int = INT8_MIN, hi: int = INT8_MAX) -> np.ndarray:
    """Clamp to [lo, hi] (within int8) and narrow to int8."""
    return np.clip(x, lo, hi).astype(np.int8)


def requantize(
    acc: np.ndarray, mult: np.ndarray | int, shift: np.ndarray | int, zero_point: int
) -> np.ndarray:
    """`clamp(rne(acc * mult / 2**shift) + zero_point)`; mult and shift broadcast (per output
    channel).
    """
    return clamp8(
        rne_shift(np.asarray(acc, np.int64) * np.asarray(mult, np.int64), shift) + zero_point
    )


def activate(
    x: np.ndarray,
    *,
    x_zero: int,
    pos: int,
    neg: np.ndarray | int,
    shift: int,
    y_zero: int,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
) -> np.ndarray:
    """Comparator: slope `pos` where x >= x_zero, `neg` below (it broadcasts: per channel), then
    `/ 2**shift`, zero point, clamp to [lo, hi].

    relu/clip with tied scales: pos = neg = 1, shift = 0. Leaky relu with alpha = 2**-k: pos =
    2**k, neg = 1, shift = k.
    """
    centred = np.asarray(x, np.int64) - x_zero
    slope = np.where(centred < 0, np.asarray(neg, np.int64), np.int64(pos))
    return clamp8(rne_shift(centred * slope, shift) + y_zero, lo, hi)


def add_residual(
    a: np.ndarray,
    b: np.ndarray,
    *,
    a_mult: int,
    b_mult: int,
    shift: int,
    a_zero: int,
    b_zero: int,
    y_zero: int,
) -> np.ndarray:
    """`clamp(rne(((a - a_zero) * a_mult + (b - b_zero) * b_mult) / 2**shift) + y_zero)`."""
    total = (np.asarray(a, np.int64) - a_zero) * a_mult + (
        np.asarray(b, np.int64) - b_zero
    ) * b_mult
    return clamp8(rne_shift(total, shift) + y_zero)


def multiply_residual(
    a: np.ndarray, b: np.ndarray, *, mult: int, shift: int, a_zero: int, b_zero: int, y_zero: int
) -> np.ndarray:
    """`clamp(rne((a - a_zero) * (b - b_zero) * mult / 2**shift) + y_zero)`; squeeze-and-excite."""
    product = (np.asarray(a, np.int64) - a_zero) * (np.asarray(b, np.int64) - b_zero)
    return clamp8(rne_shift(product * mult, shift) + y_zero)


def channel_affine(
    x: np.ndarray,
    *,
    mult: np.ndarray | int,
    bias: np.ndarray | int,
    shift: np.ndarray | int,
    y_zero: int,
    lo: int = INT8_MIN,
    hi: int = INT8_MAX,
) -> np.ndarray:
    """`clamp(rne((x * mult + bias) / 2**shift) + y_zero, lo, hi)`; mult (int16), bias (int32) and
    shift broadcast (per channel). The input's zero point is folded into the bias.
    """
    total = np.asarray(x, np.int64) * np.asarray(mult, np.int64) + np.asarray(bias, np.int64)
    return clamp8(rne_shift(total, shift) + y_zero, lo, hi)


def average(total: np.ndarray, *, mult: int, shift: int, y_zero: int) -> np.ndarray:
    """`clamp(rne(total * mult / 2**shift) + y_zero)`; total is the sum of (x - x_zero) over the
    window.
    """
    return clamp8(rne_shift(np.asarray(total, np.int64) * mult, shift) + y_zero)


@functools.lru_cache(maxsize=1 << 14)
def multiplier(ratio: float, bits: int) -> Multiplier:
    """The nearest `mult / 2**shift` to a positive ratio with `0 <= mult < 2**bits`; exact for
    powers of two, 0 for less than half of `2**-MAX_SHIFT`.

    bits = 0: the ratio must be a power of two (mult is 1, the shift may be negative). Otherwise
    0 <= shift <= MAX_SHIFT; the mantissa is reduced (trailing zeros dropped) so that powers of
    two give mult = 1 where the shift allows. Raises ValueError, naming the ratio, when it cannot
    be represented.
    """
    if not (ratio > 0.0 and np.isfinite(ratio)):
        raise ValueError(f"ratio {ratio} is not a positive finite number")
    mantissa, exponent = np.frexp(ratio)
    if bits == 0:
        if mantissa != 0.5:
            raise ValueError(f"ratio {ratio} is not a power of two")
        shift = 1 - int(exponent)
        if not MIN_SHIFT <= shift <= MAX_SHIFT:
            raise ValueError(f"ratio {ratio} needs shift {shift}, outside {MIN_SHIFT}..{MAX_SHIFT}")
        return Multiplier(mult=1, shift=shift)
    shift = min(bits - int(exponent), MAX_SHIFT)
    mult = int(np.rint(np.ldexp(ratio, shift)))
    while mult > 0 and mult % 2 == 0:
        mult, shift = mult // 2, shift - 1
    if shift < 0:
        mult, shift = mult << -shift, 0
    if mult >= 1 << bits:
        raise ValueError(f"ratio {ratio} exceeds the largest multiplier {(1 << bits) - 1}")
    return Multiplier(mult=mult, shift=shift)


def shared_multipliers(ratios: tuple[float, ...], bits: int) -> tuple[tuple[int, ...], int]:
    """Several ratios over one shift: (multipliers, shift), exact for powers of two that fit
    `bits` together.

    The residual adder (two operands) and the comparator (two slopes) use it. A ratio too small
    for the common shift is rounded to the nearest representable one (0 included). The multiplier
    width is at least 16 here, whatever the spec's `multiplier_bits`: a shift per operand is a
    multiplication by a power of two.
    """
    bits = max(bits, 16)
    top = max(ratios)
    lead = multiplier(top, bits)
    shift = lead.shift
    limit = (1 << bits) - 1

    def exact() -> bool:
        return all(np.ldexp(r, shift).is_integer() for r in ratios)

    while shift < MAX_SHIFT and np.ldexp(top, shift + 1) <= limit and not exact():
        shift += 1
    return tuple(int(np.rint(np.ldexp(r, shift))) for r in ratios), shift


def exact_matmul(a: np.ndarray, b: np.ndarray, terms: int) -> np.ndarray:
    """Integer matrix product through BLAS: float32 while |sum| < 2**24, float64 (exact below
    2**53) beyond.

    a, b: integer-valued arrays, of int8 with magnitudes <= 128, else <= 256; terms: length of the
    contracted axis. Returns int64.
    """
    largest = math.prod(128 if m.dtype == np.int8 else 256 for m in (a, b))
    dtype = np.float32 if terms * largest < 1 << 24 else np.float64
    return (a.astype(dtype) @ b.astype(dtype)).astype(np.int64)


def is_power_of_two(value: np.ndarray | np.floating) -> bool:
    """Whether all numbers are."""
    mantissa, _ = np.frexp(np.asarray(value, np.float64))
    return bool(np.all(mantissa == 0.5))
