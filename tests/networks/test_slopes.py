"""LeakyRelu with any slope from 0 to 1 is a comparator's: ONNX Runtime's result of every value."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from tests.networks.quantised_elsewhere import quantised_elsewhere

SLOPES = (0.1, 0.01, 0.3, 0.2, 1.0, 0.0, 0.99, 1e-6)
ALL_VALUES = {"x": np.arange(-128, 128, dtype=np.float32).reshape(1, 1, 16, 16) / 64}


def model(body):
    text = f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[1,1,16,16] x) => (float[1,1,16,16] y)
        <float[1,1,1,1] w = {{-1.0}}> {{ {body} }}"""
    return ir.from_proto(onnx.parser.parse_model(text))


@pytest.mark.parametrize("name", ["opu-1024", "opu-tiny", "opu-classic"])
@pytest.mark.parametrize("slope", SLOPES)
def test_all_values_behind_a_slope_are_onnx_runtimes(slope, name):
    hw = load_hw(name)
    leaky = model(f"c = Conv(x, w) y = LeakyRelu<alpha={slope}>(c)")
    compiled = compile_model(leaky, hw, Options(calibration=ALL_VALUES))
    assert not compiled.partition.host
    result = run(compiled.bundle, hw, ALL_VALUES, capture=True)
    found = check(compiled.bundle, ALL_VALUES, result)
    assert found.passed
    assert found.mismatches == 0
    wanted = np.where(ALL_VALUES["x"] > 0, -slope, -1) * ALL_VALUES["x"]
    np.testing.assert_allclose(result.outputs["y"], wanted, atol=1 / 64)


@pytest.mark.parametrize("slope", [-0.1, 1.5])
def test_what_no_comparator_holds_is_a_table(slope):
    leaky = model(f"y = LeakyRelu<alpha={slope}>(x)")
    machine = compile_model(leaky, load_hw("opu-light"), Options(calibration=ALL_VALUES))
    assert not machine.partition.host
    host = compile_model(leaky, load_hw("opu-1024"), Options(calibration=ALL_VALUES))
    assert len(host.partition.host) == 1


@pytest.mark.parametrize("slope", SLOPES)
def test_slopes_of_others_models_are_right_within_a_step(slope):
    hw = load_hw("opu-1024")
    leaky = quantised_elsewhere(
        model(f"c = Conv(x, w) y = LeakyRelu<alpha={slope}>(c)"), ALL_VALUES
    )
    compiled = compile_model(leaky, hw)
    assert not compiled.partition.host
    result = run(compiled.bundle, hw, ALL_VALUES, capture=True)
    assert check(compiled.bundle, ALL_VALUES, result).passed
