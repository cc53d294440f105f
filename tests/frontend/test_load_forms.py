"""Ordinary exports just work: old opsets, dynamic batch, unnamed nodes, computed shapes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse import zoo
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare
from opu_fuse.quant import META_KEY
from tests.some import some
from tests.written import written

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
CONV = """
agraph (float[N, 3, 8, 8] x) => (float[N, 4, H, W] y) {
    a = Conv <pads = [1, 1, 1, 1]> (x, w)
    b = Relu (a)
    c = Relu (b)
    y = Identity (c)
}
"""
WEIGHT = np.ones((4, 3, 3, 3), np.float32)


def shape(value: ir.Value) -> list[int]:
    return [int(d) for d in value.shape or ()]  # type: ignore[arg-type]  # dimensions were fixed by `load`


def test_a_dynamic_batch_becomes_one_everywhere(onnx_text: Callable[..., onnx.ModelProto]):
    model = load_model(onnx_text(CONV, w=WEIGHT))
    assert shape(model.graph.inputs[0]) == [1, 3, 8, 8]
    assert [shape(v) for n in model.graph for v in n.outputs] == [[1, 4, 8, 8]] * len(model.graph)


@pytest.mark.parametrize(
    "operator", ["GroupNormalization<num_groups=2>(x, ones, ones)", "MeanVarianceNormalization(x)"]
)
def test_a_normalisation_keeps_the_shape_although_onnx_does_not_know(operator: str):
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,6,6] x) => (float[a,b,c,d] y)
    <float[4] ones = {{1, 1, 1, 1}}, float[5,4,3,3] w> {{ n = {operator}  y = Conv(n, w) }}"""
    made = {
        v.name: shape(v) for node in load_model(written(text, seed=1)).graph for v in node.outputs
    }
    assert made["y"] == [1, 5, 4, 4]
    assert [1, 4, 6, 6] in made.values()


def test_values_share_a_shape_that_nobody_changes_and_no_type(
    onnx_text: Callable[..., onnx.ModelProto],
):
    nodes = list(load_model(onnx_text(CONV, w=WEIGHT)).graph)
    first, second = (node.outputs[0] for node in nodes[:2])
    assert first.shape is second.shape
    with pytest.raises(TypeError, match="frozen"):
        first.shape[0] = 2  # type: ignore[index]  # known after `load`
    first.dtype = ir.DataType.FLOAT16
    assert second.dtype == ir.DataType.FLOAT


def test_unnamed_nodes_get_unique_names_and_know_themselves(
    onnx_text: Callable[..., onnx.ModelProto],
):
    model = load_model(onnx_text(CONV, w=WEIGHT))
    names = [node.name for node in model.graph]
    assert names == ["Conv_0", "Relu_0", "Relu_1", "Identity_0"][: len(names)]
    assert [n.metadata_props["opu_fuse.source"] for n in model.graph] == names


def test_equal_node_names_are_told_apart(onnx_text: Callable[..., onnx.ModelProto]):
    proto = onnx_text(CONV, w=WEIGHT)
    for node in proto.graph.node:
        node.name = "same"
    names = [node.name for node in load_model(proto).graph]
    assert len(set(names)) == len(names)
    assert names[0] == "same"


def test_the_callers_object_is_not_changed():
    model = zoo.build("tiny_odd")
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    prepare(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_initialisers_that_are_inputs_too_are_no_inputs(onnx_text: Callable[..., onnx.ModelProto]):
    proto = onnx_text(CONV, ir_version=3, opset=7, w=WEIGHT)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", 1, WEIGHT.shape))
    assert [v.name for v in load_model(proto).graph.inputs] == ["x"]


def test_opset_seven_with_batch_norm_sum_and_dropout(
    onnx_text: Callable[..., onnx.ModelProto], canonical: Callable[..., ir.Model]
):
    proto = onnx_text(
        """
        agraph (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {
            a = Conv <kernel_shape = [1, 1]> (x, w)
            b = BatchNormalization <epsilon = 0.001> (a, v, v, v, v)
            c = Dropout <ratio = 0.5> (b)
            d = Clip <min = 0.0, max = 6.0> (c)
            y = Sum (d, x, c)
        }
        """,
        opset=7,
        ir_version=3,
        w=np.ones((3, 3, 1, 1), np.float32),
        v=np.asarray([0.5, 1.0, 2.0], np.float32),
    )
    for name, data in (("w", [3, 3, 1, 1]), ("v", [3])):
        proto.graph.input.append(onnx.helper.make_tensor_value_info(name, 1, data))
    model = canonical(proto)
    assert [n.op_type for n in model.graph] == ["Conv", "Clip", "Add", "Add"]
    assert model.graph.opset_imports[""] == 17


@pytest.mark.parametrize(("opset", "of_functions"), [(11, 11), (12, 11), (17, 14), (17, 18)])
def test_functions_may_have_another_opset_than_the_model(opset: int, of_functions: int):
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "f" : 1]>
    g (float[1,4] x) => (float[1,4] y) {{ a = f.both (x)  y = f.rise (a) }}
    <domain: "f", opset_import: ["" : {of_functions}, "f" : 1]>
    both (v) => (w) {{ a = f.rise (v)  w = Abs (a) }}
    <domain: "f", opset_import: ["" : {of_functions}]>
    rise (v) => (w) {{ w = Exp (v) }}"""
    model = load_model(onnx.parser.parse_model(text))
    assert [n.op_type for n in model.graph] == ["Exp", "Abs", "Exp"]
    assert not model.functions
    assert [shape(n.outputs[0]) for n in model.graph] == [[1, 4]] * 3


def test_shape_arithmetic_is_computed(
    onnx_text: Callable[..., onnx.ModelProto], canonical: Callable[..., ir.Model]
):
    model = canonical(
        onnx_text(
            """
            agraph (float[N, 3, 4, 4] x) => (float[N, M] y) {
                s = Shape (x)
                n = Gather <axis = 0> (s, zero)
                u = Unsqueeze (n, first)
                t = Concat <axis = 0> (u, rest)
                y = Reshape (x, t)
            }
            """,
            zero=np.asarray(0, np.int64),
            first=np.asarray([0], np.int64),
            rest=np.asarray([-1], np.int64),
        )
    )
    (node,) = model.graph
    assert node.op_type == "Reshape"
    assert some(some(node.inputs[1]).const_value).numpy().tolist() == [1, 48]


def test_external_data_beside_the_file(tmp_path: Path, onnx_text: Callable[..., onnx.ModelProto]):
    path = tmp_path / "big.onnx"
    onnx.save(
        onnx_text(CONV, w=WEIGHT),
        path,
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    (weight,) = load_model(path).graph.initializers.values()
    assert np.array_equal(some(weight.const_value).numpy(), WEIGHT)


def test_the_hash_is_that_of_the_bytes(tmp_path: Path):
    path = tmp_path / "net.onnx"
    ir.save(zoo.build("tiny_odd"), path)
    one, two = prepare(path, quantised=False), prepare(path)
    ir.save(zoo.build("tiny_odd", seed=1), path)
    other = prepare(path, quantised=False)
    assert one.source_hash == two.source_hash != other.source_hash
    assert len(one.source_hash) == 64


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "operators"),
    [
        (
            "light_resnet50",
            {"Conv": 53, "Relu": 49, "MaxPool": 1, "Add": 16, "GlobalAveragePool": 1},
        ),
        pytest.param(
            *("light_vgg19", {"Conv": 16, "Relu": 18, "MaxPool": 5}), marks=pytest.mark.nightly
        ),
    ],
)
def test_the_light_models_of_onnx_are_prepared_unchanged(name: str, operators: dict[str, int]):
    operators = operators | {"Reshape": 1, "Gemm": operators.get("Gemm", 3 if "vgg" in name else 1)}
    model = prepare(LIGHT / f"{name}.onnx").canonical
    types = [node.op_type for node in model.graph]
    assert {t: types.count(t) for t in operators} == operators
    assert types[-1] == "Softmax"
    assert len(types) == sum(operators.values()) + 1
    unrounded = [v.name for n in model.graph for v in n.outputs if META_KEY not in v.meta]
    assert unrounded == [model.graph.outputs[0].name]
    weights = [n.inputs[1] for n in model.graph if n.op_type in {"Conv", "Gemm"}]
    assert all(some(some(w).const_value).dtype == ir.DataType.INT8 for w in weights)


@pytest.mark.parametrize("opset", [9, 13, 17, 22])
def test_a_default_that_inference_does_not_know_hides_no_shape(opset: int):
    """A normalisation over images and places, without axes: the convolution behind it went to the
    host, and an output there was refused (no static shape).
    """
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    agraph (float[1, 3, 8, 8] x) => (float[N, C, H, W] n, float[M, D, I, J] y) {{
        n = MeanVarianceNormalization (x) y = Conv <pads = [1, 1, 1, 1]> (n, w)
    }}"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(WEIGHT, "w"))
    found = load_model(model)
    assert [shape(v) for v in found.graph.outputs] == [[1, 3, 8, 8], [1, 4, 8, 8]]
