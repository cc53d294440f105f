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
from opu_fuse.frontend.importing.decompose.contrib import MEANINGS
from opu_fuse.frontend.importing.load import ModelLike, load_model
from opu_fuse.frontend.qdq_reference import session
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
    "places": np.array([[0, 1], [0, 3]], np.int64),
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


NEWER = ("GridSample", "SkipSimplified", "Trilu", "GatherND", "ExpandDims")
"""What they mean was written otherwise in later sets."""


@pytest.mark.parametrize(
    ("name", "opset"),
    [*((n, 17) for n in CASES), *((n, opset) for n in NEWER for opset in (13, 22))],
)
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
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-5, atol=2e-6)


def static(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return value.shape.numpy()


def test_a_norm_in_the_standards_domain_is_onnx_runtimes(onnx_text: Text):
    """ONNX Runtime has it there; onnx's checker does not know it."""
    for opset in (17, 18):
        text = """g (float[1,5,6] x) => (float[1,5,6] y) {
            y = SimplifiedLayerNormalization<axis=-1, epsilon=0.01>(x, six) }"""
        model = onnx_text(text, opset=opset, six=CONSTANTS["six"])
        loaded = load_model(model)
        inputs = inputs_of(model)
        (wanted,) = session(model).run(None, inputs)
        (got,) = session(ir.to_proto(loaded)).run(None, inputs)
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-5)


def test_the_sum_that_is_normalised_is_a_result_too(onnx_text: Text):
    for name, rest in (("", "six, six2"), ("Simplified", "six")):
        text = f"""g (float[1,5,6] x, float[1,5,6] l) => (float[1,5,6] y, float[1,5,6] s) {{
            y, , , s = com.microsoft.Skip{name}LayerNormalization(x, l, {rest}) }}"""
        model = contrib(onnx_text, text, **CONSTANTS)
        loaded = load_model(model)
        inputs = inputs_of(model)
        for got, wanted in zip(
            session(ir.to_proto(loaded)).run(None, inputs),
            session(model).run(None, inputs),
            strict=True,
        ):
            np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=2e-5, atol=2e-6)


WITHOUT_KERNEL = {
    "BiasAdd": ("BiasAdd(x, chan, z)", lambda x, z: x + CHANNELS + z),
    "BiasDropout": ("BiasDropout(x, chan, z)", lambda x, z: x + CHANNELS + z),
    "BitmaskDropout": ("BitmaskDropout(x)", lambda x, _: x),
}
CHANNELS = RNG.normal(size=(4, 1, 1)).astype(np.float32)


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_operators_that_onnx_runtime_has_on_other_processors_only(name: str, onnx_text: Text):
    node, meaning = WITHOUT_KERNEL[name]
    text = f"g (float[1,4,7,7] x, float[1,4,7,7] z) => (float y) {{ y = com.microsoft.{node} }}"
    model = contrib(onnx_text, text, chan=CHANNELS)
    inputs = inputs_of(model)
    (got,) = session(ir.to_proto(load_model(model))).run(None, inputs)
    np.testing.assert_array_equal(got, meaning(*inputs.values()))


def test_bias_split_gelu_multiplies_one_half_by_the_gelu_of_the_other(onnx_text: Text):
    text = "g (float[1,5,6] x) => (float y) { y = com.microsoft.BiasSplitGelu(x, six) }"
    model = contrib(onnx_text, text, six=CONSTANTS["six"])
    inputs = inputs_of(model)
    (got,) = session(ir.to_proto(load_model(model))).run(None, inputs)
    halves = "g (float[1,5,3] r) => (float g) { g = com.microsoft.Gelu(r) }"
    left, right = np.split(inputs["x"] + CONSTANTS["six"], 2, axis=-1)
    (of_right,) = session(contrib(onnx_text, halves)).run(None, {"r": right})
    np.testing.assert_allclose(np.asarray(got), left * of_right, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "node",
    [
        'FusedConv<activation="LeakyRelu">(x, w)',
        'FusedConv<activation="Swish">(x, w)',
        'FusedGemm<activation="Selu", activation_alpha=1.0>(m, k)',
        "SkipLayerNormalization(l, l2, six)",
    ],
)
def test_what_has_no_meaning_in_the_standard_stays(node: str, onnx_text: Text):
    results = "y, m1" if node.startswith("Skip") else "y"
    ports = "float y, float m1" if node.startswith("Skip") else "float y"
    text = f"g ({INPUTS}) => ({ports}) {{ {results} = com.microsoft.{node} }}"
    loaded = load_model(contrib(onnx_text, text, **CONSTANTS))
    assert [n.domain for n in loaded.graph] == ["com.microsoft"]


def test_every_meaning_is_tried():
    tried = {name.partition(" ")[0] for name in CASES} | set(WITHOUT_KERNEL)
    others = {"BiasSplitGelu", "SimplifiedLayerNormalization", "FusedMatMulActivation"}
    others |= {"Attention", "MultiHeadAttention", "RotaryEmbedding", "EmbedLayerNormalization"}
    short = {"SkipSimplified": "SkipSimplifiedLayerNormalization"}
    assert {short.get(n, n.rstrip(",")) for n in tried} | others == set(MEANINGS)


def saved_by(model: onnx.ModelProto, level: str, path: Path) -> Path:
    """The file that ONNX Runtime's optimiser saves."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    data = model.SerializeToString()
    onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return path


def groups_and_host(model: ModelLike, machine: str) -> tuple[list[list[str]], list[str]]:
    dfg, partition = partition_model(model, opu_fuse.load_hw(machine))
    groups = [sorted(dfg[m.node].op for m in group.matches) for group in partition.groups]
    return sorted(groups), sorted(dfg[op.node].op for op in partition.host)


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("resnet20", "opu-1024t"),
        ("mobilenet_v2", "opu-light"),
        ("efficientnet_b0", "opu-1024t"),
        ("tiny_odd", "opu-light"),
    ],
)
def test_a_network_saved_at_level_extended_is_grouped_as_it_was(name, machine, tmp_path: Path):
    model = ir.to_proto(zoo.build(name, image=32))
    path = saved_by(model, "ORT_ENABLE_EXTENDED", tmp_path / "saved.onnx")
    assert any(n.domain == "com.microsoft" for n in onnx.load(path).graph.node)
    assert groups_and_host(path, machine) == groups_and_host(model, machine)


def test_a_model_packed_for_one_processor_is_refused_with_the_way_out(tmp_path: Path):
    model = ir.to_proto(zoo.build("tiny_residual", image=16))
    path = saved_by(model, "ORT_ENABLE_ALL", tmp_path / "saved.onnx")
    saved = onnx.load(path)
    if not any(n.domain == "com.microsoft.nchwc" for n in saved.graph.node):
        saved.graph.node[0].domain = "com.microsoft.nchwc"  # of a processor without these vectors
        onnx.save(saved, path)
    with pytest.raises(ModelError, match=r"one kind of processor .*nchwc.*ORT_ENABLE_BASIC"):
        load_model(path)


def test_shapes_behind_other_operators_are_asked_of_onnx_runtime(onnx_text: Text):
    text = """g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
        a = Conv<pads=[1,1,1,1]>(x, k1)  b = com.microsoft.Inverse(a)
        c = Conv<pads=[1,1,1,1]>(b, k2)  d = com.microsoft.Inverse(c)
        y = Conv<pads=[1,1,1,1]>(d, k2) }"""
    k1 = RNG.normal(size=(4, 3, 3, 3)).astype(np.float32)
    k2 = RNG.normal(size=(4, 4, 3, 3)).astype(np.float32)
    model = contrib(onnx_text, text, k1=k1, k2=k2)
    loaded = load_model(model)
    assert {static(v) for node in loaded.graph for v in node.outputs} == {(1, 4, 8, 8)}
    assert groups_and_host(model, "opu-light") == ([["conv"]] * 3, ["host:Inverse"] * 2)


def test_a_shape_that_depends_on_data_stays_unknown(onnx_text: Text):
    text = """g (float[8] x) => (float[a] y) {
        u, i, c = com.microsoft.Unique(x)  r = Relu(u)  y = Neg(r) }"""
    loaded = load_model(contrib(onnx_text, text))
    assert all(v.shape is None or not v.shape.is_static() for v in loaded.graph[0].outputs)
