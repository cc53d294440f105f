"""Products of queries and keys with their Softmax in one group: a tile has all keys of a query in
partial sums, whatever the weight and output banks hold.
"""

import numpy as np
import pytest

import opu_fuse
from benchmarks.attention_networks import vit
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.cycle.run import run_cycle
from tests.exact import assert_exact
from tests.hw.norm_machine import narrow_norm_machine, norm_machine
from tests.networks import attention_blocks as blocks
from tests.networks.attention_blocks import with_constants
from tests.networks.test_attention import on_host, operators, run

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

TOGETHER = ["matmul", "softmax"]
CASES = {
    "one key": blocks.cross(1, deep=3),
    "one query": vit(16, 2, 8, 1, 1),
    "two queries": blocks.cross(97, queries=2),
    "few keys": blocks.cross(33),
    "keys less one": blocks.cross(63, heads=2),
    "keys and one": blocks.cross(65, heads=2, deep=5),
    "most keys": blocks.cross(128, queries=9),
    "heads of 1": blocks.cross(40, heads=3, deep=1),
    "heads of 80": blocks.cross(41, deep=80),
    "masked": blocks.cross(71, masked=True),
}


def groups_of(program):
    return [[op.op for op in group.ops] for group in program.bundle.groups]


@pytest.fixture(scope="module")
def machine():
    return narrow_norm_machine()


@pytest.mark.parametrize("case", CASES)
def test_scores_and_softmax_are_one_group_with_the_golden_models_bits(case, machine, rng):
    found = compile_model(CASES[case], machine)
    groups = groups_of(found)
    together = ["matmul", "add", "softmax"] if case == "masked" else TOGETHER
    assert groups.count(together) == sum(group.count("softmax") for group in groups) > 0
    assert_exact(found, machine, rng, (None, 1, 2))


@pytest.mark.parametrize("case", ["one query", "keys and one", "heads of 80", "masked"])
def test_they_are_at_most_a_step_off_onnxruntime(case, machine):
    program, _, checked = run(CASES[case], machine)
    assert checked.passed
    assert checked.mismatches <= checked.elements / 50
    assert not [op for op in on_host(program) if op[1] in ("softmax", "host:Softmax")]


def test_images_of_a_batch_have_keys_of_their_own(machine):
    model = blocks.cross(45)
    x = np.random.default_rng(3).normal(size=(2, 45, 8)).astype(np.float32)
    alone, both = opu_fuse.compile(model, machine), opu_fuse.compile(model, machine, batch=2)
    assert TOGETHER in groups_of(both)
    (name,) = [port.name for port in alone.bundle.inputs]
    once, twice = (p.run({name: x}).outputs for p in (alone, both))
    for y, of_both in zip(once.values(), twice.values(), strict=True):
        np.testing.assert_array_equal(y, of_both)


def test_keys_that_exceed_partial_sums_leave_a_softmax_its_own_pass(machine):
    """The parameters of 129 keys fill more than a bank; those of a Softmax alone are half."""
    program, _, checked = run(blocks.cross(129, queries=2), machine)
    assert checked.passed
    assert ["softmax"] in groups_of(program)


def test_1500_keys_and_their_softmax_are_one_group_on_the_shipped_machine():
    """Whisper's: 94 weight rows, of which a bank holds 64, and 24 words a query."""
    hw = load_hw("opu-1024a")
    found = compile_model(blocks.cross(1499, queries=70, deep=64), hw)
    assert TOGETHER in groups_of(found)
    (layer,) = [
        part for parts in found.plan.layers.values() for part in parts if part.shape.exponentials
    ]
    assert layer.tile.cols * 24 <= hw.buffers.psum.bank_words
    assert layer.tile.cols * 24 > hw.buffers.output.bank_words  # results are two post instructions
    assert len([*layer.weight_chunks]) == 2
    assert_exact(found, hw, np.random.default_rng(1))


@pytest.mark.parametrize("name", ["norms", "narrow-norms"])
def test_the_prediction_is_near_the_cycle_engine(name):
    hw = norm_machine() if name == "norms" else narrow_norm_machine()
    found = compile_model(blocks.cross(96), hw)
    cycles = run_cycle(found.bundle, hw).counters["cycles"]
    assert sum(group.cycles for group in found.bundle.groups) == pytest.approx(cycles, rel=0.05)


WIDE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,96,4,5] x) => (float[1,72,4,5] y) {
  a = Conv(x, w) b = Softmax<axis=1>(a) y = Conv(b, v) }"""


def test_a_norm_after_a_partly_empty_block_has_all_channels():
    """Such a block may have an array mode of its own, but not where a norm needs all blocks."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(72, 96, 1, 1)) * 0.3, "v": rng.normal(size=(72, 72, 1, 1))}
    program, _, checked = run(with_constants(WIDE, weights), "opu-1024a")
    assert operators(program).count("softmax") == 1
    assert checked.passed


def test_channels_that_no_weight_bank_holds_are_normalised_with_their_layer(machine, rng):
    """A word of 8 inputs for 40 outputs takes 10 weight rows, a bank holds 8."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,19,4,5] x) => (float[1,40,4,5] y) {
  a = Conv(x, w) b = Softmax<axis=1>(a) y = Conv(b, v) }"""
    weights = {"w": rng.normal(size=(40, 19, 3, 3)) * 0.2, "v": rng.normal(size=(40, 40, 1, 1))}
    model = with_constants(text.replace("Conv(x, w)", "Conv<pads=[1,1,1,1]>(x, w)"), weights)
    found = compile_model(model, machine)
    assert ["conv", "softmax"] in groups_of(found)
    assert_exact(found, machine, rng, (None, 1))
