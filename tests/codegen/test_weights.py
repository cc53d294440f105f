"""The bytes of weights and parameters, put in their places one by one in plain Python."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.codegen.weights import (
    pack_kernel_cols,
    pack_params,
    pack_table,
    pack_windows,
    spread_groups,
    to_lanes,
)
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.zoo.builder import Net

TINY = load_hw("opu-tiny")  # words of 8 channels
PADDED = replace(TINY, word_channels=24)  # words of 24 channels in 32 bytes


def parameter_words(numbers, lanes, word_bytes):
    """(bias, mult, shift) of every lane, None in holes -> bytes, lane l of a block at 8 * l."""
    blocks = -(-len(numbers) // lanes)
    plain = bytearray(blocks * lanes * 8)
    for lane, number in enumerate(numbers):
        if number is not None:
            bias, mult, shift = number
            plain[8 * lane : 8 * lane + 4] = bias.to_bytes(4, "little", signed=True)
            plain[8 * lane + 4 : 8 * lane + 6] = mult.to_bytes(2, "little")
            plain[8 * lane + 6 : 8 * lane + 7] = shift.to_bytes(1, "little", signed=True)
    words = [plain[i : i + lanes] for i in range(0, len(plain), lanes)]
    return b"".join(bytes(word).ljust(word_bytes, b"\0") for word in words)


def columns(numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Biases, multipliers and shifts of a list of (bias, mult, shift)."""
    bias, mult, shift = (np.array(column) for column in zip(*numbers, strict=True))
    return bias, mult, shift


NUMBER = st.tuples(
    st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**16 - 1), st.integers(-16, 47)
)


@pytest.mark.parametrize(("hw", "word_bytes"), [(TINY, 8), (PADDED, 32)])
@given(st.lists(NUMBER, min_size=1, max_size=50), st.integers(0, 9))
def test_a_lane_has_bias_multiplier_and_shift_in_eight_bytes(hw, word_bytes, numbers, hole):
    cut = len(numbers) // 2
    pieces = ((0, cut), (cut + hole, len(numbers) - cut)) if cut and hole else ((0, len(numbers)),)
    lanes = numbers if len(pieces) == 1 else [*numbers[:cut], *[None] * hole, *numbers[cut:]]
    packed = pack_params(*columns(numbers), pieces, hw)
    assert packed.tobytes() == parameter_words(lanes, hw.word_channels, word_bytes)


@pytest.mark.parametrize("px", [2, 4])
def test_pixels_that_share_a_word_have_the_channels_parameters_each(px):
    share = TINY.word_channels // px
    numbers = [(1000 * c - 1, 7 + c, c) for c in range(share - (px == 2))]
    lanes = [*numbers, *[None] * (share - len(numbers))] * px
    packed = pack_params(*columns(numbers), ((0, len(numbers)),), TINY, px)
    assert packed.tobytes() == parameter_words(lanes, 8, 8)


@pytest.mark.parametrize(("hw", "gap"), [(TINY, b""), (PADDED, bytes(8))])
def test_a_table_says_the_same_in_every_lane(hw, gap):
    entries = np.arange(-128, 128).astype(np.int8)[::-1]
    words = [(e.tobytes() * hw.word_channels) + gap for e in entries]
    assert pack_table(entries, hw).tobytes() == b"".join(words)


@pytest.mark.parametrize("axis", [0, 1])
def test_channels_stand_in_their_lanes_and_holes_are_zero(axis):
    data = np.arange(1, 13, dtype=np.int8).reshape(3, 4).swapaxes(0, axis)
    placed = to_lanes(data, ((1, 2), (5, 1)), axis).swapaxes(0, axis)
    zero = [0] * 4
    assert placed.tolist() == [zero, [1, 2, 3, 4], [5, 6, 7, 8], zero, zero, [9, 10, 11, 12]]
    assert to_lanes(data, ((0, 3),), axis) is data
    moved = to_lanes(data, ((2, 3),), axis).swapaxes(0, axis)
    assert moved.tolist() == [zero, zero, *data.swapaxes(0, axis).tolist()]


@pytest.mark.parametrize(("columns", "kw"), [(2, 3), (2, 4), (3, 7), (4, 2)])
def test_kernel_columns_lie_side_by_side(columns, kw):
    slot, shape = 4, (2, 3, 2, kw)
    dense = np.arange(1, np.prod(shape) + 1).reshape(shape)
    visits = -(-kw // columns)
    expected = np.zeros((2, columns * slot, 2, visits), int)
    for o, i, y, x in np.ndindex(*shape):
        expected[o, x % columns * slot + i, y, x // columns] = dense[o, i, y, x]
    np.testing.assert_array_equal(pack_kernel_cols(dense, columns, slot), expected)
    assert pack_kernel_cols(dense, 1, slot) is dense


@pytest.mark.parametrize(("groups", "first", "end"), [(1, 1, 4), (2, 0, 6), (3, 1, 5), (6, 4, 9)])
def test_a_grouped_filter_reads_the_channels_of_its_group_only(groups, first, end):
    shape = (6, 2, 1, 3)
    weight = np.arange(1, 37, dtype=np.int8).reshape(shape)
    expected = np.zeros((6, 2 * groups, 1, 3), int)
    for o, i, y, x in np.ndindex(*shape):
        expected[o, o // (6 // groups) * 2 + i, y, x] = weight[o, i, y, x]
    found = spread_groups(weight, groups, first, end)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, expected[first:end])


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_what_is_no_tap_of_a_channel_s_window_is_zero():
    """Ten channels, 2x5 kernels, cut into windows of at most 4x4."""
    hw = load_hw("opu-light")
    side, units, taps = hw.array.window_side, hw.array.units, hw.array.multipliers
    net = Net("windows", seed=3)
    x = net.input("x", (1, 10, 6, 7))
    model = net.finish(net.conv(x, "conv", out=10, kernel=(2, 5), groups=10))
    ((planned,),) = compile_model(model, hw).plan.layers.values()
    assert side == 4
    filters = np.arange(1, 101, dtype=np.int8).reshape(10, 1, 2, 5)
    rows = pack_windows(planned, filters, hw).view(np.int8).reshape(-1, units, taps)
    width = min(units, hw.word_channels)
    expected = np.zeros_like(rows)
    for chunk in (w for r in planned.ranges for f in r.features for w in f.weights):
        first = chunk.offset // (units * taps)
        for channel in range(10):
            part, lane = divmod(channel, width)
            if chunk.segment <= part < chunk.segment + chunk.rows:
                for y, x in product(range(chunk.ky[1]), range(chunk.kx[1])):
                    value = 1 + channel * 10 + (chunk.ky[0] + y) * 5 + chunk.kx[0] + x
                    expected[first + part - chunk.segment, lane, y * side + x] = value
    assert len(set(expected.ravel())) == 101
    assert np.array_equal(rows, expected)
