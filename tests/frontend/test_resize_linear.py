"""Interpolation as repetition and means; the `canonical` fixture compares the results too."""

import onnx_ir as ir
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model

HALVES = "kernel_shape=[2, 2] pads=[1, 1, 1, 1] strides=[1, 1]"
NETWORK = """g (float[1,3,5,4] x) => (float[A,B,C,D] y)
    <float[4] by = {{1.0, 1.0, {}}}> {{ [r] y = Resize<mode="linear" {}>(x, , by) }}"""
CORNERS = ', coordinate_transformation_mode="asymmetric"'
WANTED = {
    ("2.0, 2.0", ""): ["Resize", "AveragePool", "AveragePool"],
    ("2.0, 3.0", ""): ["Resize", "AveragePool", "AveragePool"],
    ("3.0, 3.0", ""): ["Resize", "AveragePool"] * 2,
    ("4.0, 4.0", ""): [*["Resize", "AveragePool"] * 2, "AveragePool"],
    ("8.0, 8.0", ""): [*["Resize", "AveragePool"] * 3, "AveragePool"],
    ("8.0, 3.0", ""): [*["Resize", "AveragePool"] * 2, "AveragePool"],
    ("4.0, 4.0", CORNERS): ["Resize", "AveragePool"] * 2,
    ("1.0, 4.0", ""): ["Resize", "AveragePool", "AveragePool"],
    ("2.0, 4.0", CORNERS): ["Resize", "AveragePool"],
    ("1.5, 2.0", ""): ["Resize"],
    ("1.0, 1.0", ""): ["Resize"],
    ("2.0, 2.0", ', coordinate_transformation_mode="align_corners"'): ["Resize"],
}


QUANTISED = """g (float[1,3,{},{}] x) => (float[1,3,10,8] y)
    <float[4] by = {{1.0, 1.0, {}}}, float s = {{0.5}}, int8 z = {{0}}> {{
    q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z)
    [r] r = Resize<mode="linear">(d, , by)
    p = QuantizeLinear(r, s, z) y = DequantizeLinear(p, s, z) }}"""


@pytest.mark.parametrize(("factors", "more"), WANTED)
def test_whole_factors_become_means(factors, more, onnx_text, canonical):
    model = canonical(onnx_text(NETWORK.format(factors, more)), rewriting=True)
    assert [node.op_type for node in model.graph] == WANTED[factors, more]


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_only_the_first_mean_of_a_power_of_two_has_padding(factor, onnx_text, canonical):
    model = canonical(onnx_text(NETWORK.format(f"{factor}.0, {factor}.0", "")), rewriting=True)
    first, *others = [node for node in model.graph if node.op_type == "AveragePool"]
    assert (*first.attributes.get_ints("pads"),) == (1, 1, 1, 1)
    assert {(*node.attributes.get_ints("pads"),) for node in others} == {(0, 0, 0, 0)}
    assert {(*node.attributes.get_ints("kernel_shape"),) for node in others} == {(2, 2)}


def test_the_published_strategies_see_one_operator(onnx_text, canonical):
    model = canonical(onnx_text(NETWORK.format("2.0, 2.0", "")))
    assert [node.op_type for node in model.graph] == ["Resize"]


def test_a_quantised_model_says_itself_what_is_rounded(onnx_text):
    text = QUANTISED.format(5, 4, "2.0, 2.0")
    compiled = compile_model(ir.from_proto(onnx_text(text)), load_hw("opu-light"))
    assert [compiled.dfg[op.node].op for op in compiled.partition.host] == ["host:Resize"]


COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]


def image(rows: int, cols: int, factors: str, more: str) -> str:
    return f"""g (float[1,3,{rows},{cols}] x) => (float[A,B,C,D] y)
        <float[4] by = {{1.0, 1.0, {factors}}}> {{ [r] y = Resize<{more}>(x, , by) }}"""


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize(("mode", "factors"), [("linear", "5.0, 8.0"), ("cubic", "4.5, 3.0")])
def test_a_single_pixel_is_repeated_however_it_is_interpolated(
    mode, factors, coordinates, onnx_text, canonical
):
    """The image-pooling branch of a segmentation network: not an average over the whole map."""
    more = f'mode="{mode}", coordinate_transformation_mode="{coordinates}"'
    (node,) = canonical(onnx_text(image(1, 1, factors, more)), rewriting=True).graph
    assert (node.op_type, node.attributes.get_string("mode")) == ("Resize", "nearest")


@pytest.mark.parametrize(("rows", "cols", "factors"), [(1, 4, "3.0, 2.0"), (5, 1, "2.0, 6.0")])
@pytest.mark.parametrize("corners", ["", CORNERS])
def test_a_single_row_or_column_is_not_averaged(rows, cols, factors, corners, onnx_text, canonical):
    text = image(rows, cols, factors, f'mode="linear" {corners}')
    first, *means = canonical(onnx_text(text), rewriting=True).graph
    assert first.op_type == "Resize"
    windows = [node.attributes.get_ints("kernel_shape") for node in means]
    assert {window[0 if rows == 1 else 1] for window in windows} == {1}
    assert {window[1 if rows == 1 else 0] for window in windows} == {2}


def test_a_single_row_of_which_no_column_grows_is_repeated(onnx_text, canonical):
    text = image(1, 4, "3.0, 1.0", 'mode="cubic"')
    (node,) = canonical(onnx_text(text), rewriting=True).graph
    assert node.attributes.get_string("mode") == "nearest"


def test_what_reads_beyond_a_single_pixel_is_left_alone(onnx_text, canonical):
    text = """g (float[1,3,1,1] x) => (float[A,B,C,D] y)
        <float[8] roi = {0.0, 0.0, -1.0, -1.0, 1.0, 1.0, 2.0, 2.0},
         float[4] by = {1.0, 1.0, 4.0, 4.0}> {
        [r] y = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">
            (x, roi, by) }"""
    (node,) = canonical(onnx_text(text), rewriting=True).graph
    assert node.attributes.get_string("mode") == "linear"


def test_a_single_quantised_pixel_is_repeated_on_the_machine(onnx_text):
    text = QUANTISED.format(1, 1, "10.0, 8.0")
    compiled = compile_model(ir.from_proto(onnx_text(text)), load_hw("opu-light"))
    assert compiled.partition.host == ()
