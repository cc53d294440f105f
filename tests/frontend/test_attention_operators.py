"""Operators of whole attentions mean products, masks and softmax, which machines run."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.frontend.editing import sources_of
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.qdq_reference import session

Text = Callable[..., onnx.ModelProto]
TOKENS = "float[2,6,32] x, float[2,9,16] y, float[2,9,24] z, float[2,6,16] q"
HEADS = "float[2,4,6,8] a, float[2,2,9,8] b, float[2,2,9,12] c, float[2,4,9,8] d"
MASKS = """bool[2,1,6,9] seen, bool[2,4,6,9] own, float[2,1,6,9] bias,
    float[6,9] flat, bool[9] short"""
STANDARD = {
    "tokens": "Attention<q_num_heads=4, kv_num_heads=2>(x, y, z)",
    "scale": "Attention<q_num_heads=4, kv_num_heads=2, scale=0.7>(x, y, z)",
    "causal": "Attention<q_num_heads=4, kv_num_heads=2, is_causal=1>(x, y, z)",
    "soft cap": "Attention<q_num_heads=4, kv_num_heads=2, softcap=2.0>(x, y, z)",
    "heads": "Attention(a, b, c)",
    "as many heads": "Attention(a, d, d)",
    "causal heads": "Attention<is_causal=1>(a, b, c)",
    "seen": "Attention<q_num_heads=4, kv_num_heads=2>(x, y, z, seen)",
    "seen, heads": "Attention(a, b, c, seen)",
    "own": "Attention<q_num_heads=4, kv_num_heads=2>(x, y, z, own)",
    "bias": "Attention<q_num_heads=4, kv_num_heads=2>(x, y, z, bias)",
    "bias, causal": "Attention<q_num_heads=4, kv_num_heads=2, is_causal=1>(x, y, z, bias)",
    "flat": "Attention(a, b, c, flat)",
    "table": "Attention(a, b, c, table)",
    "table of truth": "Attention(a, b, c, truths)",
}
RUNTIME = {
    "heads": "MultiHeadAttention<num_heads=2>(q, y, y)",
    "values of other width": "MultiHeadAttention<num_heads=2>(q, y, z)",
    "scale": "MultiHeadAttention<num_heads=4, scale=0.3>(q, y, z)",
    "biases": "MultiHeadAttention<num_heads=2>(q, y, z, b56)",
    "mask": "MultiHeadAttention<num_heads=2>(q, y, z, , keys)",
    "filter": "MultiHeadAttention<num_heads=2, mask_filter_value=-3.0>(q, y, z, , keys)",
    "mask of queries": "MultiHeadAttention<num_heads=2>(q, y, z, , each)",
    "bias of scores": "MultiHeadAttention<num_heads=4>(q, y, z, b56, , relative)",
    "keys as heads": "MultiHeadAttention<num_heads=4>(x, d, d)",
    "packed": "Attention<num_heads=4>(q, w48, b48)",
    "packed, causal": "Attention<num_heads=4, unidirectional=1>(q, w48, b48)",
    "packed, sizes": "Attention<num_heads=4, qkv_hidden_sizes=[16,16,16]>(q, w48, b48)",
    "packed, mask": "Attention<num_heads=4>(q, w48, b48, six)",
    "packed, count": "Attention<num_heads=4>(q, w48, b48, count)",
}
ROTARY = {
    "heads": "RotaryEmbedding(a, cos, sin)",
    "interleaved": "RotaryEmbedding<interleaved=1>(a, cos, sin)",
    "tokens": "RotaryEmbedding<num_heads=4>(x, cos, sin)",
    "part": "RotaryEmbedding<num_heads=2, rotary_embedding_dim=8>(x, cos, sin)",
    "positions": "RotaryEmbedding(a, cos_table, sin_table, positions)",
    "runtime": "com.microsoft.RotaryEmbedding(a, positions, cos_table, sin_table)",
    "first position": "com.microsoft.RotaryEmbedding(a, one, cos_table, sin_table)",
    "tokens, runtime": "com.microsoft.RotaryEmbedding<interleaved=1>(x, one, cos_table, sin_table)",
}
RNG = np.random.default_rng(48)
ANGLES = RNG.uniform(0, 6, (20, 4))
CONSTANTS = {
    "table": RNG.normal(size=(1, 4, 6, 9)).astype(np.float32),
    "truths": RNG.random((6, 9)) < 0.5,
    "b56": RNG.normal(size=56).astype(np.float32),
    "w48": RNG.normal(size=(16, 48)).astype(np.float32) / 4,
    "b48": RNG.normal(size=48).astype(np.float32),
    "cos_table": np.cos(ANGLES).astype(np.float32),
    "sin_table": np.sin(ANGLES).astype(np.float32),
    "cos": np.cos(ANGLES[None, :6]).repeat(2, 0).astype(np.float32),
    "sin": np.sin(ANGLES[None, :6]).repeat(2, 0).astype(np.float32),
    "positions": RNG.integers(0, 20, (2, 6)),
    "one": np.array([3]),
}
INPUTS = f"""{TOKENS}, {HEADS}, {MASKS}, int32[2,9] keys, int32[2,6,9] each, int32[2,6] six,
    int32[2] count, float[2,4,6,9] relative"""


def values_of(port: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    kind, size = port.type.tensor_type, [d.dim_value for d in port.type.tensor_type.shape.dim]
    if port.name == "count":
        return np.array([4, 6], np.int32)
    if kind.elem_type == onnx.TensorProto.FLOAT:
        return rng.normal(size=size).astype(np.float32)
    drawn = rng.random(size) < 0.6
    drawn[..., 0] = True  # else ONNX Runtime's own results differ among themselves
    return drawn.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


def compared(
    model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Results of ONNX Runtime, of the model as it is written and as it is loaded."""
    loaded = load_model(model)
    assert {node.domain for node in loaded.graph} == {""}
    assert not {"Attention", "RotaryEmbedding"} & {node.op_type for node in loaded.graph}
    assert {s for n in loaded.graph for s in sources_of(n)} == {"mine"}
    first, second = (session(m).run(None, dict(inputs))[0] for m in (model, ir.to_proto(loaded)))
    return np.asarray(first), np.asarray(second)


def written(onnx_text: Text, text: str, opset: int) -> onnx.ModelProto:
    """A model of one node, with the inputs that this reads."""
    graph = f"g ({INPUTS}) => (float out) {{ [mine] out = {text} }}"
    model = onnx_text(graph, opset=opset, **CONSTANTS)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    read = [port for port in model.graph.input if port.name in model.graph.node[0].input]
    model.graph.ClearField("input")
    model.graph.input.extend(read)
    return model


@pytest.mark.parametrize("name", STANDARD)
def test_attention_of_the_standard(name: str, onnx_text: Text, rng: np.random.Generator):
    model = written(onnx_text, STANDARD[name], 23)
    inputs = {port.name: values_of(port, rng) for port in model.graph.input}
    np.testing.assert_allclose(*compared(model, inputs), atol=2e-5)


@pytest.mark.parametrize("name", ["seen", "seen, heads", "own", "bias", "flat"])
def test_a_query_that_sees_nothing_has_the_result_zero(
    name: str, onnx_text: Text, rng: np.random.Generator
):
    model = written(onnx_text, STANDARD[name], 23)
    inputs = {port.name: values_of(port, rng) for port in model.graph.input}
    mask = inputs[next(n for n in inputs if n not in "xyzabc")]
    mask[..., 2, :] = False if mask.dtype == bool else -np.inf
    expected, found = compared(model, inputs)
    assert not expected[..., 2, :].any()
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("options", ["", ", is_causal=1"])
def test_a_mask_that_is_the_same_for_all_queries(
    options: str, onnx_text: Text, rng: np.random.Generator
):
    """ONNX Runtime refuses it, and takes what it is repeated to."""
    text = STANDARD["seen"].replace("2>", f"2{options}>")
    model = written(onnx_text, text, 23)
    inputs = {port.name: values_of(port, rng) for port in model.graph.input}
    inputs["seen"] = inputs["seen"][:, :, :1].repeat(6, 2)
    expected = np.asarray(session(model).run(None, inputs)[0])
    port = next(port for port in model.graph.input if port.name == "seen")
    port.type.tensor_type.shape.dim[2].dim_value = 1
    loaded = load_model(model)
    inputs["seen"] = inputs["seen"][:, :, :1]
    found = np.asarray(session(ir.to_proto(loaded)).run(None, inputs)[0])
    np.testing.assert_allclose(found, expected, atol=2e-5)
    products = [node for node in loaded.graph if node.op_type == "Mul"]
    assert len(products) == 1 + bool(options), "only a causal mask can hide all from some queries"


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("name", RUNTIME)
def test_attention_of_onnx_runtime(
    name: str, opset: int, onnx_text: Text, rng: np.random.Generator
):
    model = written(onnx_text, f"com.microsoft.{RUNTIME[name]}", opset)
    inputs = {port.name: values_of(port, rng) for port in model.graph.input}
    np.testing.assert_allclose(*compared(model, inputs), atol=2e-5)


EMBEDDED = {
    "words": "EmbedLayerNormalization(six, , words, places, , gain, shift)",
    "segments": "EmbedLayerNormalization(six, pair, words, places, kinds, gain, shift)",
    "mask": "EmbedLayerNormalization(six, pair, words, places, kinds, gain, shift, on)",
    "positions": "EmbedLayerNormalization(six, , words, places, , gain, shift, , order)",
}


@pytest.mark.parametrize("name", EMBEDDED)
def test_embeddings_of_onnx_runtime(name: str, onnx_text: Text, rng: np.random.Generator):
    ports = "int32[2,6] six, int32[2,6] pair, int32[2,6] on, int32[2,6] order"
    tables = {n: rng.normal(size=(size, 16)) for n, size in (("words", 9), ("places", 8))}
    tables |= {"kinds": rng.normal(size=(2, 16)), "gain": rng.normal(size=16)}
    model = onnx_text(
        f"g ({ports}) => (float out, int32 count, float sum)"
        f" {{ [mine] out, count, sum = com.microsoft.{EMBEDDED[name]} }}",
        **{n: a.astype(np.float32) for n, a in {**tables, "shift": rng.normal(size=16)}.items()},
    )
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    if name != "mask":
        del model.graph.output[1]
        model.graph.node[0].output[1] = ""
    lengths = np.array([[4], [6]])
    inputs = {
        "six": rng.integers(0, 9, (2, 6)),
        "pair": rng.integers(0, 2, (2, 6)),
        "on": np.arange(6) < lengths,
        "order": rng.integers(0, 8, (2, 6)),
    }
    read = [port for port in model.graph.input if port.name in model.graph.node[0].input]
    model.graph.ClearField("input")
    model.graph.input.extend(read)
    given = {port.name: inputs[port.name].astype(np.int32) for port in read}
    loaded = load_model(model)
    assert {node.domain for node in loaded.graph} == {""}
    for found, expected in zip(
        *(session(m).run(None, given) for m in (model, ir.to_proto(loaded))), strict=True
    ):
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-5)


@pytest.mark.parametrize("name", ROTARY)
def test_rotary_embeddings(name: str, onnx_text: Text, rng: np.random.Generator):
    model = written(onnx_text, ROTARY[name], 23)
    inputs = {port.name: values_of(port, rng) for port in model.graph.input}
    np.testing.assert_allclose(*compared(model, inputs), atol=2e-6)
