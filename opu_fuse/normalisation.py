"""Softmax, LayerNorm and RMSNorm in integers: what the unit `norm` computes.

A reduction covers the lanes of a pixel: 16 to thousands of int8 values. Statistics of it are sums
of integers. One number of 17 bits for each pixel, a reciprocal or an inverse root, is read from a
table of lines. Results are within one step of the real function of the int8 operands, rounded
to nearest even; `tests/test_normalisation.py` proves it for the tables and measures it against
ONNX Runtime.

Arrays are int64 inside. `rne` rounds halves to even, `lanes` is the last axis.

Sources: the three passes over the partial sums follow Gemmini's `Normalizer` (ucb-bar/gemmini);
lines instead of Newton steps follow Muller, "Elementary Functions", section 6.
"""

import math

import numpy as np
from msgspec import Struct

from opu_fuse.fixedpoint import clamp8, rne_shift

BY_ROWS = "by_rows"
"""Attribute of a GroupNorm whose groups are the rows of a map."""

QUARTERS = 4
"""Parts of a word that the unit may normalise each by itself."""

EXP_BITS = 23
"""Fraction of an exponential. A sum of n of them is right to n/2**24, so a result at 2**-8 is
within one step up to n = 32,000; 15 bits would do up to n = 128."""

INVERSE_BITS = 17
"""Bits of a reciprocal or root: with a sign they enter a port of a multiplier of 25 x 18 bits."""
INVERSE_MAX = (1 << INVERSE_BITS) - 1

LINE_BITS = 7
"""128 lines an octave: their error is less than half a unit of the result."""
LINE_GUARD = 4
"""Bits of a line's ends after the unit of the result."""
HALF_UNIT = 1 << (LINE_GUARD - 1)
"""Of the result, in units of a line's ends."""
RECIPROCAL_FRACTION = 19
ROOT_FRACTION = 20
"""Bits of an operand after its leading one that are read: the line, then the place on it."""

NORMALISED_FRACTION = 15
"""Bits after the point of (x - mean) / deviation, which is less than sqrt(n)."""
VARIANCE_FRACTION = 8
"""Bits after the point of n*S2 - S1**2: they hold epsilon where the variance is small."""
FACTOR_BITS = 24
"""Width of the factor and offset of a pixel: the wide port of a multiplier of 25 x 18 bits."""

SHIFT_MAX = 63
EPSILON_BITS = 16
EPSILON_SHIFT_MAX = 41
EPSILON_LIMIT = ((1 << EPSILON_BITS) - 1) * 2.0**EPSILON_SHIFT_MAX
"""Sums with it remain below 2**58."""


class Lines(Struct, frozen=True, kw_only=True):
    """A falling function as chords: value at the left end and fall along each line, both with
    `LINE_GUARD` more bits than the result.
    """

    start: tuple[int, ...]
    fall: tuple[int, ...]

    def at(self, line: np.ndarray, along: np.ndarray, bits: int) -> np.ndarray:
        """Value `along / 2**bits` of the way down a line, at most `INVERSE_MAX`."""
        start, fall = np.array(self.start), np.array(self.fall)
        dropped = (fall[line] * along + (1 << (bits - 1))) >> bits
        return np.minimum((start[line] - dropped + HALF_UNIT) >> LINE_GUARD, INVERSE_MAX)


def _lines(power: float, octaves: int) -> Lines:
    """Chords of 2**INVERSE_BITS * x**power for x in [1, 2**octaves), 128 an octave.

    Each joint is lowered by half of the mean sag of its lines, so that errors above and below are
    about equal. Lines meet at their joints: the result falls everywhere.
    """
    scale = float(1 << (INVERSE_BITS + LINE_GUARD))
    unit = np.arange(1 << LINE_BITS) / (1 << LINE_BITS)
    joints = np.concatenate([(1 + unit) * 2.0**octave for octave in range(octaves)])
    joints = np.append(joints, 2.0**octaves)
    exact = scale * joints**power
    sag = (exact[:-1] + exact[1:]) / 2 - scale * ((joints[:-1] + joints[1:]) / 2) ** power
    lowered = (np.append(sag, sag[-1]) + np.insert(sag, 0, sag[0])) / 4
    values = np.rint(exact - lowered).astype(int)
    return Lines(start=tuple(values[:-1].tolist()), fall=tuple((-np.diff(values)).tolist()))


RECIPROCAL = _lines(-1.0, 1)
"""2**17 / f for f in [1, 2)."""
INVERSE_ROOT = _lines(-0.5, 2)
"""2**17 / sqrt(f) for f in [1, 4): an octave of even and one of odd exponents."""


def _exponent(x: np.ndarray) -> np.ndarray:
    """Position of the leading one of positive integers below 2**62, exactly."""
    exponent = np.frexp(np.asarray(x, np.float64))[1].astype(np.int64) - 1
    return np.where((np.int64(1) << exponent) > x, exponent - 1, exponent)  # rounded up by float64


def _fraction(x: np.ndarray, exponent: np.ndarray, bits: int) -> np.ndarray:
    """`bits` bits after the leading one; the rest is cut off."""
    right = np.maximum(exponent - bits, 0)
    left = np.maximum(bits - exponent, 0)
    return ((x >> right) << left) - (1 << bits)


def reciprocal(total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, j) with 1 / total = R / 2**(17 + j) and 2**16 <= R < 2**17, for total >= 1.

    Relative error below 2**-16; R falls with total.
    """
    exponent = _exponent(total)
    fraction = _fraction(total, exponent, RECIPROCAL_FRACTION)
    rest = RECIPROCAL_FRACTION - LINE_BITS
    line, along = fraction >> rest, fraction & ((1 << rest) - 1)
    return RECIPROCAL.at(line, along, rest), exponent


def inverse_root(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, j) with 1 / sqrt(x) = R / 2**(17 + j) and 2**16 <= R < 2**17, for x >= 1. Relative error
    below 2**-16.
    """
    exponent = _exponent(x)
    fraction = _fraction(x, exponent, ROOT_FRACTION)
    rest = ROOT_FRACTION - LINE_BITS
    line = ((exponent & 1) << LINE_BITS) + (fraction >> rest)
    return INVERSE_ROOT.at(line, fraction & ((1 << rest) - 1), rest), exponent >> 1


def exponentials(scale: float) -> np.ndarray:
    """The table of a softmax: rne(exp(-d * scale) * 2**23) for d = 0 .. 255 steps below the
    maximum; scale: of the int8 operand.
    """
    return np.rint(np.ldexp(np.exp(-np.arange(256) * float(scale)), EXP_BITS)).astype(np.int64)


class OutputScale(Struct, frozen=True, kw_only=True):
    """1 / scale of a result as `mantissa / 2**16 * 2**exponent`, 2**15 < mantissa <= 2**16, so that
    powers of two are exact.
    """

    mantissa: int
    exponent: int

    @classmethod
    def of(cls, scale: float) -> "OutputScale":
        """Raises ValueError unless scale is positive and finite."""
        if not (scale > 0.0 and math.isfinite(scale)):
            raise ValueError(f"scale {scale} is not a positive finite number")
        exponent = math.ceil(math.log2(1 / scale))
        mantissa = round(math.ldexp(1 / scale, 16 - exponent))
        if mantissa <= 1 << 15:  # 1 / scale was just above a power of two
            return cls(mantissa=1 << 16, exponent=exponent - 1)
        return cls(mantissa=mantissa, exponent=exponent)


class Scaling(Struct, frozen=True, kw_only=True):
    """What a pixel's values are multiplied with: `value * factor - offset`, right shift `shift`."""

    factor: np.ndarray
    offset: np.ndarray
    shift: np.ndarray


def exponential_terms(x: np.ndarray, maximum: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Entries of the table `maximum - x` steps below the maximum; x, maximum: int8 values."""
    return table[np.asarray(maximum, np.int64) - np.asarray(x, np.int64)]


def softmax_scaling(total: np.ndarray, output: OutputScale) -> Scaling:
    """Scaling of the exponentials of a pixel, by their sum. No sum and no result is beyond
    2**SHIFT_MAX, so larger shifts give 0 as this one does.
    """
    inverse, exponent = reciprocal(total)
    factor = (inverse * output.mantissa + (1 << 15)) >> 16
    shift = np.minimum(exponent + INVERSE_BITS - output.exponent, SHIFT_MAX)
    return Scaling(factor=factor, offset=np.zeros_like(factor), shift=shift)


def softmax(x: np.ndarray, table: np.ndarray, output: OutputScale, zero_point: int) -> np.ndarray:
    """Softmax over the last axis. x: int8 operands; table: `exponentials`. int8 results
    `clamp(rne(exp(x) / sum(exp(x)) / scale) + zero_point)`.
    """
    terms = exponential_terms(x, np.asarray(x, np.int64).max(-1, keepdims=True), table)
    pixel = softmax_scaling(terms.sum(-1, keepdims=True), output)
    return clamp8(rne_shift(terms * pixel.factor, pixel.shift) + zero_point)


DIVISOR_FRACTION = 16
"""Bits of a divisor after the unit of its steps."""
DIVISOR_LEAST = 1 << (DIVISOR_FRACTION - 8)
"""Of a step: quotients of a step or more by it are beyond int8."""
DIVISOR_SCALE = OutputScale(mantissa=1 << 16, exponent=DIVISOR_FRACTION + NORMALISED_FRACTION)
"""With it `softmax_scaling` gives the scaling of quotients by a divisor for `normalise`."""
QUOTIENT_SCALE_MAX = 1.0
"""Of the scale of quotients, so that those by `DIVISOR_LEAST` are beyond int8."""


def divisors(scale: float, epsilon: float) -> np.ndarray:
    """The table of a division: entry 0 and entry d together are max(d, 0) * scale + epsilon, in
    units of scale / 2**DIVISOR_FRACTION. d: int8, modulo 256; scale: of the int8 operand.

    Raises ValueError if epsilon exceeds the table's entries.
    """
    steps = np.where(np.arange(256) < 128, np.arange(256), 0)
    whole = np.rint((steps + epsilon / scale) * (1 << DIVISOR_FRACTION)).astype(np.int64)
    whole = np.maximum(whole, DIVISOR_LEAST)
    entries = whole - whole[0] // 2
    if entries.max() >= 1 << 24:
        raise ValueError(f"epsilon {epsilon} is too large for the scale {scale}")
    return entries


def divide(
    x: np.ndarray, table: np.ndarray, *, mult: int, shift: int, zero_point: int
) -> np.ndarray:
    """`clamp(rne(x / divisor / scale) + zero_point)` over the last axis, whose first value is the
    divisor. x: int8 operands with zero point 0; table: `divisors`; mult, shift: of 1 / scale, as of
    `channel_records`.
    """
    x = np.asarray(x, np.int64)
    pixel = softmax_scaling(table[0] + table[x[..., :1] % 256], DIVISOR_SCALE)
    bias = np.int64(0)
    return normalise(x, pixel, mult=mult, bias=bias, shift=shift, zero_point=zero_point)  # type: ignore[arg-type]  # numbers broadcast


class Epsilon(Struct, frozen=True, kw_only=True):
    """A norm's epsilon in units of count**2 * variance of int8 steps, `VARIANCE_FRACTION` bits
    after the point, as mantissa * 2**shift.

    It is at least 1 and count / 16. So a row of equal values has a deviation, and one so large that
    the rounding of factor and offset, whose difference it divides, is lost: 65 / 2**shift, at most
    0.03 of a step at a scale of 2**-4. The smallest variance of another row is 256 * (count - 1),
    of which that is less than 1/2000.
    """

    mantissa: int
    shift: int

    @property
    def value(self) -> int:
        return self.mantissa << self.shift

    @classmethod
    def of(cls, epsilon: float, scale: float, count: int) -> "Epsilon":
        """epsilon: of the model; scale: of the int8 operand; count: of values.

        Raises ValueError from `EPSILON_LIMIT` on.
        """
        value = max(epsilon * count**2 / scale**2 * (1 << VARIANCE_FRACTION), count / 16, 1.0)
        if not value < EPSILON_LIMIT:
            raise ValueError(f"epsilon {epsilon} is too large for the scale {scale}")
        shift = max(math.frexp(value)[1] - EPSILON_BITS, 0)
        mantissa = round(math.ldexp(value, -shift))
        if mantissa >> EPSILON_BITS:  # it was rounded up
            return cls(mantissa=mantissa >> 1, shift=shift + 1)
        return cls(mantissa=mantissa, shift=shift)


def norm_scaling(count: int, total: np.ndarray, squares: np.ndarray, epsilon: int) -> Scaling:
    """Scaling of the values of a pixel to (x - mean) / deviation, in units of
    2**-NORMALISED_FRACTION: factor count*R, offset total*R, R = 1 / sqrt(count*squares - total**2
    + epsilon).

    count: of values; total, squares: their sum and sum of squares.
    """
    variance = ((count * squares - total**2) << VARIANCE_FRACTION) + epsilon
    return _scaling(count, total, variance)


def rms_scaling(count: int, zero_point: int, squares: np.ndarray, epsilon: int) -> Scaling:
    """Scaling to (x - zero_point) / root of the mean square. squares: sum of (x - zero_point)**2
    of a pixel.
    """
    variance = ((count * squares) << VARIANCE_FRACTION) + epsilon
    return _scaling(count, np.full_like(squares, count * zero_point), variance)


def _scaling(count: int, total: np.ndarray, variance: np.ndarray) -> Scaling:
    inverse, exponent = inverse_root(variance)
    factor, offset = count * inverse, total * inverse
    narrowed = np.maximum(_exponent(factor) + 1 - FACTOR_BITS, 0)
    shift = INVERSE_BITS + exponent - VARIANCE_FRACTION // 2 - NORMALISED_FRACTION - narrowed
    return Scaling(
        factor=rne_shift(factor, narrowed), offset=rne_shift(offset, narrowed), shift=shift
    )


def normalise(
    x: np.ndarray,
    pixel: Scaling,
    *,
    mult: np.ndarray,
    bias: np.ndarray,
    shift: np.ndarray,
    zero_point: int,
) -> np.ndarray:
    """`clamp(rne((u * mult + bias) / 2**shift) + zero_point)`, u the normalised value.

    mult (int16), bias (int32), shift: of every channel, the last axis.
    """
    u = rne_shift(np.asarray(x, np.int64) * pixel.factor - pixel.offset, pixel.shift)
    return clamp8(rne_shift(u * mult + bias, shift) + zero_point)


def channel_records(
    gain: np.ndarray, offset: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mult int16, bias int32, shift) of `normalise` for real gains and offsets of the channels.
    The mantissas are as long as both fit.
    """
    ratio = np.asarray(gain, np.float64) / scale
    constant = np.asarray(offset, np.float64) / scale
    of_ratio = 14 - np.floor(np.log2(np.maximum(np.abs(ratio), 2.0**-14)))
    of_constant = 30 - NORMALISED_FRACTION - np.floor(np.log2(np.maximum(np.abs(constant), 1.0)))
    fraction = np.clip(np.minimum(of_ratio, of_constant), 0, 30).astype(np.int64)
    mult = np.clip(np.rint(np.ldexp(ratio, fraction)), -(1 << 15), (1 << 15) - 1)
    bias = np.rint(np.ldexp(constant, fraction + NORMALISED_FRACTION))
    return mult.astype(np.int64), bias.astype(np.int64), fraction + NORMALISED_FRACTION
