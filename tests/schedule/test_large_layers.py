"""Layers far larger than any network's: time and memory grow with the layer, not its square."""

import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import onnx_ir as ir
import pytest

from opu_fuse.codegen.constants import pack_constants
from opu_fuse.cost.tiling import _cuts
from opu_fuse.errors import ModelError
from opu_fuse.hw.isa import Engine
from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import Compilation, Options, compile_model, compile_prepared
from opu_fuse.schedule.plan import MachineProgram
from opu_fuse.zoo.builder import Net
from tests.exact import assert_exact
from tests.frontend.conftest import parse

HW = load_hw("opu-tiny")


@pytest.mark.parametrize("extent", [1, 2, 255, 256, 300, 600, 70_000])
def test_cuts_halve_down_to_single_elements(extent: int):
    """From a 256th of the rows to single rows would be a step from few tiles to very many."""
    sizes = _cuts(extent)
    assert sizes[0] == extent
    assert sizes[-1] == 1
    assert all(b < a <= 2 * b for a, b in pairwise(sizes))


def compiled(text: str, **weights: np.ndarray) -> Compilation:
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
    usual = 1 << 20
    compile_prepared(whole.prepared, HW, Options(budget=made / usual))
    with pytest.raises(ModelError) as refusal:
        compile_prepared(whole.prepared, HW, Options(budget=(made - 1) / usual))
    assert str(refusal.value) == (
        f"g: {made} instructions or more on opu-tiny are more than the {made - 1} allowed; "
        "use a smaller network or a larger machine, or raise the limit with --budget 1"
    )


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
