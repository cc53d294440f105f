"""Gates before the array: the bits of the golden model and of ONNX Runtime, whatever the scales."""

import numpy as np
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.engine import run
from tests.networks.gated import NETWORKS, NOT_IN_FRONT, in_front, network
from tests.networks.held import hold, hold_each_image, inputs_of
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.rtl.machines import write_machine
from tests.tiers import by_night

MACHINES = ("opu-light", "gates")


@pytest.fixture(scope="module", params=MACHINES)
def hw(request, tmp_path_factory):
    return load_hw(write_machine(request.param, tmp_path_factory.mktemp("specs")))


@pytest.mark.parametrize("scales", by_night(["pow2", "pow2-asymmetric", "free"], ["pow2"]))
@pytest.mark.parametrize("name", NETWORKS)
def test_a_gate_has_the_golden_models_bits(name, scales, hw, rng):
    compiled = compile_model(network(name), hw, Options(reuse_memory=False, scales=scales))
    assert bool(in_front(compiled)) == (name not in NOT_IN_FRONT)
    assert not compiled.partition.host
    hold(compiled, hw, inputs_of(compiled, rng))


@pytest.mark.parametrize("sigmoid", ["Sigmoid", "HardSigmoid"])
def test_zero_points_of_others_are_taken_off_before_the_product(sigmoid, hw, rng):
    inputs = {"x": rng.standard_normal((1, 40, 9, 7)).astype(np.float32)}
    model = quantised_elsewhere(network("block", sigmoid), inputs)
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    (product,) = (
        planned.layer.pre_registers
        for parts in compiled.plan.layers.values()
        for planned in parts
        if planned.layer.gate is not None
    )
    zeros = [product[name] for name in ("gate_x_zero", "gate_zero", "pre_zero")]
    assert all(zeros), f"a zero point is 0: {zeros}"
    assert product["gate_mult"] > 1 << 9, "the multiplier fits a few bits"
    hold(compiled, hw, inputs)


@pytest.mark.parametrize("name", ["block", "windows with padding"])
def test_every_image_of_a_batch_has_its_own_gate(name, hw):
    model = network(name)
    assert in_front(hold_each_image(model, hw))


def test_a_gate_in_front_spares_a_pass_over_the_map():
    hw = load_hw("opu-light")
    assert len(compile_model(network("block"), hw).bundle.groups) == 6


def test_the_compiler_knows_what_a_gate_takes(hw):
    for name in ("block", "several words"):
        compiled = compile_model(network(name), hw)
        predicted = sum(group.cycles for group in compiled.bundle.groups)
        taken = run(compiled.bundle, hw, engine="cycle").counters["cycles"]
        assert abs(predicted - taken) < 0.1 * taken
