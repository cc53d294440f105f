"""A Resize that makes smaller, as a window with strides; `canonical` compares the results."""

from itertools import product

import numpy as np
import pytest

from tests.tiers import by_night

NEAREST = 'mode="nearest", coordinate_transformation_mode="{}", nearest_mode="{}"'
LINEAR = 'mode="linear", coordinate_transformation_mode="{}"'
ASYMMETRIC, CENTRES, CORNERS = "asymmetric", "half_pixel", "align_corners"


def network(size, attributes):
    return f"""g (float[1, 3, {size[0]}, {size[1]}] x) => (float[A, B, C, D] y) {{
        [c] c = Relu (x) [r] y = Resize <{attributes}> (c, , by) }}"""


def shrunk(onnx_text, canonical, size, factors, attributes, *, opset=17):
    by = np.array([1, 1, *factors], np.float32)
    model = canonical(onnx_text(network(size, attributes), opset=opset, by=by), rewriting=True)
    return model.graph[-1]


@pytest.mark.parametrize(
    ("size", "factors", "attributes", "wanted"),
    [
        ((12, 8), (0.5, 0.5), NEAREST.format(ASYMMETRIC, "floor"), "MaxPool"),
        ((12, 8), (0.5, 0.25), NEAREST.format(ASYMMETRIC, "floor"), "MaxPool"),
        ((12, 8), (1.0, 0.5), NEAREST.format(ASYMMETRIC, "round_prefer_floor"), "MaxPool"),
        ((12, 8), (0.5, 0.5), NEAREST.format(CENTRES, "round_prefer_floor"), "MaxPool"),
        ((12, 8), (0.5, 0.5), NEAREST.format(CENTRES, "round_prefer_ceil"), "Conv"),
        ((12, 8), (0.25, 0.25), NEAREST.format(CENTRES, "ceil"), "Conv"),
        ((7, 5), (0.5, 0.5), NEAREST.format(ASYMMETRIC, "floor"), "Conv"),  # no last window
        ((12, 9), (1 / 3, 1 / 3), NEAREST.format(CENTRES, "round_prefer_floor"), "Conv"),
        ((12, 9), (1 / 3, 1 / 3), NEAREST.format(CENTRES, "floor"), "Resize"),  # float32 decides
        ((12, 8), (0.75, 0.75), NEAREST.format(ASYMMETRIC, "floor"), "Resize"),
        ((7, 5), (0.5, 0.5), LINEAR.format(CENTRES), "AveragePool"),
        ((12, 8), (0.5, 0.5), LINEAR.format(CENTRES), "AveragePool"),
        ((12, 8), (1.0, 0.5), LINEAR.format(CENTRES), "AveragePool"),
        ((12, 8), (0.25, 0.25), LINEAR.format(CENTRES), "Conv"),
        ((12, 8), (0.25, 0.5), LINEAR.format(CENTRES), "Conv"),
        ((12, 9), (1 / 3, 1 / 3), LINEAR.format(CENTRES), "Conv"),
        ((12, 8), (0.5, 0.5), LINEAR.format(ASYMMETRIC), "MaxPool"),
        ((12, 8), (0.5, 0.5), LINEAR.format(CORNERS), "Resize"),
        ((7, 5), (0.5, 0.5), LINEAR.format(CORNERS), "Conv"),  # 3 of 7: every third
        ((12, 8), (0.75, 0.75), LINEAR.format(CENTRES), "Resize"),
        ((12, 8), (0.5, 2.0), LINEAR.format(CENTRES), "Resize"),
        ((12, 8), (0.5, 0.5), 'mode="cubic"', "Resize"),
    ],
)
def test_what_it_becomes(size, factors, attributes, wanted, onnx_text, canonical):
    if wanted == "Conv" and CORNERS in attributes:
        wanted = ("MaxPool", "Conv")
    node = shrunk(onnx_text, canonical, size, factors, attributes)
    assert node.op_type in wanted if isinstance(wanted, tuple) else node.op_type == wanted


MODES = [
    *product(
        (ASYMMETRIC, CENTRES, "pytorch_half_pixel", CORNERS),
        ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
    )
]
OFTEN = MODES[::5]  # each way of coordinates and each rounding once


@pytest.mark.parametrize(
    ("coordinates", "rounding"), by_night(MODES, [mode for mode in MODES if mode not in OFTEN])
)
def test_every_mode_takes_the_pixels_of_onnx_runtime(coordinates, rounding, onnx_text, canonical):
    """Whatever it becomes: `canonical` runs both."""
    for size, target in (((12, 8), (6, 4)), ((13, 9), (7, 5)), ((9, 9), (3, 3)), ((8, 4), (2, 1))):
        text = network(size, NEAREST.format(coordinates, rounding)).replace(", by", ", , sizes")
        canonical(onnx_text(text, sizes=np.array([1, 3, *target])), rewriting=True)
        text = network(size, LINEAR.format(coordinates)).replace(", by", ", , sizes")
        canonical(onnx_text(text, sizes=np.array([1, 3, *target])), rewriting=True)


def test_antialiasing_reads_more_pixels(onnx_text, canonical):
    more = LINEAR.format(CENTRES) + ", antialias = 1"
    assert shrunk(onnx_text, canonical, (12, 8), (0.5, 0.5), more, opset=18).op_type == "Resize"


def test_the_published_strategies_see_the_users_operator(onnx_text, canonical):
    by = np.array([1, 1, 0.5, 0.5], np.float32)
    model = canonical(onnx_text(network((12, 8), LINEAR.format(CENTRES)), by=by))
    assert [node.op_type for node in model.graph] == ["Relu", "Resize"]
