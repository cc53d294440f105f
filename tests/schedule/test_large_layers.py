"""Layers far larger than any network's: time and memory grow with the layer, not its square."""

import tracemalloc
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from opu_fuse.codegen.constants import pack_constants
from opu_fuse.errors import ModelError
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import (
    Compilation,
    Options,
    compile_model,
    compile_prepared,
    fuse_and_tile,
)
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.sim.engine import run
from opu_fuse.tiling import candidates
from opu_fuse.tiling.candidates import _cuts
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.frontend.conftest import parse
from tests.tiers import by_night

HW = load_hw("opu-tiny")

# (input channels, output channels), kernel, (rows, columns) of the input; depthwise where there is
# one input channel a group. The window of one pixel takes most of a feature bank, or more.
LARGE_WINDOWS = {
    "depthwise 31x31": ((8, 8), (31, 31), (14, 14), {"group": 8}),
    "depthwise 31x31, odd channels": ((13, 13), (31, 31), (14, 15), {"group": 13}),
    "depthwise 31x31, stride 2": ((8, 8), (31, 31), (28, 28), {"group": 8, "strides": [2, 2]}),
    "depthwise 1x127": ((8, 8), (1, 127), (14, 64), {"group": 8}),
    "depthwise 127x1": ((8, 8), (127, 1), (64, 14), {"group": 8}),
    "depthwise 13x13": ((16, 16), (13, 13), (28, 28), {"group": 16}),
    "dense 63x63": ((3, 8), (63, 63), (14, 14), {}),
    "dense 63x63, no padding": ((4, 8), (63, 63), (63, 63), {"pads": [0, 0, 0, 0]}),
    "dense 1x255": ((8, 8), (1, 255), (1, 512), {}),
    "depthwise 21x21": ((16, 16), (21, 21), (56, 56), {"group": 16}),
    "depthwise 21x21, stride 3": ((16, 16), (21, 21), (96, 96), {"group": 16, "strides": [3, 3]}),
    "depthwise 21x21, dilation 2": (
        (16, 16),
        (21, 21),
        (56, 56),
        {"group": 16, "dilations": [2, 2], "pads": [20] * 4},
    ),
    "dense 15x15": ((64, 32), (15, 15), (20, 20), {}),
    "dense 63x63, large map": ((8, 8), (63, 63), (32, 32), {}),
    "dense 7x7, dilation 8": ((16, 16), (7, 7), (20, 20), {"dilations": [8, 8], "pads": [24] * 4}),
}


@pytest.mark.parametrize("extent", [1, 2, 255, 256, 300, 600, 70_000])
def test_cuts_halve_down_to_single_elements(extent: int):
    """From a 256th of the rows to single rows would be a step from few tiles to very many."""
    sizes = _cuts(extent)
    assert sizes[0] == extent
    assert sizes[-1] == 1
    assert all(b < a <= 2 * b for a, b in pairwise(sizes))


def compiled(text: str, **weights: Any) -> Compilation:
    return compile_model(ir.from_proto(parse(text, **weights)), HW)


def test_a_tall_map_is_cut_into_tiles_of_many_rows():
    text = "g (float[1,4,20000,1] x) => (float[1,4,20000,1] y) { y = Add(x, x) }"
    assert len(compiled(text).bundle.words) < 20_000


def test_many_groups_are_not_spread_out_at_once():
    text = "g (float[1,9000,1,1] x) => (float[1,9000,1,1] y) { y = Conv<group=9000>(x, w) }"
    made = compiled(text, w=np.ones((9000, 1, 1, 1), np.float32))
    tracemalloc.start()
    try:
        pack_constants(made.dfg, made.plan, HW)
        assert tracemalloc.get_traced_memory()[1] < 9000**2 / 4
    finally:
        tracemalloc.stop()


def test_a_program_of_too_many_instructions_is_refused_before_it_is_made(rng):
    text = "g (float[1,3,200,7] x) => (float[1,9,200,7] y) { y = Conv<pads=[1,1,1,1]>(x, w) }"
    model = ir.from_proto(parse(text, w=rng.normal(size=(9, 3, 3, 3)).astype(np.float32)))
    whole = compile_model(model, HW)
    (program,) = whole.plan.segments
    assert isinstance(program, MachineProgram)
    made = sum(x.engine in (Engine.COMPUTE, Engine.POST) for x in program.instructions)
    (planned,) = fuse_and_tile(whole.dfg, HW, DEFAULT_STRATEGY).tiling.layers[0]
    estimated = planned.instructions
    assert estimated == pytest.approx(made, rel=0.1)
    usual = 1 << 20
    compile_prepared(whole.prepared, HW, Options(budget=estimated / usual))
    with pytest.raises(ModelError) as refusal:
        compile_prepared(whole.prepared, HW, Options(budget=(estimated - 1) / usual))
    assert str(refusal.value) == (
        f"g: {estimated} instructions estimated on opu-tiny are more than the {estimated - 1} "
        "allowed; use a smaller network or a larger machine, or raise the limit with budget=1"
    )


def large_window(name: str) -> ir.Model:
    (inputs, outputs), kernel, size, given = LARGE_WINDOWS[name]
    attributes = {"pads": [extent // 2 for extent in kernel] * 2} | given
    text = ", ".join(f"{key}={value}" for key, value in attributes.items())
    shape = (outputs, inputs // attributes.get("group", 1), *kernel)
    weights = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    channels = f"1,{inputs},{size[0]},{size[1]}"
    graph = f"g (float[{channels}] x) => (float[1,{outputs},h,v] y) {{ y = Conv<{text}>(x, w) }}"
    return ir.from_proto(parse(graph, w=weights))


@pytest.mark.parametrize("name", LARGE_WINDOWS)
@pytest.mark.parametrize("machine", by_night(["opu-tiny", "opu-micro"], ["opu-micro"]))
def test_a_large_window_takes_a_few_kernel_rows_at_a_time_not_one_pixel(name, machine, rng):
    """A machine whose feature bank holds the window at once is the measure."""
    model, hw = large_window(name), load_hw(machine)
    found = compile_model(model, hw)
    whole = compile_prepared(found.prepared, load_hw("opu-1024"))
    assert len(found.bundle.words) <= 100 * len(whole.bundle.words)
    assert_exact(found, hw, rng, (None, 1))


@pytest.mark.parametrize(
    ("channels", "side", "size"), [((128, 64), 15, 20), ((64, 64), 9, 40)], ids=["15x15", "9x9"]
)
def test_words_are_bounded_by_what_one_instruction_can_do(channels, side, size):
    """A large dense layer needs more than 100 times the words on a machine whose instructions do a
    256th: at most all weights that a buffer holds times all partial sums that another one holds.
    """
    attributes = f"pads=[{', '.join([str(side // 2)] * 4)}]"
    extents = f"{channels[0]},{size},{size}] x) => (float[1,{channels[1]},h,v"
    text = f"g (float[1,{extents}] y) {{ y = Conv<{attributes}>(x, w) }}"
    weights = np.random.default_rng(3).normal(size=(*channels[::-1], side, side))
    found = compiled(text, w=weights.astype(np.float32))
    multiplications = size**2 * weights.size
    buffers = HW.buffers
    most = buffers.weight.words * buffers.weight.width * buffers.psum.words
    assert len(found.bundle.words) <= 40 * multiplications / most


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-micro"])
def test_the_time_of_tiles_that_use_whole_buffers_is_told(machine):
    found = compile_model(large_window("depthwise 21x21"), load_hw(machine))
    (layer,) = (part for parts in found.plan.layers.values() for part in parts)
    assert layer.tile.undivided
    taken = run(found.bundle, load_hw(machine), engine="cycle").counters["cycles"]
    assert sum(found.plan.cycles.values()) == pytest.approx(taken, rel=0.005)


@pytest.mark.parametrize("name", [name for name in LARGE_WINDOWS if "depthwise" in name])
def test_a_large_depthwise_window_is_cut_into_whole_windows_of_the_array(name, rng):
    """opu-light computes depthwise windows at once; here its feature banks are small."""
    hw = load_hw("opu-light")
    feature = replace(hw.buffers.feature, words=2 * 96)
    small = replace(hw, buffers=replace(hw.buffers, feature=feature))
    found = compile_model(large_window(name), small)
    whole = compile_prepared(found.prepared, hw)
    assert len(found.bundle.words) <= 100 * len(whole.bundle.words)
    assert_exact(found, small, rng, (None, 1))


def test_an_average_of_a_large_map_takes_few_instructions_and_loads_its_weights_once(rng):
    hw = load_hw("opu-light")
    net = Net("average", seed=1)
    x = net.input("x", (1, 70, 35, 37))
    found = compile_model(net.finish(net.global_average_pool(x, "mean")), hw)
    (program,) = (s for s in found.plan.segments if isinstance(s, MachineProgram))
    steps = Counter(x.opcode for x in program.instructions)
    blocks, side = 2, hw.array.window_side
    assert steps["depthwise"] == blocks * -(-35 // side) * -(-37 // side)
    assert steps["weight"] == blocks * 4, "the window, and its cuts at the end of rows and columns"
    assert_exact(found, hw, rng, (None, 1, 2))


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-micro"])
def test_a_layer_that_uses_whole_buffers_reads_no_map_that_is_on_chip_only(
    machine, rng, monkeypatch
):
    """It is the second reader; its window counts as large, whatever it reads."""
    monkeypatch.setattr(candidates, "MOST_LOADS", 0)
    monkeypatch.setattr(candidates, "LARGE_WINDOW", 0)
    net = Net("readers", seed=1)
    x = net.conv(net.input("x", (1, 8, 9, 9)), "first", out=8, kernel=3, pads=1)
    y = net.conv(x, "small", out=8, kernel=1)
    z = net.conv(x, "large", out=8, kernel=9, pads=4)
    hw = load_hw(machine)
    found = compile_model(net.finish(net.add(y, z, "sum")), hw, Options(cascades="never"))
    assert any(part.tile.undivided for parts in found.plan.layers.values() for part in parts)
    assert_exact(found, hw, rng, (None, 1))
