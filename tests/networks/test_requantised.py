"""Networks as ONNX Runtime's quantiser writes them, with a scale for every value: what changes
scales (in front of every concatenation) runs on the machine, too.
"""

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Program, compile_model
from opu_fuse.sim.compare.runs import check
from tests.networks.quantised_elsewhere import quantised_elsewhere
from tests.tiers import by_night

NETWORKS = {
    "squeezenet": 48,
    "googlenet": 32,
    "densenet121": 32,
    "yolov3_tiny": 32,
    "unet": 32,
    "shufflenet_v2": 32,
}
"""With their rows and columns here: smaller ones have the same operators."""


@pytest.mark.parametrize("unsigned", [False, True], ids=["int8", "uint8"])
@pytest.mark.parametrize("name", by_night(NETWORKS, ["densenet121", "googlenet", "yolov3_tiny"]))
def test_nothing_stays_on_the_host_for_its_scales(name, unsigned, rng):
    if unsigned and name == "densenet121":
        pytest.skip("its many operators take long, and are those of the others")
    network = zoo.build(name, image=NETWORKS[name])
    (port,) = network.graph.inputs
    assert port.shape is not None
    shape = port.shape.numpy()
    inputs = {str(port.name): rng.standard_normal(shape).astype(np.float32)}
    hw = load_hw("opu-light")
    given = quantised_elsewhere(network, inputs, unsigned=unsigned)
    made = compile_model(given, hw)
    assert not made.partition.host
    result = Program(bundle=made.bundle, hw=hw).run(inputs, capture=True)
    found = check(made.bundle, inputs, result)
    assert found.passed, found.first
