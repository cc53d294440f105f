"""Permutations of pixels on the machine: the bits of ONNX Runtime, and what they cost."""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.compare.tensor_sources import tensor_sources
from opu_fuse.sim.compare.writer import writer
from opu_fuse.sim.cycle.run import run_cycle
from tests.hw.norm_machine import norm_machine
from tests.networks.attention_blocks import with_constants
from tests.networks.permuted_pixels import SPELLINGS, network, roll

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

MACHINES = {"norms": norm_machine(), "opu-1024a": load_hw("opu-1024a")}
CASES = {
    **{name: network(name, 12, (2, 3), (3, 2)) for name in SPELLINGS},
    "one window across": network("windows", 5, (3, 1), (2, 5)),
    "several blocks": network("windows", 70, (2, 2), (4, 4)),
    "wide patches": network("patches", 70, (2, 3), (3, 2)),
    "turned": network("patches", 17, (5, 3), (1, 4)),
    "after a function": network(
        "patches", 9, (5, 3), (2, 2), before="c0 = Conv(x, w0) a = Relu(c0)"
    ),
    "rolled before": network(
        "windows", 12, (2, 3), (3, 2), before=f"c0 = Conv(x, w0) {roll('c0', 'a', 2, 3)}"
    ),
    "rolled before and after": network(
        "windows",
        70,
        (3, 2),
        (3, 4),
        before=f"c0 = Conv(x, w0) {roll('c0', 'a', 2, 3)}",
        after=roll("e0", "e", 3, 2),
    ),
    "rolled alone": network(
        "windows", 9, (2, 2), (3, 3), between=f"d0 = Conv(b, w1) {roll('d0', 'd', 3)}"
    ),
}


def groups(program):
    return [[op.op for op in group.ops] for group in program.bundle.groups]


def on_host(program):
    return [op for part in program.bundle.segments for op in getattr(part, "ops", ())]


@pytest.mark.parametrize(("machine", "batch"), [("norms", 2), ("opu-1024a", 1)])
@pytest.mark.parametrize("case", CASES)
def test_no_pixel_is_moved_on_the_host_and_all_engines_have_the_bits(case, machine, batch):
    program = opu_fuse.compile(CASES[case], MACHINES[machine], batch=batch)
    (port,) = program.bundle.inputs
    x = np.random.default_rng(3).normal(size=(batch, *port.shape[1:])).astype(np.float32)
    result = program.run({port.name: x}, capture=True, shuffle=batch)
    checked = check(program.bundle, {port.name: x}, result)
    native = program.run({port.name: x}, engine="native")
    assert checked.passed
    assert checked.mismatches == 0
    assert on_host(program) == []
    for name, array in result.outputs.items():
        np.testing.assert_array_equal(native.outputs[name], array)


def test_stores_permute_without_a_pass_of_their_own_where_neighbours_remain_near():
    assert groups(opu_fuse.compile(CASES["windows"], "opu-1024a"))[:2] == [["conv", "permute"]] * 2
    patches = groups(opu_fuse.compile(CASES["patches"], "opu-1024a"))
    assert patches[:3] == [["conv"], ["permute"], ["conv", "permute"]]
    wide = groups(opu_fuse.compile(CASES["wide patches"], "opu-1024a"))
    assert wide[:2] == [["conv", "permute"]] * 2, "post reads every other column"


def test_each_column_was_written_by_the_instruction_that_reads_it():
    """Post computes the even columns of an image in one instruction, the odd ones in the next."""
    function = "c0 = Conv(x, w0) a = HardSwish(c0)"
    program = opu_fuse.compile(network("patches", 70, (5, 3), (2, 2), before=function), "opu-1024a")
    inside = next(s for s in tensor_sources(program.bundle) if s.name == "c0")
    words = decode(program.bundle.words)
    for col in range(6):
        number = writer(program.bundle, inside, (1, 70, 10, 6), (0, 3, 4, col))
        assert (words[number].post["origin_x"], words[number].post["stride_x"]) == (col % 2, 2)


def test_rolls_are_part_of_the_permutations_next_to_them():
    found = groups(opu_fuse.compile(CASES["rolled before and after"], "opu-1024a"))
    assert found[:2] == [["conv", "permute"]] * 2
    assert len(found) == 3


@pytest.mark.parametrize("spelling", ["windows", "patches"])
def test_cycles_are_predicted(spelling):
    hw = load_hw("opu-1024a")
    bundle = opu_fuse.compile(network(spelling, 70, (8, 8), (4, 4)), hw).bundle
    predicted = sum(group.cycles for group in bundle.groups)
    assert predicted == pytest.approx(run_cycle(bundle, hw).counters["cycles"], rel=0.1)


def test_axes_that_cut_rows_remain_on_the_host():
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,5,6,6] x) => (float[1,8,6,6] y) {
      a = Conv(x, w)  r = Reshape(a, s5)  t = Transpose<perm=[0,1,4,2,3]>(r)
      b = Reshape(t, s4)  y = Conv(b, v) }"""
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(8, 5, 1, 1)), "v": rng.normal(size=(8, 8, 1, 1))}
    sizes = {"s5": np.array([1, 8, 4, 3, 3]), "s4": np.array([1, 8, 6, 6])}
    program = opu_fuse.compile(with_constants(text, weights | sizes), "opu-1024a")
    assert [op.op for op in on_host(program)] == ["permute"]
