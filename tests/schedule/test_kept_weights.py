"""Weights that slightly exceed their buffer: most stay on chip from tile to tile."""

from collections import Counter

import pytest

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.tile_schedule import constants
from opu_fuse.tiling.kept_weights import kept_chunks
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.schedule.test_fused_stacks import slow

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

HW = slow(load_hw("opu-1024"), 16)
WORDS = HW.buffers.weight.words


def mlp():
    """Its second layer has 144 rows of weights, of which a buffer holds 128."""
    net = Net("mlp", seed=3)
    x = net.input("x", (1, 192, 14, 14))
    y = net.relu(net.conv(x, "first", out=768, kernel=1), "relu")
    return net.finish(net.add(net.conv(y, "second", out=192, kernel=1), x, "sum"))


def compiled():
    return compile_model(mlp(), HW, Options(cascades="never"))


def weight_loads(found):
    """Loads of weights by group."""
    return Counter(
        group
        for program in found.plan.segments
        if isinstance(program, MachineProgram)
        for x, group in zip(program.instructions, program.groups, strict=True)
        if x.engine is Engine.LOAD and x.opcode == "weight"
    )


def test_few_chunks_are_loaded_for_each_tile_and_the_layer_is_faster(monkeypatch, rng):
    found = compiled()
    (layer,), loads = found.plan.layers[1], weight_loads(found)[1]
    chunks, tiles = len([*layer.weight_chunks]), len({tile.rect for tile in layer.tiles})
    assert tiles > 1
    assert chunks < loads <= chunks + chunks * (tiles - 1) // 3
    assert_exact(found, HW, rng, (None, 1, 2))
    monkeypatch.setattr(constants, "kept_chunks", lambda *_: [])
    cycles = [run_cycle(x.bundle, HW).counters["cycles"] for x in (compiled(), found)]
    assert cycles[1] < 0.99 * cycles[0]


@pytest.mark.parametrize(
    ("count", "words", "loaded"),
    [
        (8, WORDS // 8, []),  # all fit
        (9, WORDS // 8, [2, 6]),
        (12, WORDS // 8, [1, 3, 6, 8, 10]),
        (13, WORDS // 8, [*range(13)]),  # too many
        (5, WORDS // 4, [1, 3]),
        (3, WORDS // 2, [*range(3)]),  # one place for the others would be all
        (3, WORDS // 2 - 1, [*range(3)]),
    ],
)
def test_those_that_are_loaded_are_spread_over_all(count, words, loaded):
    kept = kept_chunks([words] * count, HW.buffers.weight)
    every = count * words > WORDS
    assert [n for n in range(count) if every and n not in kept] == loaded


def test_a_memory_as_fast_as_its_bus_loads_what_it_did(monkeypatch):
    hw = load_hw("opu-1024")
    before = compile_model(mlp(), hw).bundle.groups
    monkeypatch.setattr(constants, "kept_chunks", lambda *_: [])
    assert compile_model(mlp(), hw).bundle.groups == before
