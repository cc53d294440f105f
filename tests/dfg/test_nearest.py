"""A Resize to the nearest pixel is a repetition exactly where ONNX Runtime repeats."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from opu_fuse.dfg.nearest import repeats
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise
from tests.fuzz.onnxruntime_runs import values_of

COORDINATES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def resize(coordinates: str, rounding: str, times: int, rows: int, cols: int) -> onnx.ModelProto:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g
    (float[1,2,{rows},{cols}] x) => (float[1,2,{rows * times},{cols * times}] y) {{
      r = Relu (x)
      y = Resize <mode = "nearest", coordinate_transformation_mode = "{coordinates}",
                  nearest_mode = "{rounding}"> (r, , s) }}"""
    model = onnx.parser.parse_model(text)
    scales = np.array([1, 1, times, times], np.float32)
    model.graph.initializer.append(numpy_helper.from_array(scales, "s"))
    return model


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("times", [2, 3, 4])
def test_it_repeats_where_onnx_runtime_does(coordinates: str, rounding: str, times: int):
    x = np.arange(2 * 5 * 16, dtype=np.float32).reshape(1, 2, 5, 16)
    found = values_of(resize(coordinates, rounding, times, 5, 16), {"x": x})["y"]
    said = all(repeats(size, times, coordinates, rounding) for size in (5, 16))
    assert said == np.array_equal(found, x.repeat(times, 2).repeat(times, 3))


def test_the_usual_form_of_other_exporters_runs_on_the_machine():
    """Without `nearest_mode`."""
    hw = load_hw("opu-1024t")
    made = compile_model(resize("asymmetric", "round_prefer_floor", 2, 5, 16), hw)
    assert made.partition.host == ()
    inputs = noise(made.bundle)
    checked = check(made.bundle, inputs, run(made.bundle, hw, inputs, capture=True))
    assert checked.passed
    assert checked.mismatches == 0
