"""One pixel added to a map on the machine: the bits of the golden model and of ONNX Runtime."""

import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.engine import run
from tests.networks.added_pixels import NETWORKS, network
from tests.networks.held import hold, hold_each_image, inputs_of

# opu-tiny has no multipliers, which free scales need, and repeats no pixels.
CASES = [(name, "opu-light", scales) for name in NETWORKS for scales in ("pow2", "free")]
CASES += [(name, "opu-tiny", "pow2-asymmetric") for name in NETWORKS if name != "repeated"]


@pytest.mark.parametrize(("name", "machine", "scales"), CASES)
def test_the_machine_adds_a_pixel_to_a_map(name, machine, scales, rng):
    hw = load_hw(machine)
    compiled = compile_model(network(name), hw, Options(reuse_memory=False, scales=scales))
    assert not compiled.partition.host
    hold(compiled, hw, inputs_of(compiled, rng))


@pytest.mark.parametrize("cascades", ["always", "never"])
def test_fused_stacks_add_a_pixel_too(cascades, rng):
    hw = load_hw("opu-light")
    compiled = compile_model(network("to two maps"), hw, Options(cascades=cascades))
    hold(compiled, hw, inputs_of(compiled, rng))


@pytest.mark.parametrize("name", ["computed", "an input", "after a pool"])
def test_every_image_of_a_batch_has_its_own_pixel(name):
    hold_each_image(network(name), load_hw("opu-light"))


def test_the_compiler_knows_what_an_added_pixel_takes():
    hw = load_hw("opu-light")
    compiled = compile_model(network("several words"), hw)
    predicted = sum(group.cycles for group in compiled.bundle.groups)
    taken = run(compiled.bundle, hw, engine="cycle").counters["cycles"]
    assert abs(predicted - taken) < 0.1 * taken
