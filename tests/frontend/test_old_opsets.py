"""Models of every operator set from 7 on give what they gave: ONNX Runtime, before and after."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.importing.validate import TARGET_OPSET

_RNG = np.random.default_rng(7)


def noise(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape).astype(np.float32)


IMAGE = noise(1, 4, 9, 9)
VECTOR, CHANNEL = noise(4), noise(4, 1, 1)
POSITIVE = np.abs(VECTOR) + np.float32(0.5)
FILTERS, ROWS = noise(5, 4, 3, 3), noise(4, 3, 3, 3)
TWICE = np.array([1, 1, 2, 2.25], np.float32)
HALF = np.array([1, 1, 0.5, 0.4], np.float32)
Case = tuple[str, dict[str, Any], Sequence[np.ndarray]]
CASES: list[Case] = [
    *(("Softmax", {"axis": axis}, ()) for axis in (1, 2, -1)),
    *((op, {}, ()) for op in ("Softmax", "LogSoftmax", "Identity", "Flatten", "Squeeze")),
    *((op, {}, ()) for op in ("Sigmoid", "Tanh", "Elu", "Selu", "HardSigmoid", "Softplus")),
    *((op, {}, ()) for op in ("Softsign", "Abs", "Neg", "Exp", "Floor", "LeakyRelu", "Relu")),
    *((op, {}, ()) for op in ("GlobalAveragePool", "GlobalMaxPool", "Dropout", "Shape")),
    *(("BatchNormalization", form, (POSITIVE, VECTOR, VECTOR, POSITIVE)) for form in
      ({}, {"epsilon": 0.1, "momentum": 0.5})),
    *(("Clip", form, ()) for form in ({"min": -0.5, "max": 0.5}, {"max": 0.5}, {})),
    *(("Pad", {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": mode}, ()) for mode in
      ("constant", "reflect", "edge")),
    ("Slice", {"starts": [1, -3], "ends": [3, 100], "axes": [1, 3]}, ()),
    ("Unsqueeze", {"axes": [0, 3]}, ()),
    *((op, {"axes": [2, 3], "keepdims": keep}, ()) for keep in (0, 1) for op in
      ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL1", "ReduceL2", "ReduceLogSumExp")),
    ("Split", {"axis": 1, "split": [1, 3]}, ()),
    *((op, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 0, 1], **form}, ())
      for form in ({}, {"ceil_mode": 1}) for op in ("AveragePool", "MaxPool", "LpPool")),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}, ()),
    *(("PRelu", {}, (slopes,)) for slopes in (CHANNEL, noise(1))),
    *((op, {}, (CHANNEL,)) for op in ("Add", "Mul", "Sub")),
    *((op, {}, (noise(*IMAGE.shape),)) for op in ("Max", "Min", "Sum", "Mean")),
    ("Div", {}, (POSITIVE.reshape(4, 1, 1),)),
    ("Pow", {}, (np.array([2], np.float32),)),
    ("Concat", {"axis": 1}, (noise(1, 2, 9, 9),)),
    ("Transpose", {"perm": [0, 2, 3, 1]}, ()),
    ("Reshape", {}, (np.array([0, -1, 81]),)),
    ("Gather", {"axis": 1}, (np.array([2, 0]),)),
    ("DepthToSpace", {"blocksize": 2}, ()),
    ("Conv", {"pads": [1, 0, 0, 1]}, (FILTERS, noise(5))),
    ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (FILTERS,)),
    ("ConvTranspose", {"strides": [2, 2], "output_padding": [1, 1]}, (ROWS,)),
    ("ConvTranspose", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (ROWS,)),
    ("ConvTranspose", {"output_shape": [18, 18], "strides": [2, 2]}, (ROWS,)),
    ("LRN", {"size": 3}, ()),
    ("InstanceNormalization", {}, (POSITIVE, VECTOR)),
    *((op, {"mode": mode}, (TWICE,)) for op in ("Upsample", "Resize") for mode in
      ("nearest", "linear")),
    *(("Resize", {"mode": mode}, (HALF,)) for mode in ("nearest", "linear")),
    *(("Upsample", {"mode": mode, "scales": TWICE.tolist()}, ()) for mode in
      ("nearest", "linear")),
    ("ArgMax", {"axis": 1}, ()),
    ("MatMul", {}, (noise(9, 5),)),
]  # fmt: skip


def forms() -> Iterator[Any]:
    """Each case in the last operator set before the operator's form changed, from 7 on."""
    for op, attributes, constants in CASES:
        known = [v for v in range(7, TARGET_OPSET) if onnx.defs.has(op, v)]
        last = {onnx.defs.get_schema(op, v).since_version: v for v in known}
        for version in last.values():
            schema = onnx.defs.get_schema(op, version)
            if op == "Resize" and schema.max_input > 2:  # has modes of its own
                continue
            takes = schema.min_input <= 1 + len(constants) <= schema.max_input
            if takes and not schema.deprecated and attributes.keys() <= schema.attributes.keys():
                name = "-".join([op, str(version), *(str(v) for v in attributes.values())])
                yield pytest.param(op, attributes, constants, version, id=name.replace(" ", ""))


def model(op: str, attributes: dict[str, Any], constants: Sequence[np.ndarray], opset: int):
    names = [f"c{i}" for i in range(len(constants))]
    results = ["y", "z"] if op == "Split" else ["y"]
    node = helper.make_node(op, ["x", *names], results, name="n", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, IMAGE.shape)],
        [helper.make_empty_tensor_value_info(name) for name in results],
        [numpy_helper.from_array(c, name) for c, name in zip(constants, names, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)


def results(proto: onnx.ModelProto) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options)
    return [np.asarray(v) for v in session.run(None, {"x": IMAGE})]


@pytest.mark.parametrize(("op", "attributes", "constants", "opset"), list(forms()))
def test_an_operator_of_an_old_set_means_what_it_meant(op, attributes, constants, opset):
    old = model(op, attributes, constants, opset)
    wanted = results(old)
    found = results(ir.to_proto(load_model(old)))
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-6)


def test_hardmax_of_old_is_refused():
    with pytest.raises(ModelError, match=r"'n' \(Hardmax\): in opset 11 it flattens its operand"):
        load_model(model("Hardmax", {}, (), 11))


@pytest.mark.parametrize(
    ("scales", "why"),
    [
        ("Exp(z)", "its scales are computed"),
        ("Constant<value=float[4] {1.0, 1.0, 2.0, 0.5}>()", "its scales are of both kinds"),
    ],
)
def test_a_resize_that_may_shrink_or_enlarge_is_refused(scales, why):
    text = f"""<ir_version: 5, opset_import: ["" : 10]>
        g (float[1,4,9,9] x, float[4] z) => (float[1,4,h,w] y) {{
        s = {scales} [n] y = Resize<mode="nearest">(x, s) }}"""
    with pytest.raises(ModelError, match=rf"'n' \(Resize\).*{why}.*opset 11 or later"):
        load_model(onnx.parser.parse_model(text))


@pytest.mark.parametrize("part", ["shape", "type"])
def test_an_output_need_not_say_what_it_is(part):
    proto = model("Relu", {}, (), 17)
    if part == "shape":
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    (output,) = load_model(proto).graph.outputs
    assert output.shape == [1, 4, 9, 9]


def test_a_scan_of_a_batch_is_refused():
    """onnx's converter leaves it as it is; later sets scan no batch."""
    body = helper.make_graph(
        [helper.make_node("Add", ["v", "r"], ["w"]), helper.make_node("Neg", ["w"], ["t"])],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "vr"],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "wt"],
    )
    node = helper.make_node("Scan", ["", "x", "m"], ["y", "z"], body=body, num_scan_inputs=1)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2]),
            helper.make_tensor_value_info("m", TensorProto.FLOAT, [1, 3, 2]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3, 2]),
        ],
    )
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    with pytest.raises(ModelError, match=r"Scan.*opset 8.*each image of a batch.*opset 9 or later"):
        load_model(old)
