"""Lanes without channels are not multiplied: holes of concatenated maps, zeros of permutations."""

from dataclasses import replace as fields
from itertools import product

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.tiling.candidates import choose_tile
from opu_fuse.tiling.chunks import output_ranges
from opu_fuse.tiling.tile import kernel_iterations
from tests.exact import assert_exact
from tests.networks.test_lanes import Sketch
from tests.schedule.single_layer import make_shape

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

HW = load_hw("opu-1024")


@st.composite
def runs(draw) -> tuple[tuple[int, int], ...]:
    """Ascending runs of lanes, from one lane to some words."""
    lengths = draw(st.lists(st.integers(1, 90), min_size=2, max_size=9))
    ends = np.cumsum(lengths)
    return tuple((int(a), int(b - a)) for a, b in zip(ends[::2], ends[1::2], strict=False))


@given(lanes=runs(), out=st.integers(1, 150), kernel=st.sampled_from([(1, 1), (3, 3)]))
def test_every_segment_with_a_channel_is_multiplied_once(lanes, out, kernel):
    shape = make_shape(HW, channels=sum(lanes[-1]), out_channels=out, kernel=kernel)
    shape = replace(shape, in_runs=lanes)
    tile, _ = choose_tile("layer", shape, HW)
    for found in output_ranges(shape, tile, HW):
        mode = HW.array.modes[found.mode]
        rows, cols = kernel_iterations(shape, mode, HW)
        done: list[tuple[int, ...]] = []
        for chunk in (w for f in found.features for w in f.weights):
            axes = (chunk.segment, chunk.segments), chunk.ky, chunk.kx, (chunk.group, chunk.groups)
            each = [*product(*(range(first, first + count) for first, count in axes))]
            assert len(each) == chunk.rows
            begun = {box[-1] for box in done}
            assert {box[-1] in begun for box in each} == {chunk.accumulate}
            done += each
        first = found.block * HW.word_channels // mode.oc
        last = -(-min((found.block + found.blocks) * HW.word_channels, out) // mode.oc)
        used = {lane // mode.ic for a, n in lanes for lane in range(a, a + n)}
        wanted = product(sorted(used), range(rows), range(cols), range(first, last))
        assert sorted(done) == sorted(wanted)


def rows_of(compiled, group: int) -> int:
    """Weight rows of a group."""
    (layer,) = compiled.plan.layers[group]
    return sum(w.rows for r in layer.ranges for f in r.features for w in f.weights)


def bottleneck(rng) -> ir.Model:
    """A block of YOLO: a sum that has the lanes of the second half, next to both halves."""
    net = Sketch(rng)
    x = net.conv("x", 5, 32)
    first, second = net.split(x, 16, 16)
    y = net.node("Add", second, net.conv(second, 16, 16))
    joined = net.concat(first, second, y)
    return net.model(net.conv(joined, 48, 64))


@pytest.mark.parametrize("machine", ["opu-1024", "opu-light", "opu-tiny"])
def test_a_reader_of_joined_maps_has_the_golden_models_bits(machine, rng):
    hw = load_hw(machine)
    assert_exact(compile_model(bottleneck(rng), hw), hw, rng, (None, 1))


def test_a_reader_of_joined_maps_takes_three_rows_for_three_pieces_of_16_lanes(rng):
    """Their lanes are 0 to 31 and 80 to 95: of six segments two are holes and one is none's."""
    compiled = compile_model(bottleneck(rng), HW)
    last = max(compiled.plan.layers)
    (layer,) = compiled.plan.layers[last]
    assert layer.in_pieces == ((0, 32), (80, 16))
    assert rows_of(compiled, last) == 3


def shuffled(rng, channels: int, *, zeros: int = 0):
    """Two halves of the channels, interleaved; zeros: channels after them."""
    net = Sketch(rng)
    x = net.conv("x", 5, channels)
    halves = np.arange(channels).reshape(2, -1).T.reshape(-1)
    y = net.node("Gather", x, net.constant(halves), axis=1)
    if zeros:
        pads = net.constant(np.array([0, 0, 0, 0, 0, zeros, 0, 0]))
        y = net.node("Add", net.node("Pad", y, pads), net.conv("x", 5, channels + zeros))
    return net.model(net.conv(y, channels + zeros, 9) if zeros else y)


def test_a_permutation_multiplies_few_rows_without_a_one(rng):
    """16 channels of a half fill every second of 32 lanes: 32 of 256 rows of 16 inputs have ones.
    Others are multiplied where they save an instruction.
    """
    compiled = compile_model(shuffled(rng, 512), HW)
    group = next(g.index for g in compiled.bundle.groups if g.ops[0].op == "shuffle")
    assert 32 <= rows_of(compiled, group) <= 64


@pytest.mark.parametrize("machine", ["opu-1024", "opu-light", "opu-tiny"])
@pytest.mark.parametrize(("channels", "zeros"), [(128, 0), (20, 0), (16, 160)])
def test_a_permutation_has_the_golden_models_bits(machine, channels, zeros, rng):
    hw = load_hw(machine)
    assert_exact(compile_model(shuffled(rng, channels, zeros=zeros), hw), hw, rng, (None, 1))


@pytest.mark.parametrize("rows", [4, 6])
def test_a_permutation_needs_no_more_weight_rows_than_a_bank_holds(rows, rng):
    """Sixteen lanes of the result come from eight segments of the input."""
    words = 2 * rows * HW.row_words
    few = fields(HW, buffers=fields(HW.buffers, weight=fields(HW.buffers.weight, words=words)))
    net = Sketch(rng)
    x = net.conv("x", 5, 512)
    order = np.arange(512).reshape(16, 32).T.reshape(-1)
    y = net.node("Gather", x, net.constant(order), axis=1)
    model = net.model(net.node("Add", x, y))
    assert_exact(compile_model(model, few), few, rng, (None, 1))
