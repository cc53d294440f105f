"""Networks of the zoo on the RTL of two machines each: the functional engine's bits in every stored
tensor, with values that prove something.
"""

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.program import MachineSegment
from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import Options, Program, compile_model
from opu_fuse.sim.compare import compare, is_dull, places
from opu_fuse.sim.reference import Reference
from opu_fuse.zoo import efficientnet
from opu_fuse.zoo.builder import Net
from tests.networks.test_transposed import FORMS, network
from tests.rtl.machines import write_machine

pytestmark = [pytest.mark.rtl, pytest.mark.filterwarnings("ignore:no calibration data")]

# Networks, the reduced rows and columns of their images, and the second machine.
NETWORKS = {
    "mobilenet_v1_025": (64, "opu-micro"),
    "mobilenet_v2": (64, "opu-micro"),
    "shufflenet_v2": (64, "opu-micro"),
    "squeezenet": (64, "opu-micro"),
    "yolov3_tiny": (64, "opu-micro"),
    "unet": (16, "opu-micro"),
    "resnet20": (16, "opu-micro"),
    "densenet_small": (16, "opu-micro"),
}
CASES = [(n, i, m) for n, (i, other) in NETWORKS.items() for m in ("opu-light", other)]


def hold_rtl_against_functional(model, hw, rng):
    """Every stored tensor can be compared at the end: memory is not used twice."""
    compiled = compile_model(model, hw, Options(reuse_memory=False))
    bundle = compiled.bundle
    program = Program(bundle=bundle, hw=hw)
    inputs = {p.name: rng.standard_normal(p.shape).astype(np.float32) for p in bundle.inputs}
    functional = program.run(inputs, capture=True)
    rtl = program.run(inputs, engine="rtl", capture=True)
    found = compare(bundle, functional, rtl)
    assert found.passed, found.first
    made = {t.name for t in bundle.tensors if t.first_group >= 0}
    assert made <= rtl.tensors.keys(), "not every stored tensor was compared"
    zeros = Reference(bundle).zero_points
    dull = [
        p.name
        for p in places(bundle)
        if p.name in rtl.tensors
        and p.qdq_name in zeros
        and is_dull(_looked_at(rtl, p.name), zeros[p.qdq_name])
    ]
    assert not dull, f"{dull} have too few values, or too many saturated"
    return bundle


def _looked_at(result, name):
    tensor = result.tensors[name]
    return tensor[np.broadcast_to(result.masks.get(name, np.True_), tensor.shape)]


@pytest.mark.parametrize(("name", "image", "machine"), CASES)
def test_a_network_on_rtl_has_the_functional_engines_bits(name, image, machine, rng):
    hold_rtl_against_functional(zoo.build(name, image=image), load_hw(machine), rng)


@pytest.mark.parametrize("machine", ["opu-light", "every-module"])
def test_squeeze_and_excite_blocks_on_rtl_have_the_functional_engines_bits(machine, rng, tmp_path):
    """EfficientNet's blocks: strided without, then with a residual connection."""
    net = Net("squeeze_and_excite", seed=0)
    x = net.conv(net.input("x", (1, 16, 32, 32)), "stem", out=24, kernel=3, pads=1)
    x = efficientnet._block(net, x, "first", 6, 5, 2, 40)
    x = efficientnet._block(net, x, "second", 6, 3, 1, 40)
    bundle = hold_rtl_against_functional(
        net.finish(x), load_hw(write_machine(machine, tmp_path)), rng
    )
    assert all(isinstance(s, MachineSegment) for s in bundle.segments), "not all on the machine"


@pytest.mark.parametrize("machine", ["opu-light", "opu-micro", "opu-tiny"])
@pytest.mark.parametrize("form", FORMS)
def test_a_transposed_convolution_on_rtl_has_the_functional_engines_bits(form, machine, rng):
    hold_rtl_against_functional(network(rng, FORMS[form]), load_hw(machine), rng)
