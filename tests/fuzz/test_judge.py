"""What the judge of networks allows, and what it does not."""

import numpy as np
import onnx
import pytest

from tests.fuzz.added import _steps_apart
from tests.fuzz.bounds import Bounds

ROUNDING = onnx.helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"])


def steps_apart(given: list[float], reference: list[float], scale: float, zero: int) -> float:
    numbers = {"scale": np.array(scale, np.float32), "zero": np.array(zero, np.int8)}
    one, other = (np.array(v, np.float32) for v in (given, reference))
    return _steps_apart(one, other, ROUNDING, np.dtype(np.int8), numbers)


@pytest.mark.parametrize("zero", [0, 3])
def test_what_the_reference_has_rounded_already_counts_as_that_integer(zero):
    assert steps_apart([2.5, -1.5, 3.2], [2.0, -2.0, 3.0], 1.0, zero) == 0.0
    assert steps_apart([2.5], [3.0], 1.0, zero) == 0.5


def test_an_integer_times_a_scale_in_float32_is_rounded_already():
    scale = np.float32(0.02164069)
    twenty = np.float32(20) * scale
    assert float(twenty) / float(scale) != 20.0
    assert steps_apart([float(scale) * 20.4], [float(twenty)], float(scale), 0) < 1e-4
    assert steps_apart([float(scale) * 20.4], [float(scale) * 19.99], float(scale), 0) > 0.4


PRODUCT = """<ir_version: 10, opset_import: ["" : 17]>
g (int8[4,{summed}] a, int8[{summed},4] b) => (int8[4,4] y)
<float s = {{{scale}}}, int8 z = {{0}}> {{
  ad = DequantizeLinear(a, s, z)  bd = DequantizeLinear(b, s, z)
  m = MatMul(ad, bd)  y = QuantizeLinear(m, s, z) }}"""


@pytest.mark.parametrize(
    ("summed", "scale", "steps"),
    [(250, "0.25", 0.0), (260, "0.25", 1.0), (250, "0.3", 1.0)],
    ids=["exact in float32", "too long a sum", "another scale"],
)
def test_a_product_of_computed_maps_is_exact_where_float32_holds_its_sums(summed, scale, steps):
    model = onnx.parser.parse_model(PRODUCT.format(summed=summed, scale=scale))
    shapes = {"ad": (4, summed), "bd": (summed, 4)}
    bounds = Bounds(model=model, shapes=shapes, given=frozenset(), own=False)
    assert bounds.steps["y"] == steps
