"""The integer arithmetic against an oracle of Python integers and fractions, which round halves to
even by themselves and never overflow.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opu_fuse import fixedpoint as fp

INT8 = st.integers(-128, 127)
INT32 = st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from((-(2**31), 2**31 - 1, 0, -1)))
SHIFT = st.integers(-16, 47)
MULT = st.one_of(st.integers(1, 2**16 - 1), st.sampled_from((1, 2**16 - 1)))
LIMITS = st.tuples(INT8, INT8).map(sorted)
RATIO = st.floats(2.0**-40, 2.0**15, allow_subnormal=False)
POWERS = [(2.0**-k, k) for k in range(-16, 48)]


def rounded(numerator: int, shift: int) -> int:
    return round(Fraction(numerator) / Fraction(2) ** shift)


def clamped(value: int, lo: int = -128, hi: int = 127) -> int:
    return min(max(value, lo), hi)


def fits(value: int, shift: int) -> bool:
    """Whether a value is one that the machine's 63 bits hold after a left shift."""
    return abs(value) << max(-shift, 0) < 2**62


def array(value: int) -> np.ndarray:
    return np.array([value], np.int64)


@given(st.integers(-(2**46), 2**46), SHIFT)
def test_a_shift_rounds_halves_to_even(x, shift):
    assert fp.rne_shift(array(x), shift).tolist() == [rounded(x, shift)]


@pytest.mark.parametrize("shift", range(48, 64))
def test_shifts_beyond_all_values_give_zero(shift):
    """Registers hold shifts up to 63."""
    assert fp.rne_shift(np.array([5, -5, 1, -1, 0, 2**46, -(2**46)]), shift).tolist() == [0] * 7


@pytest.mark.parametrize("shift", range(1, 48))
def test_every_shift_sends_ties_to_the_even_neighbour(shift):
    half = 2 ** (shift - 1)
    ties = [odd * half for odd in (-7, -5, -3, -1, 1, 3, 5, 7)]
    assert fp.rne_shift(np.array(ties), shift).tolist() == [-4, -2, -2, 0, 0, 2, 2, 4]
    beside = fp.rne_shift(np.array([t + d for t in ties for d in (-1, 1)]), shift)
    assert beside.tolist() == [rounded(t + d, shift) for t in ties for d in (-1, 1)]


def test_shifts_are_taken_element_by_element():
    assert fp.rne_shift(np.array([6, 6, 6, 6]), np.array([-1, 0, 1, 2])).tolist() == [12, 6, 3, 2]


def test_narrowing_saturates_and_gives_int8():
    narrow = fp.clamp8(np.array([-(2**62), -129, -128, 0, 127, 128, 2**62]))
    assert narrow.dtype == np.int8
    assert narrow.tolist() == [-128, -128, -128, 0, 127, 127, 127]
    assert fp.clamp8(np.array([-10, 3, 10]), -5, 5).tolist() == [-5, 3, 5]


@given(INT32, MULT, SHIFT, INT8)
def test_requantising_is_the_rounded_quotient_about_the_zero_point(acc, mult, shift, zero):
    if fits(acc * mult, shift):
        expected = clamped(rounded(acc * mult, shift) + zero)
        assert fp.requantize(array(acc), mult, shift, zero).tolist() == [expected]


def test_requantising_holds_the_largest_product_and_takes_parameters_per_channel():
    acc = np.array([[-(2**31), 2**31 - 1], [5, 7]], np.int32)
    mult, shift = np.array([[65535], [3]]), np.array([[40], [1]])
    expected = [
        [clamped(rounded(a * m, s) - 4) for a in row]
        for row, m, s in zip(acc.tolist(), (65535, 3), (40, 1), strict=True)
    ]
    assert fp.requantize(acc, mult, shift, -4).tolist() == expected
    assert fp.requantize(acc, 65535, 31, 1).tolist() == [[-128, 127], [1, 1]]


@given(INT8, INT8, st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 30), INT8, LIMITS)
def test_the_comparator_has_one_slope_on_each_side_of_the_zero_point(
    x, x_zero, pos, neg, shift, y_zero, limits
):
    lo, hi = limits
    slope = pos if x >= x_zero else neg
    expected = clamped(rounded((x - x_zero) * slope, shift) + y_zero, lo, hi)
    result = fp.activate(
        np.array([x], np.int8),
        x_zero=x_zero, pos=pos, neg=neg, shift=shift, y_zero=y_zero, lo=lo, hi=hi,
    )  # fmt: skip
    assert result.tolist() == [expected]


@given(INT8, INT8, MULT, MULT, st.integers(0, 24), INT8, INT8, INT8)
def test_a_residual_sum_rounds_once(a, b, a_mult, b_mult, shift, a_zero, b_zero, y_zero):
    total = (a - a_zero) * a_mult + (b - b_zero) * b_mult
    result = fp.add_residual(
        np.array([a], np.int8), np.array([b], np.int8),
        a_mult=a_mult, b_mult=b_mult, shift=shift, a_zero=a_zero, b_zero=b_zero, y_zero=y_zero,
    )  # fmt: skip
    assert result.tolist() == [clamped(rounded(total, shift) + y_zero)]


@given(INT8, INT8, MULT, st.integers(0, 40), INT8, INT8, INT8)
def test_a_residual_product_rounds_once(a, b, mult, shift, a_zero, b_zero, y_zero):
    product = (a - a_zero) * (b - b_zero) * mult
    result = fp.multiply_residual(
        np.array([a], np.int8), np.array([b], np.int8),
        mult=mult, shift=shift, a_zero=a_zero, b_zero=b_zero, y_zero=y_zero,
    )  # fmt: skip
    assert result.tolist() == [clamped(rounded(product, shift) + y_zero)]


@given(INT8, st.integers(-(2**15), 2**15 - 1), INT32, st.integers(0, 31), INT8, LIMITS)
def test_an_affine_map_rounds_once_and_keeps_its_limits(x, mult, bias, shift, y_zero, limits):
    lo, hi = limits
    numbers = {"mult": mult, "bias": bias, "shift": shift, "y_zero": y_zero}
    exact = rounded(x * mult + bias, shift) + y_zero
    data = np.array([x], np.int8)
    assert fp.channel_affine(data, **numbers, lo=lo, hi=hi).tolist() == [clamped(exact, lo, hi)]
    assert fp.channel_affine(data, **numbers).tolist() == [clamped(exact)]


@given(st.integers(-255 * 2**16, 255 * 2**16), MULT, st.integers(0, 47), INT8)
def test_an_average_is_the_rounded_quotient_about_the_zero_point(total, mult, shift, y_zero):
    expected = clamped(rounded(total * mult, shift) + y_zero)
    assert fp.average(array(total), mult=mult, shift=shift, y_zero=y_zero).tolist() == [expected]


def nearest(ratio: float, bits: int) -> Fraction:
    """The least error of any `mult / 2**shift` with 0 <= mult < 2**bits and 0 <= shift <= 47."""
    exact = Fraction(ratio)
    top = 2**bits - 1
    return min(
        abs(exact - Fraction(min(round(exact * 2**shift), top), 2**shift)) for shift in range(48)
    )


def taken(ratio: float, bits: int) -> tuple[int, int]:
    found = fp.multiplier(ratio, bits)
    assert type(found.mult) is type(found.shift) is int
    return found.mult, found.shift


@given(RATIO, st.integers(1, 24))
def test_no_multiplier_is_nearer_and_none_is_shorter(ratio, bits):
    if Fraction(ratio) > 2**bits - 1:  # the largest, and what rounds to more, are tested below
        return
    mult, shift = taken(ratio, bits)
    assert 0 <= mult < 2**bits
    assert 0 <= shift <= 47
    assert abs(Fraction(ratio) - Fraction(mult, 2**shift)) == nearest(ratio, bits)
    assert shift == 0 or mult % 2 == 1 or mult == 0, "trailing zeros are dropped"


@pytest.mark.parametrize(("ratio", "bits", "expected"), [
    (0.75 + 2.0**-17, 16, (3, 2)),  # a tie between 49152 and 49153: the even one
    (0.75 + 3 * 2.0**-17, 16, (24577, 15)),  # a tie between 49153 and 49154
    (0.75 + 2.0**-16 * 0.75, 16, (49153, 16)),  # above the middle
    (65535.0, 16, (65535, 0)),
    (1 - 2.0**-16, 16, (65535, 16)),
    (1 - 2.0**-18, 16, (1, 0)),  # rounds up to 2**bits: one bit less, one shift less
    (2 - 2.0**-18, 16, (2, 0)),
    (0.3, 1, (1, 2)),
    (3.0, 2, (3, 0)),
    (4096.0, 16, (4096, 0)),
    (1.5 * 2.0**-47, 16, (1, 46)),  # at the largest shift there is nothing finer: a tie
    (2.0**-47, 16, (1, 47)),
    (2.0**-48, 16, (0, 47)),  # a tie between 0 and the smallest
    (2.0**-60, 16, (0, 47)),
])  # fmt: skip
def test_the_multipliers_limits(ratio, bits, expected):
    assert taken(ratio, bits) == expected


@pytest.mark.parametrize(("ratio", "shift"), POWERS)
def test_powers_of_two_are_pure_shifts(ratio, shift):
    assert taken(ratio, 0) == (1, shift)
    assert taken(ratio, 24) == ((1, shift) if shift >= 0 else (2**-shift, 0))
    assert fp.multiplier(ratio, 0).ratio == ratio


@pytest.mark.parametrize(("ratio", "bits", "message"), [
    (0.0, 16, "ratio 0.0 is not a positive finite number"),
    (-1.0, 16, "ratio -1.0 is not a positive finite number"),
    (math.inf, 16, "ratio inf is not a positive finite number"),
    (math.nan, 16, "ratio nan is not a positive finite number"),
    (0.75, 0, "ratio 0.75 is not a power of two"),
    (2.0**17, 0, "ratio 131072.0 needs shift -17, outside -16..47"),
    (2.0**-48, 0, "needs shift 48, outside -16..47"),
    (65536.0, 16, "ratio 65536.0 exceeds the largest multiplier 65535"),
    (65535.75, 16, "ratio 65535.75 exceeds the largest multiplier 65535"),
    (1e30, 16, "exceeds the largest multiplier 65535"),
])  # fmt: skip
def test_ratios_that_cannot_be_held_are_named(ratio, bits, message):
    with pytest.raises(ValueError, match=message):
        fp.multiplier(ratio, bits)


@given(st.lists(RATIO, min_size=1, max_size=3).map(tuple), st.integers(0, 20))
def test_shared_multipliers_are_the_nearest_over_their_shift(ratios, bits):
    width = max(bits, 16)
    if max(ratios) > 2**width - 1:
        return
    mults, shift = fp.shared_multipliers(ratios, bits)
    assert 0 <= shift <= 47
    assert all(0 <= m < 2**width for m in mults)
    assert all(type(m) is int for m in (*mults, shift))
    assert list(mults) == [round(Fraction(r) * 2**shift) for r in ratios]
    exact = all(Fraction(m, 2**shift) == Fraction(r) for m, r in zip(mults, ratios, strict=True))
    room = shift < 47 and Fraction(max(ratios)) * 2 ** (shift + 1) <= 2**width - 1
    assert exact or not room, "a finer shift would be nearer"


@pytest.mark.parametrize(("ratios", "bits", "expected"), [
    ((1.0, 1.0), 16, ((1, 1), 0)),
    ((1.0, 0.125), 16, ((8, 1), 3)),
    ((0.125, 1.0), 0, ((1, 8), 3)),
    ((1.0, 2.0**-15), 8, ((2**15, 1), 15)),
    ((1.0, 2.0**-16), 16, ((2**15, 0), 15)),  # half a step of the finest shift: a tie
    ((1.0, 3 * 2.0**-16), 16, ((2**15, 2), 15)),  # the other tie
    ((1.0, 2.0**-16), 17, ((2**16, 1), 16)),
    ((65535.0, 0.5), 16, ((65535, 0), 0)),
    ((2.0**-47, 2.0**-48), 16, ((1, 0), 47)),
    ((32767.5, 1.0), 16, ((65535, 2), 1)),  # the largest multiplier itself
])  # fmt: skip
def test_ratios_over_one_shift(ratios, bits, expected):
    assert fp.shared_multipliers(ratios, bits) == expected


def test_a_ratio_that_no_shift_holds_is_refused_with_its_companion():
    with pytest.raises(ValueError, match=r"ratio 65536\.0 exceeds the largest multiplier 65535"):
        fp.shared_multipliers((1.0, 65536.0), 8)


@pytest.mark.parametrize("terms", [1, 1023, 1024, 1025, 4608])
@pytest.mark.parametrize("odd", [0, 1])
def test_a_matrix_product_is_exact_at_any_length(terms, odd):
    """Sums at the limit of float32's integers, off by one: float32 alone would round the odd."""
    a = np.full((1, terms), -128, np.int8)
    b = np.full((terms, 2), -128, np.int8)
    b[0, 1] = -1
    a[0, 0] -= odd * -1
    result = fp.exact_matmul(a, b, terms)
    assert result.dtype == np.int64
    rows = [sum(int(x) * int(y) for x, y in zip(a[0], column, strict=True)) for column in b.T]
    assert result.tolist() == [rows]
