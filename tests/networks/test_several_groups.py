"""GroupNorms of several groups and InstanceNorms on machines: the golden model's bits, ONNX
Runtime's results, no host.
"""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.normalisation import BY_ROWS
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import norm_machine, split_norm_machine
from tests.networks.several_groups import grouped, line

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

MODELS = {
    "groups": grouped(24, 4, (5, 7)),
    "groups of whole words": grouped(16, 2, (4, 4)),
    "an operator of opset 21": grouped(12, 3, (6, 3), form="group"),
    "instances": grouped(10, 10, (6, 5), form="instance"),
    "instances between": grouped(10, 10, (3, 5)),
    "a signal": line(12, 40),
}
MACHINES = {"parts are copied": norm_machine, "parts are read": split_norm_machine}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_groups_have_the_golden_models_bits_in_every_order(name, machine, rng):
    hw = MACHINES[machine]()
    found = compile_model(MODELS[name], hw)
    assert any(parts[0].shape.passes for parts in found.plan.layers.values())
    assert_exact(found, hw, rng, (None, 1, 2))


@pytest.mark.parametrize("scales", ["pow2", "free", "pow2-asymmetric"])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_onnx_runtimes_without_the_host(name, scales):
    program = opu_fuse.compile(MODELS[name], load_hw("opu-1024a"), scales=scales)
    assert not program.bundle.hosts
    (port,) = program.bundle.inputs
    x = {port.name: np.random.default_rng(3).normal(size=port.shape).astype(np.float32)}
    checked = check(program.bundle, x, program.run(x, capture=True))
    assert checked.passed
    assert checked.mismatches == 0 or scales == "free"


@pytest.mark.parametrize("name", ["groups", "instances"])
def test_images_of_a_batch_have_the_bits_of_each(name, rng):
    hw = norm_machine()
    one, two = (compile_model(MODELS[name], hw, Options(batch=n)) for n in (1, 2))
    assert_batch_has_single_bits(one, two, hw, rng)


def test_statistics_are_those_of_each_row():
    found = compile_model(MODELS["groups"], load_hw("opu-1024a"))
    (norm,) = [node for node in found.dfg.nodes if BY_ROWS in node.attrs]
    assert (norm.op, norm.shape) == ("group_norm", (1, 35, 4, 6))
    (layer,) = [p[0] for p in found.plan.layers.values() if p[0].shape.whole_map]
    assert (layer.shape.images, layer.shape.out_rows, layer.shape.out_cols) == (4, 1, 6)
