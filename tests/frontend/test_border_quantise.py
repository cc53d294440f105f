"""The quantiser is ONNX Runtime's: what it does with names, with nothing, and with bad values."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import quantize_dynamic

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.toposort import sort_nodes
from opu_fuse.frontend.prepare import Prepared, prepare
from opu_fuse.frontend.qdq_reference import reference
from opu_fuse.quant import META_KEY

Text = Callable[..., onnx.ModelProto]
REGRESSIONS = Path(__file__).resolve().parent.parent / "regressions"


def close_to_float(model: onnx.ModelProto, prepared: Prepared, tolerance: float) -> None:
    rng = np.random.default_rng(7)
    inputs = {}
    for value in model.graph.input:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        inputs[value.name] = rng.standard_normal(dims, np.float32)
    assert prepared.qdq is not None
    got, wanted = reference(prepared.qdq, inputs), reference(model, inputs)
    for name in (o.name for o in model.graph.output):
        np.testing.assert_allclose(got[name], wanted[name], atol=tolerance)


@pytest.mark.parametrize("name", ["swish", "xtanh"])
def test_a_table_alone_is_rounded_and_nothing_else_is(name: str):
    """Nothing to quantise is said to the library by no operator types: no nodes would mean all."""
    model = onnx.load(REGRESSIONS / f"{name}.onnx")
    prepared = prepare(model)
    results = {n.op_type: n.outputs[0].meta.get(META_KEY) for n in prepared.canonical.graph}
    inside = {"swish": ["Sigmoid"], "xtanh": ["Tanh"]}
    assert [op for op, quant in results.items() if quant is None] == inside[name]
    close_to_float(model, prepared, 0.1)


SUFFIXES = (
    *("_QuantizeLinear_Output", "_DequantizeLinear_Output", "_QuantizeLinear_Input"),
    *("_scale", "_zero_point"),
)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_values_may_be_called_like_those_of_the_quantiser(suffix: str, onnx_text: Text):
    text = f"""g (float[1,4,6,6] x) => (float[1,4,6,6] y)
    {{ r = Relu(x)  r{suffix} = Abs(r)  x{suffix} = Add(r{suffix}, r)  y = Mul(x{suffix}, r) }}"""
    model = onnx_text(text)
    close_to_float(model, prepare(model), 0.6)


def test_what_was_quantised_for_each_image_has_names_of_the_quantiser(
    onnx_text: Text, tmp_path: Path, rng: np.random.Generator
):
    """Of nodes too: quantised so once, a model has `c_QuantizeLinear` beside `c`."""
    weights = {n: rng.normal(size=(4, 4, 3, 3)).astype(np.float32) * 0.2 for n in "wv"}
    text = """g (float[1,4,6,6] x) => (float[1,4,2,2] y)
    { c = Conv(x, w)  r = Relu(c)  y = Conv(r, v) }"""
    onnx.save(onnx_text(text, **weights), tmp_path / "f.onnx")
    quantize_dynamic(tmp_path / "f.onnx", tmp_path / "q.onnx")
    model = onnx.load(tmp_path / "q.onnx")
    prepared = prepare(model)
    close_to_float(model, prepared, 0.3)
    assert prepared.qdq is not None
    names = [node.name for node in prepared.qdq.graph.node]
    assert len(set(names)) == len(names)
    assert {node.name for node in model.graph.node} - {""} <= {*names}


def test_weights_may_be_called_like_those_of_the_quantiser(onnx_text: Text):
    text = """g (float[1,4,6,6] x) => (float[1,4,6,6] y)
    { c = Conv(x, w)  d = Conv(c, w_quantized)  y = Conv(d, w_scale) }"""
    rng = np.random.default_rng(5)
    names = ("w", "w_quantized", "w_scale")
    weights = {n: rng.normal(size=(4, 4, 1, 1)).astype(np.float32) * 0.3 for n in names}
    model = onnx_text(text, **weights)
    close_to_float(model, prepare(model), 0.2)


def test_an_input_keeps_its_name_or_is_refused(onnx_text: Text):
    text = "g (float[1,4] x, float[1,4] x_scale) => (float[1,4] y) { y = Add(x, x_scale) }"
    with pytest.raises(ModelError, match=r"input 'x_scale': quantising needs .*rename the"):
        prepare(onnx_text(text))


def test_sorting_ends_on_a_cycle():
    a, b = (helper.make_node("Relu", [x], [y], name=y) for x, y in ("ab", "ba"))
    graph = helper.make_graph([a, b], "g", [], [])
    assert sort_nodes(graph) == "b"
    assert [node.name for node in graph.node] == ["b", "a"]


def test_what_onnx_runtime_cannot_run_is_one_line(onnx_text: Text):
    text = """g (float[1,4] x, int64[2] i) => (float[1,2] y)
    { r = Relu(x)  t = Gather<axis=1>(r, i)  y = Relu(t) }"""
    data = {"x": np.ones((1, 4), np.float32), "i": np.array([0, 99])}
    with pytest.raises(ModelError, match=r"cannot run the model \(.*Gather.*\); try") as caught:
        prepare(onnx_text(text), calibration=data)
    assert "\n" not in str(caught.value)
    assert "calibration data" not in str(caught.value)  # its names, shapes and types are right


def test_integers_stand_for_themselves_in_noise(onnx_text: Text):
    text = """g (uint8[1,3,6,6] x, int64[1] i) => (float[1,2,6,6] y)
    { f = Cast<to=1>(x)  g = Gather<axis=1>(f, i)  c = Concat<axis=1>(g, g)  y = Relu(c) }"""
    prepared = prepare(onnx_text(text))
    quant = prepared.canonical.graph.outputs[0].meta[META_KEY]
    assert quant.per_tensor == 2.0, "bytes of an image reach 255"


COMPUTED = {
    "Resize": "y = Resize(x, none, n)",
    "Clip": "y = Clip(x, n)",
    "BatchNormalization": "y = BatchNormalization(x, n, n, n, n)",
}


@pytest.mark.parametrize("op", COMPUTED)
def test_operators_whose_numbers_are_inputs_are_not_rounded(op: str, onnx_text: Text):
    """No machine runs them; noise would stand for scales, bounds and variances."""
    size = {"Clip": "", "BatchNormalization": "[2]"}.get(op, "[4]")
    text = f"g (float[1,2,3,3] x, float{size} n) => (float[1,2,3,3] y) {{ {COMPUTED[op]} }}"
    prepared = prepare(onnx_text(text, none=np.zeros(0, np.float32)))
    assert prepared.warnings == (), "nothing is calibrated"
    assert not any(v.meta for node in prepared.canonical.graph for v in node.outputs)


def test_inputs_of_integers_keep_the_names_that_go_with_them(onnx_text: Text):
    text = """g (uint8[1,1,3,3] x, uint8[1] x_zero_point) => (int32[1,1,2,2] y)
    { y = ConvInteger(x, w, x_zero_point) }"""
    prepared = prepare(onnx_text(text, w=np.ones((1, 1, 2, 2), np.uint8)))
    assert [v.name for v in prepared.canonical.graph.inputs] == ["x", "x_zero_point"]


def test_models_newer_than_onnx_runtime_are_calibrated(onnx_text: Text):
    """The onnx package is ahead of it; the operators are old."""
    text = "g (float[1,4] x) => (float[1,4] y) { r = Relu(x)  y = Add(r, r) }"
    newest = onnx.defs.onnx_opset_version()
    model = onnx_text(text, opset=newest, ir_version=int(onnx.IR_VERSION))
    assert all(v.meta for node in prepare(model).canonical.graph for v in node.outputs)
