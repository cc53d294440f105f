"""Neighbouring pixels joined for a norm: the array skips the weight rows that are zero."""

from functools import cache

import onnx
import pytest

import opu_fuse
from benchmarks.attention_builder import Builder
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.cycle.run import run_cycle
from tests.exact import assert_exact
from tests.hw.norm_machine import norm_machine

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
MACHINES = {"norms": norm_machine(), "opu-1024a": load_hw("opu-1024a")}


def merging(channels: int, size: int, *, tokens: bool = False) -> onnx.ModelProto:
    """Patch merging of Swin: four pixels of a square become one, which is normalised.

    tokens: the pixels come as tokens with a residual sum, and rows are cut once for both columns.
    """
    b = Builder()
    x = b.conv(b.input(1, 3, size, size), channels, 1, 1)
    if tokens:
        x = b.transpose(b.reshape(x, 1, channels, size * size), 0, 2, 1)
        x = b.op("Add", b.linear(b.layer_norm(x), channels), x)
        x = b.reshape(x, 1, size, size, channels)
    else:
        x = b.transpose(x, 0, 2, 3, 1)
    cut = cache(lambda i: b.slice(x, 1, i, 1 << 30, 2))
    rows = cut if tokens else cut.__wrapped__
    x = b.concat(3, *(b.slice(rows(i), 2, j, 1 << 30, 2) for j in (0, 1) for i in (0, 1)))
    if tokens:
        x = b.reshape(x, 1, size * size // 4, 4 * channels)
    return b.model(b.linear(b.layer_norm(x), 2 * channels, bias=False))


@pytest.mark.parametrize(("channels", "machine"), [
    *((channels, "norms") for channels in (8, 12, 20)),
    *((channels, "opu-1024a") for channels in (12, 96, 144)),
])  # fmt: skip
def test_joined_pixels_are_the_golden_models_in_any_order(channels, machine, rng):
    found = compile_model(merging(channels, 12), MACHINES[machine])
    assert not found.partition.host
    assert_exact(found, MACHINES[machine], rng, shuffles=(None, 1, 2))


def test_joined_tokens_leave_nothing_to_the_host(rng):
    found = compile_model(merging(96, 12, tokens=True), MACHINES["opu-1024a"])
    assert not [op for part in found.bundle.segments for op in getattr(part, "ops", ())]
    assert_exact(found, MACHINES["opu-1024a"], rng)


@pytest.mark.parametrize("order", [(0, 1, 3, 4, 2, 5), (0, 1, 3, 2, 4, 5)])
@pytest.mark.parametrize("tokens", [False, True])
def test_squares_of_a_channels_last_map_are_joined_on_the_machine(order, tokens, rng):
    b = Builder()
    x = b.conv(b.input(1, 3, 12, 8), 96, 1, 1)
    x = b.reshape(b.transpose(x, 0, 2, 3, 1), 1, 6, 2, 4, 2, 96)
    shape = (1, 24, 384) if tokens else (1, 6, 4, 384)
    x = b.reshape(b.transpose(x, *order), *shape)
    found = compile_model(b.model(b.linear(b.layer_norm(x), 64)), MACHINES["opu-1024a"])
    assert not [op for part in found.bundle.segments for op in getattr(part, "ops", ())]
    assert_exact(found, MACHINES["opu-1024a"], rng)


def test_a_group_of_output_channels_is_multiplied_by_one_weight_row():
    hw = MACHINES["opu-1024a"]
    program = opu_fuse.compile(merging(96, 28), hw)
    (group,) = (g for g in program.bundle.groups if "layer_norm" in [op.op for op in g.ops])
    pixels, words = 14 * 14, 6
    dense = 4 * 2 * (4 * 96 // 16) * pixels  # kernel positions, segments, output groups
    assert group.cycles < dense / 6 < 2 * 2 * 2 * words * pixels  # post: two passes of two beats
    cycles = run_cycle(program.bundle, hw).counters["cycles"]
    assert cycles == pytest.approx(sum(g.cycles for g in program.bundle.groups), rel=0.1)
