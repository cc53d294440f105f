"""Tensors inside a post chain are put together from tiles, each at its place."""

import dataclasses

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.hw.isa.encoding import decode
from opu_fuse.sim.compare.tensor_sources import tensor_sources
from opu_fuse.sim.compare.writer import writer
from opu_fuse.sim.functional.capture import Capture, positions
from opu_fuse.sim.functional.machine import Executed
from opu_fuse.sim.functional.post import StageValues
from tests.bundle.sample import HW, sample_bundle
from tests.some import some

CHANNELS, ROWS, COLS, POST = 12, 5, 6, 5


def tiled(tile, **stage):
    """The sample with an interior tensor of 12x5x6, of which its post instruction makes a tile."""
    bundle = sample_bundle()
    sizes = {"channels": CHANNELS, "rows": ROWS, "cols": COLS, "pieces": ((0, CHANNELS),)}
    inside = dataclasses.replace(bundle.groups[0].stages[0], **sizes | stage)
    group = dataclasses.replace(bundle.groups[0], stages=(inside,))
    segment = dataclasses.replace(bundle.segments[0], tiles=(tile,))
    return dataclasses.replace(bundle, groups=(group,), segments=(segment, bundle.segments[1]))


def captured(bundle, made):
    program = decode(bundle.words)
    window = np.zeros(bundle.window_bytes, np.uint8)
    capture = Capture(bundle, HW, bundle.segments[0], program, window, ())
    capture(Executed(number=POST, instruction=program[POST], stages=(made,)))
    return capture


def values(ys, xs, blocks, *, pooled=False):
    size = blocks * len(ys) * len(xs) * HW.word_channels
    data = np.arange(1, size + 1).astype(np.int8)
    shape = (blocks, len(ys), len(xs), HW.word_channels)
    return StageValues(
        stage=0,
        pooled=pooled,
        ys=np.array(ys, int),
        xs=np.array(xs, int),
        values=data.reshape(shape),
    )


def test_a_tile_lands_at_its_rows_columns_and_channels():
    made = values([0, 2], [1, 2], 1)
    capture = captured(tiled((1, 3, 0, 0, 1)), made)
    expected = np.zeros((1, CHANNELS, ROWS, COLS), np.int8)
    expected[0, 8:12, 1:4:2, 4:6] = made.values[0].transpose(2, 0, 1)[:4]  # channels 12..15: none
    assert np.array_equal(capture.tensors["conv"][0], expected)
    assert np.array_equal(capture.masks["conv"], expected != 0)


def test_several_blocks_follow_each_other():
    made = values([0], [0], 2)
    found = captured(tiled((4, 5, 0, 0, 0)), made).tensors["conv"][0]
    assert np.array_equal(found[0, :, 4, 5], made.values.reshape(-1)[:CHANNELS])


def test_positions_outside_the_tensor_are_dropped():
    """A halo may reach beyond the last row or before the first."""
    made = values([0, 1, 2], [0], 1)
    found = captured(tiled((-1, 5, 0, 0, 0)), made).tensors["conv"][0]
    assert np.array_equal(
        found[0, 0, :, 5], [made.values[0, 1, 0, 0], made.values[0, 2, 0, 0], 0, 0, 0]
    )


def test_a_tile_of_absent_positions_shows_nothing():
    """Every window of a crafted program may lie in the padding."""
    capture = captured(tiled((0, 0, 0, 0, 0)), values([], [0, 1], 1))
    assert not capture.tensors["conv"][0].any()
    assert not capture.masks["conv"].any()


@pytest.mark.parametrize(
    ("stage_pooled", "made_pooled", "expected"),
    [(False, False, (3, 7)), (True, True, (13, 27)), (True, False, (10, 20))],
)
def test_tile_and_output_coordinates_are_kept_apart(stage_pooled, made_pooled, expected):
    """Tile row 3 of an instruction that strides is output row 0."""
    bundle = tiled((0, 0, 10, 20, 0), pooled=stage_pooled)
    made = values([3], [7], 1, pooled=made_pooled)
    ys, xs, _ = positions(bundle.groups[0].stages[0], made, (0, 0, 10, 20, 0))
    assert (ys[0], xs[0]) == expected


def test_the_writer_of_an_element_is_the_instruction_whose_tile_covers_it():
    """The sample's post instruction reads a 4x4 tile and writes 2x2 outputs of one block."""
    bundle = tiled((1, 2, 3, 4, 0))
    shape = (1, CHANNELS, ROWS, COLS)
    (inside,) = [p for p in tensor_sources(bundle) if p.name == "conv"]
    assert writer(bundle, inside, shape, (0, 7, 4, 5)) == POST
    assert writer(bundle, inside, shape, (0, 7, 0, 5)) == -1, "above the tile"
    assert writer(bundle, inside, shape, (0, 7, 4, 1)) == -1, "left of the tile"
    assert writer(bundle, inside, shape, (0, 8, 4, 5)) == -1, "another block"
    outputs = replace(inside, stage=dataclasses.replace(some(inside.stage), pooled=True))
    assert writer(bundle, outputs, shape, (0, 0, 3, 4)) == POST
    assert writer(bundle, outputs, shape, (0, 0, 2, 4)) == -1


def test_channels_with_holes_between_come_from_their_lanes():
    made = values([0], [0], 2)
    pieces = ((2, 4), (8, 8))  # lanes 2..5 of the first block, all of the second
    found = captured(tiled((4, 5, 0, 0, 0), pieces=pieces), made).tensors["conv"][0]
    assert np.array_equal(found[0, :, 4, 5], [3, 4, 5, 6, *range(9, 17)])


def test_pixels_of_a_word_are_neighbouring_columns():
    made = values([0], [0, 1], 1)
    packed = tiled((2, 1, 0, 0, 0), channels=3, pieces=((1, 3),), px=2)
    capture = captured(packed, made)
    words = made.values[0, 0].reshape(4, 4)  # columns of four lanes each
    assert np.array_equal(capture.tensors["conv"][0][0, :, 2, 1:5], words[:, 1:4].T)
    assert capture.masks["conv"].sum() == 3 * 4


def test_the_writer_of_a_packed_element_is_found():
    """The sample's post instruction makes 4 x 4 words; two pixels each are eight columns."""
    packed = tiled((1, 2, 3, 4, 1), cols=12, pieces=((9, CHANNELS),), px=2)
    shape = (1, CHANNELS, ROWS, 12)
    (inside,) = [p for p in tensor_sources(packed) if p.name == "conv"]
    assert writer(packed, inside, shape, (0, 0, 4, 9)) == POST
    assert writer(packed, inside, shape, (0, 0, 4, 10)) == -1, "right of the tile"
    assert writer(packed, inside, shape, (0, 7, 4, 9)) == -1, "channel 7 lies in block 2"
