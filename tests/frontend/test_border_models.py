"""What no machine and no host can run is refused before anything else reads it, in one line that
names the node; nothing crashes, nothing comes to no end, nothing asks for all memory.
"""

import os
import re
import time
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing import onnx_checks
from opu_fuse.frontend.importing.load import load, load_model
from opu_fuse.frontend.prepare import prepare
from tests.some import some

Text = Callable[..., onnx.ModelProto]


def refused(model: onnx.ModelProto, message: str, budget: float = 1.0) -> None:
    with pytest.raises(ModelError) as caught:
        load(model, budget=budget)
    text = str(caught.value)
    assert "\n" not in text
    assert re.search(message, text), text


def net(body: str, x: str = "float[1,4,8,8]", y: str = "float[1,4,8,8]") -> str:
    return f"g ({x} x) => ({y} y) {{ {body} }}"


WINDOWS = {
    "stride 0": ("Conv<strides=[0,1]>(x, w)", "Conv.*strides must only contain positive"),
    "stride below 0": ("Conv<strides=[-2,1]>(x, w)", "Conv.*strides must only contain positive"),
    "dilation 0": ("Conv<dilations=[0,1]>(x, w)", r"dilation"),
    "one stride": ("Conv<strides=[1]>(x, w)", r"Conv.*strides has incorrect size"),
    "three pads": ("Conv<pads=[1,1,1]>(x, w)", r"Conv.*pads has incorrect size"),
    "pads below 0": ("Conv<pads=[-1,0,0,0]>(x, w)", "Conv.*pads must not contain negative"),
    "group 0": ("Conv<group=0>(x, w)", r"group"),
    "group 3": ("Conv<group=3>(x, w)", r"\(Conv\).*weight is 4x4x3x3 in 3 groups"),
    "another kernel": ("Conv<kernel_shape=[2,2]>(x, w)", r"kernel_shape differs from its weight"),
    "a kernel larger than its map": (
        "Conv<dilations=[4,4]>(x, w)",
        r"its window 9x9 is larger than its padded operand 8x8",
    ),
    "a word for padding": ('Conv<auto_pad="BIG">(x, w)', "auto_pad"),
    "a pool without a window": ("MaxPool(x)", r"kernel_shape"),
    "a pool in its padding": (
        "AveragePool<kernel_shape=[2,2], pads=[2,0,0,0]>(x)",
        r"pads \[2, 0, 0, 0\] are not smaller than the window 2x2",
    ),
    "a pool larger than its map": ("MaxPool<kernel_shape=[9,9]>(x)", r"its window 9x9 is larger"),
    "channels": ("Conv(x, v)", r"\(Conv\).*its weight is 4x3x1x1 in 1 group, .* has 4 channels"),
    "bias": ("Conv(x, w, b)", r"Conv.*bias|its bias is 5, it has 4 output channels"),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_that_cannot_be(kind: str, onnx_text: Text):
    call, message = WINDOWS[kind]
    weights = {
        "w": np.ones((4, 4, 3, 3), np.float32),
        "v": np.ones((4, 3, 1, 1), np.float32),
        "b": np.ones(5, np.float32),
    }
    refused(onnx_text(net(f"y = {call}"), **weights), message)


@pytest.mark.parametrize(
    ("call", "attribute"),
    [
        ('Resize<mode="linear">(x, none, none, to)', "coordinate_transformation_mode"),
        ("Pad(x, pads)", "mode"),
        ("Conv(x, w)", "auto_pad"),
    ],
)
def test_an_attribute_that_is_no_text(call: str, attribute: str, onnx_text: Text):
    weights = {
        "w": np.ones((4, 4, 1, 1), np.float32),
        "to": np.array([1, 4, 8, 8]),
        "pads": np.zeros(8, np.int64),
        "none": np.zeros(0, np.float32),
    }
    model = onnx_text(net(f"y = {call}"), **weights)
    model.graph.node[0].attribute.append(helper.make_attribute(attribute, b"\xff"))
    refused(model, rf"its {attribute} is b'\\xff', which is no text; check|{attribute}")


KINDS = {
    "a sequence": ("seq(float[2]) s", "input 's' is a sequence; only tensors of numbers"),
    "an optional": ("optional(float[2]) s", "input 's' is a optional; only tensors of numbers"),
    "strings": ("string[2] s", "input 's' is a string tensor; only tensors of numbers"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_that_are_no_tensors_of_numbers(kind: str, onnx_text: Text):
    declared, message = KINDS[kind]
    text = f"g (float[1,4] x, {declared}) => (float[1,4] y) {{ y = Relu(x) }}"
    refused(onnx_text(text), message)


def test_a_sequence_inside(onnx_text: Text):
    text = """g (float[1,4] x, int64 i) => (float[1,4] y)
    { s = SequenceConstruct(x, x)  y = SequenceAt(s, i) }"""
    refused(onnx_text(text), r"node 'SequenceConstruct_0' \(SequenceConstruct\): its result 's' is")


def test_control_flow(onnx_text: Text):
    text = """g (float[1,4] x, bool c) => (float[1,4] y) {
        y = If(c) <then_branch = a () => (float[1,4] t) { t = Relu(x) },
                   else_branch = b () => (float[1,4] e) { e = Abs(x) }>
    }"""
    refused(
        onnx_text(text), r"node 'If_0' \(If\): control flow .* its condition is computed; export it"
    )


def test_a_condition_that_is_known_is_no_control_flow(onnx_text: Text):
    text = """g (float[1,4] x) => (float[1,4] y) {
        y = If(c) <then_branch = a () => (float[1,4] t) { t = Relu(x) },
                   else_branch = b () => (float[1,4] e) { e = Abs(x) }>
    }"""
    loaded = load_model(onnx_text(text, c=np.array(True)))
    assert [n.op_type for n in loaded.graph] == ["Relu"]


GRAPHS: dict[str, tuple[Callable[[onnx.GraphProto], object], str]] = {
    "a cycle": (lambda g: g.node[0].input.__setitem__(0, "y"), "sorted, however input 'y'"),
    "nobody makes it": (lambda g: g.node[1].input.__setitem__(0, "nope"), "input 'nope'"),
    "made twice": (lambda g: g.node[1].output.__setitem__(0, "r"), "'r' has been used .* multiple"),
    "no operator": (lambda g: setattr(g.node[0], "op_type", "Rely"), "No Op registered for Rely"),
    "no operand": (lambda g: g.node[0].ClearField("input"), r"Relu.*input size 0 not in range"),
    "another attribute": (
        lambda g: g.node[0].attribute.append(helper.make_attribute("slope", 1.0)),
        "Unrecognized attribute: slope for operator Relu",
    ),
    "an output of nobody": (lambda g: setattr(g.output[0], "name", "z"), "output 'z' is not"),
    "text": (lambda g: setattr(g.input[0].type.tensor_type, "elem_type", 8), "is a string tensor"),
    "unequal types": (
        lambda g: setattr(g.input[0].type.tensor_type, "elem_type", 7),
        r"op_type:Abs|op_type:Relu|op_type:Add.*inconsistent type",
    ),
    "below nothing": (
        lambda g: setattr(g.input[0].type.tensor_type.shape.dim[1], "dim_value", -3),
        "dimension 1 of input 'x' is -3",
    ),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_graphs_that_are_none(kind: str, onnx_text: Text):
    change, message = GRAPHS[kind]
    model = onnx_text(
        "g (float[1,4] x) => (float[1,4] y) { r = Relu(x)  y = Add(r, w) }",
        w=np.ones((1, 4), np.float32),
    )
    change(model.graph)
    refused(model, message)


BIG = {
    "one value": (
        net("y = Resize(x, none, none, to)", y="float[1,4,1000,9000]"),
        {"to": np.array([1, 4, 1000, 9000]), "none": np.zeros(0, np.float32)},
        r"\(Resize\): 36,000,000 elements are more than the 33,554,432 allowed; .* budget=2$",
    ),
    "terabytes": (
        "g (float[1,4,1000000,1000000] x) => (float[1,4,1000000,1000000] y) { y = Relu(x) }",
        {},
        "input 'x': 4,000,000,000,000 elements are more .* budget=119210$",
    ),
    "a constant of terabytes": (
        net("c = ConstantOfShape(to)  s = ReduceSum(c)  y = Add(x, s)"),
        {"to": np.array([1 << 20, 1 << 20])},
        r"\(ConstantOfShape\): 1,099,511,627,776 elements",
    ),
    "a range of terabytes": (
        net("r = Range(z, n, o)  s = ReduceSum(r)  c = Cast<to=1>(s)  y = Add(x, c)"),
        {"z": np.array(0), "n": np.array(1 << 40), "o": np.array(1)},
        r"\(Range\): 1,099,511,627,776 elements",
    ),
    "products": (
        net("y = Conv<pads=[7,7,7,7]>(x, w)", "float[1,256,1024,128]", "float[1,256,1024,128]"),
        {"w": np.ones((256, 256, 15, 15), np.float32)},
        r"\(Conv\): 1,932,735,283,200 multiplications up to here are more .* budget=8$",
    ),
}


@pytest.mark.parametrize("kind", BIG)
def test_networks_over_the_budget(kind: str, onnx_text: Text):
    text, weights, message = BIG[kind]
    begun = time.monotonic()
    refused(onnx_text(text, **weights), message)
    assert time.monotonic() - begun < 20


def test_the_budget_can_be_raised(onnx_text: Text):
    text, weights, _ = BIG["one value"]
    model = onnx_text(text, **weights)
    assert load(model, budget=2.0).model.graph.outputs[0].shape == [1, 4, 1000, 9000]
    refused(model, "are more than the 16,777,216 allowed", budget=0.5)


@pytest.mark.parametrize("shape", [(1, 0), (0, 4)])
def test_values_without_elements_stay_on_the_host(shape: tuple[int, ...], onnx_text: Text):
    size = ",".join(map(str, shape))
    text = f"g (float[{size}] x) => (float[{size}] y) {{ r = Relu(x)  y = Add(r, r) }}"
    prepared = prepare(onnx_text(text))
    assert [v.meta for node in prepared.canonical.graph for v in node.outputs] == [{}, {}]


def test_other_batches_without_convolutions_stay_on_the_host(onnx_text: Text):
    text = "g (float[3,4,5,6] x) => (float[3,4,5,6] y) { y = Softmax<axis=1>(x) }"
    assert load_model(onnx_text(text)).graph.outputs[0].shape == [3, 4, 5, 6]


def test_other_floats_without_convolutions_stay_on_the_host(onnx_text: Text):
    text = "g (float16[1,4] x) => (double[1,4] y) { r = Relu(x)  y = Cast<to=11>(r) }"
    assert [n.op_type for n in load_model(onnx_text(text)).graph] == ["Relu", "Cast"]


@pytest.mark.forks
def test_a_crash_of_onnx_is_one_line(onnx_text: Text, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_checks, "infer", lambda _: os.abort())
    refused(onnx_text(net("y = Relu(x)")), r"the graph is invalid \(crashed \(SIGABRT\)\); check")


@pytest.mark.forks
def test_inference_without_an_end_is_one_line(onnx_text: Text, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_checks, "patience", lambda _: 0.3)
    monkeypatch.setattr(onnx_checks, "infer", lambda _: time.sleep(60))
    refused(onnx_text(net("y = Relu(x)")), r"invalid \(stopped after 0 s without an end\)")


def test_an_old_model_keeps_its_weights_when_it_is_converted(onnx_text: Text):
    """They do not travel to the converter; what it makes reads them all the same."""
    weights = {
        "w": np.random.default_rng(1).normal(size=(4, 4, 3, 3)).astype(np.float32),
        "s": np.array([1, 256]),
    }
    text = "g (float[1,4,8,8] x) => (float[1,256] y) "
    body = "{ c = Conv<pads=[1,1,1,1]>(x, w)  d = Dropout<ratio=0.5>(c)  y = Reshape(d, s) }"
    loaded = load_model(onnx_text(text + body, opset=8, ir_version=4, **weights))
    assert loaded.opset_imports[""] == 17
    assert np.array_equal(some(loaded.graph.initializers["w"].const_value).numpy(), weights["w"])


def _node_model(data: onnx.TensorProto) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    nodes = [helper.make_node("Constant", [], ["c"], value=data)]
    nodes.append(helper.make_node("Add", ["x", "c"], ["y"]))
    graph = helper.make_graph(nodes, "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_constant_with_data_missing():
    data = onnx.numpy_helper.from_array(np.ones((1, 4), np.float32), "c")
    data.raw_data = data.raw_data[:-4]
    refused(_node_model(data), "the graph is invalid .*c.*|data are missing")


@pytest.mark.parametrize(
    ("scales", "zeros", "axis", "message"),
    [
        (8, 8, 1, r"it has 8 scales for axis 1 of a value of 8x3x3x3"),
        (8, 8, 9, r"axis"),
        (8, 1, 0, r"it has 8 scales and 1 zero points|zero"),
    ],
)
def test_scales_that_do_not_fit(scales: int, zeros: int, axis: int, message: str, onnx_text: Text):
    text = f"""g (float[1,3,8,8] x) => (float[1,8,6,6] y)
    {{ w = DequantizeLinear<axis={axis}>(q, s, z)  y = Conv(x, w) }}"""
    weights = {
        "q": np.ones((8, 3, 3, 3), np.int8),
        "s": np.ones(scales, np.float32),
        "z": np.zeros(zeros, np.int8),
    }
    refused(onnx_text(text, **weights), message)


def test_an_output_that_is_listed_twice(onnx_text: Text):
    text = "g (float[1,4] x) => (float[1,4] y, float[1,4] z) { y = Relu(x) z = Abs(x) }"
    model = onnx_text(text)
    model.graph.output.append(model.graph.output[0])
    refused(model, "output 'y' is listed 2 times as an output; list it once$")


@pytest.mark.parametrize("scale", [-1.0, 0.0, np.nan, np.inf])
def test_scales_that_are_no_positive_numbers(scale: float, onnx_text: Text):
    text = """g (float[1,4] x) => (float[1,4] y) { q = QuantizeLinear(x, s, z)
    y = DequantizeLinear(q, s, z) }"""
    model = onnx_text(text, s=np.float32(scale), z=np.int8(0))
    refused(model, r"\(QuantizeLinear\): it has a scale of \S+, scales are positive numbers;")


def test_strings_that_are_declared_as_numbers_are_strings(onnx_text: Text):
    model = onnx_text(
        net("y = Conv<pads=[7,7,7,7]>(x, w)"), opset=16, w=np.ones((4, 4, 15, 15), np.float32)
    )
    (weight,) = model.graph.initializer
    declared = helper.make_tensor_value_info("w", TensorProto.FLOAT, weight.dims)
    model.graph.value_info.append(declared)
    weight.data_type = TensorProto.STRING
    refused(model, r"\(Conv\): its operand 'w' holds strings; only tensors of numbers")
