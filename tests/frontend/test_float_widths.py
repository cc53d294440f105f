"""Networks in other floats than float32 are read as float32 ones; their ends stay what they are."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opu_fuse
from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.quant import META_KEY

Text = Callable[..., onnx.ModelProto]
KINDS = {"float16": np.float16, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}
RNG = np.random.default_rng(6)
WEIGHT = RNG.normal(size=(4, 4, 3, 3)) * 0.2


def network(onnx_text: Text, kind: str) -> onnx.ModelProto:
    """With a constant in a node, and a detour through float32."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(KINDS[kind]))
    text = f"""g ({kind}[1,4,8,8] x) => ({kind}[1,4,8,8] y, {kind}[1,4,8,8] z)
    {{ c = Conv<pads=[1,1,1,1]>(x, w)  k = Constant()  a = Add(c, k)  f = Cast<to=1>(a)
       r = Relu(f)  z = Cast<to={code}>(r)  y = Conv<pads=[1,1,1,1]>(z, w) }}"""
    model = onnx_text(text, opset=22, ir_version=10, w=WEIGHT.astype(KINDS[kind]))
    offset = helper.make_tensor("k", code, [1], [0.25])
    model.graph.node[1].attribute.append(helper.make_attribute("value", offset))
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_values_become_float32(kind: str, onnx_text: Text):
    model = network(onnx_text, kind)
    loaded = load_model(model)
    inner = {v.dtype.name for n in loaded.graph for v in n.outputs if v.dtype is not None}
    ends = {v.dtype.name for v in loaded.graph.outputs if v.dtype is not None}
    assert inner <= {"FLOAT"} | ends
    assert ends == {"float16": {"FLOAT16"}, "double": {"DOUBLE"}, "bfloat16": {"FLOAT"}}[kind]
    nodes = [n for n in prepare(model).canonical.graph if n.op_type != "Cast"]
    assert [n.op_type for n in nodes] == ["Conv", "Relu", "Conv"]
    assert all(META_KEY in n.outputs[0].meta for n in nodes)


def test_a_network_in_float16_runs_and_has_float16_results(onnx_text: Text):
    model = network(onnx_text, "float16")
    images = RNG.normal(size=(4, 1, 4, 8, 8)).astype(np.float16)
    calibration = {"x": images[:, 0].astype(np.float32)}
    program = opu_fuse.compile(model, opu_fuse.load_hw("opu-tiny"), calibration=calibration)
    assert [o.op for g in program.bundle.groups for o in g.ops].count("conv") == 2
    inputs = {"x": images[0]}
    got, wanted = program.run(inputs).outputs["y"], np.asarray(session(model).run(None, inputs)[0])
    assert got.dtype == wanted.dtype == np.float16
    assert np.abs(got - wanted).max() < 0.06 * np.abs(wanted).max()


def test_nodes_in_any_order_are_sorted(onnx_text: Text):
    """Converters to float16 append their Casts."""
    model = network(onnx_text, "float16")
    nodes = list(model.graph.node)
    model.graph.ClearField("node")
    model.graph.node.extend(reversed(nodes))
    assert [n.op_type for n in load_model(model).graph].count("Conv") == 2


def test_what_float32_cannot_hold_is_refused(onnx_text: Text):
    text = "g (double[1,4,8,8] x) => (double[1,4,8,8] y) { y = Conv<pads=[1,1,1,1]>(x, w) }"
    model = onnx_text(text, w=WEIGHT * 1e60)
    assert model.graph.initializer[0].data_type == TensorProto.DOUBLE
    with pytest.raises(ModelError, match="'w' holds"):
        prepare(model)
