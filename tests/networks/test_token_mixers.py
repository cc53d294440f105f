"""Layers over tokens on machines: the golden model's bits, ONNX Runtime's results, no host."""

import numpy as np
import pytest

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from tests.exact import assert_batch_has_single_bits, assert_exact
from tests.hw.norm_machine import norm_machine, split_norm_machine
from tests.networks import token_mixers

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

MODELS = {
    "mixer": token_mixers.mixer(24, 3, 16),
    "scaled": token_mixers.scaled(16, 4),
    "gated": token_mixers.gated(16, 3),
}
MACHINES = {"parts are copied": norm_machine, "parts are read": split_norm_machine}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_mixed_tokens_have_the_golden_models_bits_in_every_order(name, machine, rng):
    hw = MACHINES[machine]()
    found = compile_model(MODELS[name], hw)
    assert any(node.op == "transpose" for node in found.dfg.nodes)
    assert_exact(found, hw, rng, (None, 1, 2))


@pytest.mark.parametrize("scales", ["pow2", "free", "pow2-asymmetric"])
@pytest.mark.parametrize("name", MODELS)
def test_results_are_onnx_runtimes_without_the_host(name, scales):
    program = opu_fuse.compile(MODELS[name], load_hw("opu-1024a"), scales=scales)
    assert not any(isinstance(s, HostSegment) for s in program.bundle.segments)
    (port,) = program.bundle.inputs
    x = {port.name: np.random.default_rng(3).normal(size=port.shape).astype(np.float32)}
    assert check(program.bundle, x, program.run(x, capture=True)).passed


def test_images_of_a_batch_have_the_bits_of_each(rng):
    hw = split_norm_machine()
    one, two = (compile_model(MODELS["scaled"], hw, Options(batch=n)) for n in (1, 2))
    assert_batch_has_single_bits(one, two, hw, rng)
