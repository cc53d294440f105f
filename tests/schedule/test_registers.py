"""Geometry in registers, counted out position by position."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.layout.shape import Side, Window
from opu_fuse.schedule.registers import TilePart, sub_rectangle, tile_parts, transfer_shape
from opu_fuse.tiling.tile import PrePoolRect, Rect
from tests.schedule.single_layer import lowered, make_shape

SMALL = st.integers(1, 5)


def bytes_of(run, rows, row_pitch, blocks, block_pitch):
    """Every byte of a transfer, in its order."""
    return [
        block * block_pitch + row * row_pitch + byte
        for block in range(blocks)
        for row in range(rows)
        for byte in range(run)
    ]


@given(SMALL, SMALL, st.integers(0, 2), SMALL, st.integers(0, 2))
def test_joined_runs_move_the_same_bytes_in_the_same_order(run, rows, gap, blocks, block_gap):
    row_pitch = run + gap
    block_pitch = rows * row_pitch + block_gap
    shape = (run, rows, row_pitch, blocks, block_pitch)
    joined = transfer_shape(*shape)
    assert bytes_of(**joined) == bytes_of(*shape)
    assert bytes_of(**transfer_shape(*shape, joins=False)) == bytes_of(*shape)
    runs = joined["rows"] * joined["blocks"]
    assert runs == (blocks if gap == 0 or rows == 1 else rows * blocks) or runs == 1
    if gap == block_gap == 0:
        assert runs == 1


@pytest.mark.parametrize(("run", "rows", "blocks", "expected"), [
    (0x5555, 3, 1, (0xFFFF, 1, 1)),
    (0x8000, 2, 1, (0x8000, 2, 1)),
    (0x5555, 1, 3, (0xFFFF, 1, 1)),
    (0x8000, 1, 2, (0x8000, 1, 2)),
    (0x1000, 4, 4, (0x4000, 1, 4)),
    (16, 2, 1, (32, 1, 1)),
    (16, 1, 2, (32, 1, 1)),
])  # fmt: skip
def test_runs_are_joined_as_far_as_16_bits_count(run, rows, blocks, expected):
    found = transfer_shape(run, rows, run, blocks, run * rows)
    assert (found["run"], found["rows"], found["blocks"]) == expected


def test_transfers_that_may_not_be_joined_stay_as_they_are():
    found = transfer_shape(4, 2, 4, 3, 8, joins=False)
    assert found == {"run": 4, "rows": 2, "row_pitch": 4, "blocks": 3, "block_pitch": 8}


def layer(window, by_count=None, sides=()):
    """A copy of 9 x 7 pixels with a pool, 8 rows after it, and a bank for each residual."""
    copy = make_shape(load_hw("opu-tiny"), array=False, rows=9, cols=7)
    shape = replace(copy, pool=window, out_rows=8, sides=sides)
    found = lowered(shape, order=(), post={}, pad_value=0, by_count=by_count or {})
    return replace(found, residual_units=tuple(range(len(sides))))


@pytest.mark.parametrize("window", [
    Window(kernel=(3, 3), pads=(1, 1, 1, 1)),
    Window(kernel=(4, 3), strides=(2, 2), pads=(2, 0, 1, 1)),
    Window(kernel=(2, 5), strides=(1, 3), pads=(0, 4, 0, 2)),
])  # fmt: skip
@pytest.mark.parametrize("rect", [(3, 2, 1, 2), (0, 4, 0, 3), (1, 3, 0, 2), (0, 1, 1, 1)])
def test_every_average_divides_by_the_positions_inside(window, rect):
    row, rows, col, cols = rect

    def inside(axis, at, extent):
        begin = at * window.strides[axis] - window.pads[axis]
        return sum(0 <= begin + k < extent for k in range(window.kernel[axis]))

    by_count = {(y, x): {"pool_mult": 10 * y + x} for y in range(1, 6) for x in range(1, 6)}
    seen, parts = {}, [*tile_parts(layer(window, by_count), Rect(*rect))]
    for part in parts:
        for i in range(part.y, part.y + part.rows):
            for j in range(part.x, part.x + part.cols):
                assert (i, j) not in seen, "in two parts"
                seen[i, j] = part.average["pool_mult"]
    ys = [inside(0, row + i, 9) for i in range(rows)]
    xs = [inside(1, col + j, 7) for j in range(cols)]
    assert seen == {(i, j): 10 * y + x for i, y in enumerate(ys) for j, x in enumerate(xs)}
    assert len(parts) == len([*groupby(ys)]) * len([*groupby(xs)]), "as few as can be"


def test_a_tile_with_one_divisor_is_one_part():
    whole = layer(Window(kernel=(3, 3)))
    assert [*tile_parts(whole, Rect(2, 4, 1, 3))] == [TilePart(rows=4, cols=3)]
    third = [*tile_parts(whole, Rect(2 * 8 + 2, 4, 1, 3))]
    assert third == [TilePart(rows=4, cols=3)], "of the third image of a batch"


def test_windows_of_several_images_are_parts_and_where_there_are_none_all_is_one():
    windows = layer(
        Window(kernel=(2, 2), pads=(1, 1, 0, 0)), {(y, x): {} for y in (1, 2) for x in (1, 2)}
    )
    found = [(p.image, p.y, p.rows) for p in tile_parts(windows, Rect(8, 16, 1, 3))]
    assert found == [(0, 0, 1), (0, 1, 7), (1, 0, 1), (1, 1, 7)]
    plain = layer(None)
    assert [*tile_parts(plain, Rect(8, 16, 1, 3))] == [TilePart(rows=16, cols=3)]


FINAL, GATE, MID = Side(), Side(broadcast=True), Side(before_pool=True)


@pytest.mark.parametrize(("sides", "addresses"), [
    ((FINAL,), {"res": (500 + 3 * 7 + 2, 8 * 7)}), ((GATE,), {}), ((MID,), {"res": (500, 9 * 6)}),
    ((), {}),
    ((MID, FINAL, FINAL), {
        "res": (500, 9 * 6), "res@1": (600 + 3 * 7 + 2, 8 * 7), "res@2": (700 + 3 * 7 + 2, 8 * 7),
    }),
])  # fmt: skip
@pytest.mark.parametrize("image", [0, 2])
def test_a_part_begins_at_its_window_and_its_residuals(sides, addresses, image):
    """addresses: of the first image, and what lies between images: rows behind or before a pool."""
    window = Window(kernel=(4, 5), strides=(2, 3))
    common = {"res": 500, "res@1": 600, "res@2": 700, "in_rows": 9, "in_cols": 6}
    part = TilePart(image=image, y=3, rows=1, x=2, cols=1)
    found = sub_rectangle(
        layer(window, {}, sides), common, PrePoolRect(0, 0, -1, 0, 0, 11), part, 7
    )
    registers = {"stride_y": 2, "stride_x": 3, "win_rows": 4, "win_cols": 5}
    own = {name: first + image * apart for name, (first, apart) in addresses.items()}
    assert found == {**registers, "origin_y": 5, "origin_x": 17, **own}
