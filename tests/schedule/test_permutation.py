"""Stores that permute pixels, held against numpy pixel by pixel."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opu_fuse.layout.permutation import (
    MOST_STEP,
    Permutation,
    permutation,
    rolled,
    with_strided_reads,
)

WINDOWS = ((8, 7, 8, 7), (0, 2, 1, 3))
PATCHES = ((16, 2, 16, 2), (1, 3, 0, 2))


def targets(extents, order, images=1):
    """Where each pixel goes, images one after the other."""
    pixels = math.prod(extents)
    source = np.arange(pixels).reshape(extents).transpose(order).reshape(-1)
    one = np.empty(pixels, int)
    one[source] = np.arange(pixels)
    return np.concatenate([image * pixels + one for image in range(images)])


def stored(found: Permutation, rect):
    """Where the stores of a rectangle put its words, in the order of the words."""
    words = np.full(rect[1] * rect[3], -1)
    for source, target, nest in found.runs(rect):
        *_, innermost = nest
        assert len(nest) <= 3
        assert innermost.stride <= MOST_STEP
        at = np.array([target])
        for count, stride in nest:
            at = np.add.outer(at, np.arange(count) * stride).reshape(-1)
        words[source : source + at.size] = at
    return words


@st.composite
def cases(draw):
    extents = tuple(draw(st.lists(st.integers(2, 4), min_size=2, max_size=5)))
    order = tuple(draw(st.permutations(range(len(extents)))))
    pixels, images = math.prod(extents), draw(st.integers(1, 2))
    cols = draw(st.sampled_from([n for n in range(1, pixels + 1) if pixels % n == 0]))
    rows = pixels // cols * images
    row, col = draw(st.integers(0, rows - 1)), draw(st.integers(0, cols - 1))
    rect = row, draw(st.integers(1, rows - row)), col, draw(st.integers(1, cols - col))
    return extents, order, images, cols, rect


@given(cases())
def test_every_pixel_of_a_rectangle_is_stored_where_numpy_puts_it(case):
    extents, order, images, cols, (row, rows, col, width) = case
    found = permutation(extents, order, cols)
    if found is None:
        assert cols not in [math.prod(extents[axis:]) for axis in range(len(extents))]
        return
    where = targets(extents, order, images).reshape(-1, cols)
    expected = where[row : row + rows, col : col + width].reshape(-1)
    np.testing.assert_array_equal(stored(found, (row, rows, col, width)), expected)
    strided = with_strided_reads(found, 16)
    count = strided.strided.size if strided.strided else 1
    parts = where[row : row + rows].reshape(rows, cols // count, count)
    expected = np.moveaxis(parts, -1, 0).reshape(-1)
    np.testing.assert_array_equal(stored(strided, (row, rows, 0, cols)), expected)


@given(cases(), st.tuples(*[st.integers(0, 5)] * 4), st.data())
def test_rolls_before_and_after_are_those_of_numpy(case, by, data):
    extents, order, images, cols, (row, rows, col, width) = case
    found = permutation(extents, order, cols)
    if found is None:
        return
    pixels = math.prod(extents)
    result_cols = data.draw(st.sampled_from([n for n in range(1, pixels + 1) if pixels % n == 0]))
    found = rolled(found, by[:2], by[2:], result_cols)
    source = np.arange(pixels).reshape(-1, cols)
    moved = np.roll(source, (-by[0], -by[1]), (0, 1)).reshape(extents).transpose(order)
    result = np.roll(moved.reshape(-1, result_cols), (-by[2], -by[3]), (0, 1)).reshape(-1)
    one = np.empty(pixels, int)
    one[result] = np.arange(pixels)
    where = np.concatenate([image * pixels + one for image in range(images)]).reshape(-1, cols)
    expected = where[row : row + rows, col : col + width].reshape(-1)
    np.testing.assert_array_equal(stored(found, (row, rows, col, width)), expected)
    assert with_strided_reads(found, 16) == found or by == (0, 0, 0, 0)
    assert found.complete(pixels - 1) == 0 or by == (0, 0, 0, 0)


def test_a_row_of_shifted_windows_is_three_instructions_for_each_of_its_rows():
    found = permutation(*WINDOWS, 56)
    assert found is not None
    found = rolled(found, (3, 3), (0, 0), 49)
    nests = [run.nest for run in found.runs((3, 7, 0, 56))]
    assert nests == [((3, 1),), ((7, 49), (7, 1)), ((4, 1),)] * 7


@given(cases(), st.integers(0, 600))
def test_what_is_called_complete_has_all_its_pixels(case, pixels):
    extents, order, images, cols, _ = case
    found = permutation(extents, order, cols)
    if found is not None:
        where = targets(extents, order, images)
        done = found.complete(min(pixels, where.size))
        assert set(range(done)) <= set(where[:pixels].tolist())


def test_a_row_of_windows_is_one_instruction():
    found = permutation(*WINDOWS, 56)
    assert found is not None
    (run,) = found.runs((7, 7, 0, 56))
    assert run.nest == ((7, 7), (8, 49), (7, 1))
    back = permutation((8, 8, 7, 7), (0, 2, 1, 3), 49)
    assert back is not None
    assert [run.nest for run in back.runs((8, 8, 0, 49))] == [((8, 7), (7, 56), (7, 1))]


def test_patches_are_read_with_a_stride_so_that_their_rows_are_whole_runs():
    found = permutation(*PATCHES, 32)
    assert found is not None
    assert found.transfers((0, 8, 0, 32)).runs == 8 * 32
    assert with_strided_reads(found, 16).transfers((0, 8, 0, 32)) == (2, 16, 256)


def test_axes_that_do_not_end_with_a_row_are_no_permutation_of_a_machine():
    assert permutation((4, 9), (1, 0), 6) is None
    assert permutation((4, 9), (1, 0), 18) is not None
