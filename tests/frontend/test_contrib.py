"""ONNX Runtime's own operators mean what they mean in operators of the standard."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

import opu_fuse
from opu_fuse import zoo
from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import sources_of
from opu_fuse.frontend.load import load_model
from opu_fuse.frontend.reference import session
from opu_fuse.frontend.spelling.contrib import MEANINGS
from opu_fuse.pipeline import partition_model

Text = Callable[..., onnx.ModelProto]
RNG = np.random.default_rng(45)
W = RNG.normal(size=(8, 4, 3, 3)).astype(np.float32)
ROWS = RNG.normal(size=(6, 8)).astype(np.float32)

CASES = {
    "FusedConv Relu": 'FusedConv<activation="Relu", pads=[1,0,1,1]>(x, w)',
    "FusedConv bias": 'FusedConv<activation="Tanh", strides=[2,2]>(x, w, b)',
    "FusedConv leaky": 'FusedConv<activation="LeakyRelu", activation_params=[0.1]>(x, w, b)',
    "FusedConv clip": 'FusedConv<activation="Clip", activation_params=[-1.0, 2.5]>(x, w, b)',
    "FusedConv hard": 'FusedConv<activation="HardSigmoid", activation_params=[0.3,0.4]>(x, w)',
    "FusedConv swish": 'FusedConv<activation="HardSwish">(x, w, b)',
    "FusedConv sigmoid": 'FusedConv<activation="Sigmoid", auto_pad="SAME_UPPER">(x, w, b)',
    "FusedConv grouped": 'FusedConv<activation="Relu", group=2, dilations=[2,1]>(x, v, b)',
    "FusedConv sum": 'FusedConv<activation="Relu">(x, w, b, z)',
    "FusedConv sum, no bias": 'FusedConv<activation="Relu">(x, w, , z)',
    "FusedGemm Relu": 'FusedGemm<activation="Relu">(m, k)',
    "FusedGemm leaky": 'FusedGemm<activation="LeakyRelu", activation_alpha=0.2>(m, k, b)',
    "FusedGemm turned": 'FusedGemm<activation="Tanh", transA=1, alpha=0.5, beta=2.0>(t, k, b)',
    "FusedGemm transB": 'FusedGemm<activation="Sigmoid", transB=1>(m, kt, b)',
    "FusedGemm Elu": 'FusedGemm<activation="Elu", activation_alpha=0.7>(m, k)',
    "FusedGemm Celu": 'FusedGemm<activation="Celu", activation_alpha=0.7>(m, k)',
    "FusedGemm hard": """FusedGemm<activation="HardSigmoid", activation_alpha=0.3,
        activation_beta=0.4>(m, k)""",
    "FusedGemm Selu": """FusedGemm<activation="Selu", activation_alpha=1.5,
        activation_gamma=1.1>(m, k)""",
    "FusedGemm Softplus": 'FusedGemm<activation="Softplus">(m, k)',
    "FusedGemm Softsign": 'FusedGemm<activation="Softsign">(m, k)',
    "FusedGemm threshold": 'FusedGemm<activation="ThresholdedRelu", activation_alpha=0.5>(m, k)',
    "FusedGemm scaled": """FusedGemm<activation="ScaledTanh", activation_alpha=0.9,
        activation_beta=0.4>(m, k)""",
    "FusedGemm parametric": """FusedGemm<activation="ParametricSoftplus", activation_alpha=0.9,
        activation_beta=0.4>(m, k)""",
    "FusedMatMul alpha": "FusedMatMul<alpha=0.25>(m, k)",
    "FusedMatMul transA": "FusedMatMul<transA=1, alpha=-2.0>(t, k)",
    "FusedMatMul both": "FusedMatMul<transA=1, transB=1>(t, kt)",
    "FusedMatMul maps": "FusedMatMul<transB=1, alpha=0.5>(x, x)",
    "FusedMatMul vector": "FusedMatMul<transB=1>(x, row)",
    "FusedMatMul batch A": "FusedMatMul<transBatchA=1>(c, d)",
    "FusedMatMul batch both": "FusedMatMul<transBatchA=1, transA=1, transBatchB=1>(c, e)",
    "TransposeMatMul": "TransposeMatMul<transB=1>(m, kt)",
    "Gelu": "Gelu(x)",
    "BiasGelu": "BiasGelu(m, six)",
    "FastGelu": "FastGelu(x)",
    "FastGelu bias": "FastGelu(m, six)",
    "QuickGelu": "QuickGelu(x)",
    "QuickGelu alpha 1": "QuickGelu<alpha=1.0>(x)",
    "QuickGelu alpha -2": "QuickGelu<alpha=-2.0>(x)",
    "SkipLayerNormalization": "SkipLayerNormalization<epsilon=0.01>(l, l2, six, six2, half)",
    "SkipLayerNormalization, no beta": "SkipLayerNormalization(l, l2, six, , half)",
    "SkipLayerNormalization, rows": "SkipLayerNormalization(l, six3, six)",
    "SkipSimplified": "SkipSimplifiedLayerNormalization<epsilon=0.01>(l, l2, six, half)",
    "Trilu": "Trilu<upper=0>(x)",
    "GatherND": "GatherND(x, places)",
    "ExpandDims": "ExpandDims(m, axis)",
    "SampleOp": "SampleOp(x)",
    "GridSample": "GridSample<align_corners=1>(x, grid)",
}
INPUTS = """float[1,4,7,7] x, float[1,8,5,5] z, float[3,6] m, float[6,3] t, float[1,5,6] l,
    float[1,5,6] l2, float[4,2,3] c, float[2,3,5] d, float[4,2,5] e"""
CONSTANTS = {
    "w": W,
    "v": W[:, :2],
    "b": RNG.normal(size=8).astype(np.float32),
    "k": ROWS,
    "kt": ROWS.T.copy(),
    "row": RNG.normal(size=7).astype(np.float32),
    "six": RNG.normal(size=6).astype(np.float32),
    "six2": RNG.normal(size=6).astype(np.float32),
    "half": RNG.normal(size=6).astype(np.float32),
    "six3": RNG.normal(size=(5, 6)).astype(np.float32),
    "places": np.int64([[0, 1], [0, 3]]),
    "axis": np.int32(-1),
    "grid": RNG.uniform(-1, 1, (1, 4, 5, 2)).astype(np.float32),
}


def contrib(onnx_text: Text, text: str, opset: int = 17, **constants) -> onnx.ModelProto:
    model = onnx_text(text, opset=opset, **constants)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model


def inputs_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        port.name: rng.normal(size=[d.dim_value for d in port.type.tensor_type.shape.dim]).astype(
            np.float32
        )
        for port in model.graph.input
    }


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_onnx_runtime_means_operators_of_the_standard(name, opset, onnx_text: Text):
    body = f"g ({INPUTS}) => (float[...] y) {{ [mine] y = com.microsoft.{CASES[name]} }}"
    model = contrib(onnx_text, body.replace("float[...]", "float"), opset, **CONSTANTS)
    loaded = load_model(model)
    nodes = list(loaded.graph)
    assert nodes
    assert {node.domain for node in nodes} == {""}
    assert {source for node in nodes for source in sources_of(node)} == {"mine"}
    inputs = inputs_of(model)
    (wanted,) = session(model).run(None, inputs)
    (got,) = session(ir.to_proto(loaded)).run(None, inputs)
    assert static(loaded.graph.outputs[0]) == np.asarray(wanted).shape
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


def static(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return value.shape.numpy()
