"""Operators beside convolutions, sums and pools: how the quantiser rounds them, and that the golden
model then computes what ONNX Runtime computes.
"""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from opu_fuse import zoo
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.integer import operator
from opu_fuse.dfg.interpret import interpret, runs_integer
from opu_fuse.frontend.prepare import Prepared, prepare
from opu_fuse.frontend.qdq_reference import reference
from opu_fuse.hw.spec.hw_spec import Numeric
from opu_fuse.units.affine import affine_params
from tests.some import some

Text = Callable[..., onnx.ModelProto]
NUMERIC = Numeric(multiplier_bits=16, average_bits=16)
RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def norm(channels: int) -> dict[str, np.ndarray]:
    spread = np.abs(normal(channels)) + 0.1
    return {"s": normal(channels), "t": normal(channels), "u": normal(channels), "v": spread}


X = "g (float[1, 6, 9, 8] x) => (float[A, B, C, D] y)"
CASES: dict[str, tuple[str, dict[str, np.ndarray], list[str]]] = {
    "swish": (
        "[c] a = Conv (x, w) [s] g = Sigmoid (a) [m] y = Mul (a, g)",
        {"w": normal(6, 6, 3, 3)},
        ["conv", "table"],
    ),
    "squeeze and excite": (
        ("[p] a = GlobalAveragePool (x) [c] b = Conv (a, w, o) [g] h = HardSigmoid (b)"
        "[m] y = Mul (x, h)"),
        {"w": normal(6, 6, 1, 1), "o": normal(6)},
        ["avg_pool", "conv", "add", "table", "multiply"],
    ),
    "batch norm before a convolution": (
        "[n] a = BatchNormalization (x, s, t, u, v) [r] b = Relu (a) [c] y = Conv (b, w)",
        {"w": normal(4, 6, 3, 3), **norm(6)},
        ["batch_norm", "relu", "conv"],
    ),
    "batch norm of very different channels": (
        "[n] y = BatchNormalization (x, s, t, u, v)",
        norm(6)
        | {
            "s": np.array([1e-6, 1, 9e3, 0, -3, 1], np.float32),
            "t": np.array([9, 0, 1, 0, 5, 7], np.float32),
        },
        ["batch_norm"],
    ),
    "transposed convolution": (
        "[c] a = ConvTranspose <strides = [2, 2], pads = [1, 0, 1, 1]> (x, w, o) [r] y = Relu (a)",
        {"w": normal(6, 5, 3, 3) * np.exp2(np.arange(5, dtype=np.float32))[:, None, None],
         "o": normal(5)},
        ["transposed_conv", "add", "relu"],
    ),
    "depthwise transposed convolution": (
        "[c] y = ConvTranspose <strides = [2, 2], group = 6> (x, w, o)",
        {"w": normal(6, 1, 2, 2), "o": normal(6)},
        ["transposed_conv", "add"],
    ),
    "channel shuffle": (
        ("[k] a = Concat <axis = 1> (x, x) [f] b = Reshape (a, apart)"
        "[t] d = Transpose <perm = [0, 2, 1, 3, 4]> (b) [j] e = Reshape (d, whole)"
        "[s] h, i = Split <axis = 1> (e, half) [p] y = Add (h, i)"),
        {
            "apart": np.array([1, 2, 6, 9, 8], np.int64),
            "whole": np.array([1, 12, 9, 8], np.int64),
            "half": np.array([6, 6], np.int64),
        },
        ["concat", "shuffle", "split", "add"],
    ),
}  # fmt: skip


def prepared(onnx_text: Text, name: str, scales: str) -> tuple[Prepared, Dfg]:
    body, weights, _ = CASES[name]
    found = prepare(onnx_text(f"{X} {{ {body} }}", **weights), scales=scales)
    return found, build_dfg(found.canonical)


def compare(found: Prepared, dfg: Dfg, seed: int) -> dict[str, int]:
    """Largest difference of every rounded value from ONNX Runtime's."""
    (value,) = found.canonical.graph.inputs
    x = np.random.default_rng(seed).standard_normal(some(value.shape).numpy(), np.float32)
    inputs = {some(value.name): x}
    assert found.qdq is not None
    expected, values = reference(found.qdq, inputs), interpret(dfg, inputs, NUMERIC)
    shown = [n for n in dfg.nodes if n.tensor and n.index in values]
    assert {n.tensor for n in shown} == {k for k in expected if expected[k].dtype == np.int8}
    return {
        n.name: int(np.abs(values[n.index] - expected[n.tensor].astype(int)).max()) for n in shown
    }


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("name", CASES)
def test_golden_model_and_onnxruntime_agree(onnx_text: Text, name: str, scales: str, seed: int):
    found, dfg = prepared(onnx_text, name, scales)
    assert [n.op for n in dfg.calls] == CASES[name][2]
    assert all(runs_integer(dfg, n.index) for n in dfg.calls), "ONNX Runtime against itself"
    differences = compare(found, dfg, seed)
    if scales == "pow2":
        assert set(differences.values()) == {0}
    else:  # what follows a difference of one may differ by more
        assert max(differences.values()) <= 2


@pytest.mark.parametrize("name", CASES)
def test_float_and_quantised_model_have_the_same_operators(onnx_text: Text, name: str):
    body, weights, ops = CASES[name]
    plain = prepare(onnx_text(f"{X} {{ {body} }}", **weights), quantised=False)
    assert [n.op for n in build_dfg(plain.canonical).calls] == ops


@pytest.mark.parametrize("name", ["swish", "channel shuffle"])
def test_values_inside_a_composite_are_not_rounded(onnx_text: Text, name: str):
    found, dfg = prepared(onnx_text, name, "pow2")
    assert found.qdq is not None
    rounded = [n.input[0] for n in found.qdq.graph.node if n.op_type == "QuantizeLinear"]
    shown = {n.value for n in dfg.nodes}
    assert [r for r in rounded if r.removesuffix("_QuantizeLinear_Input") not in shown] == []


def test_a_foreign_model_may_round_inside_a_table(onnx_text: Text, seed: int):
    """uint8 with different zero points before, within and behind x * sigmoid(x)."""
    pair = "{y}q = QuantizeLinear ({x}, {y}s, {y}z) {y} = DequantizeLinear ({y}q, {y}s, {y}z) "
    scales = {"a": (0.05, 120), "b": (1 / 255, 0), "d": (0.03, 11)}
    body = pair.format(x="x", y="a") + "[g] g = Sigmoid (a) " + pair.format(x="g", y="b")
    body += "[m] m = Mul (a, b) " + pair.format(x="m", y="d") + "[r] y = Relu (d)"
    numbers = {f"{k}s": np.float32(s) for k, (s, _) in scales.items()}
    zeros = {f"{k}z": np.uint8(z) for k, (_, z) in scales.items()}
    found = prepare(onnx_text(f"{X} {{ {body} }}", **numbers, **zeros))
    dfg = build_dfg(found.canonical)
    table = dfg.calls[0]
    assert (table.op, table.source, runs_integer(dfg, table.index)) == ("table", ("g", "m"), True)
    assert found.qdq is not None
    inputs = {"x": np.random.default_rng(seed).normal(size=(1, 6, 9, 8)).astype(np.float32) * 3}
    expected = reference(found.qdq, inputs)["dq"].astype(int) - 128
    np.testing.assert_array_equal(interpret(dfg, inputs, NUMERIC)[table.index], expected)


@pytest.mark.parametrize("shift", [0.0, 3.0, 100.0])
def test_a_normalisation_is_written_as_finely_as_float32_adds_exactly(onnx_text: Text, shift):
    scale = np.array([0.01, -1 / 3, 1, 7e-4, 123.4, 0], np.float32)
    weights = {"s": scale, "t": np.full(6, shift, np.float32), "u": np.zeros(6, np.float32)}
    weights["v"] = np.full(6, 1 - 1e-5, np.float32)
    found = prepare(onnx_text(f"{X} {{ [n] y = BatchNormalization (x, s, t, u, v) }}", **weights))
    dfg = build_dfg(found.canonical)
    params = affine_params(operator(dfg, dfg.calls[0].index))
    both = params.mult.astype(np.int64) | params.bias.astype(np.int64)
    step = np.where(both == 0, 1, both & -both)
    assert np.all(np.abs(params.mult / step) < 1 << 15)
    assert np.all((np.abs(params.mult / step) * 128 + np.abs(params.bias / step)) < 1 << 24)
    written = some(dfg[dfg.calls[0].operands[1]].const).astype(np.float64)
    room = np.abs(scale) * 2.0**-15 + shift * 2.0**-23 / some(dfg[0].quant).per_tensor
    assert np.all(np.abs(written - scale) <= room)


@pytest.mark.parametrize(("axis", "group"), [(0, 1), (0, 2)])
def test_a_transposed_convolution_of_foreign_form_runs_on_the_host(
    onnx_text: Text, axis: int | None, group: int, seed: int
):
    """Scales per input channel: the machines' filters have none."""
    body = (
        "xq = QuantizeLinear (x, xs, xz) xd = DequantizeLinear (xq, xs, xz) "
        f"wd = DequantizeLinear <axis = {axis or 0}> (w, ws) od = DequantizeLinear (o, os) "
        f"[c] a = ConvTranspose <group = {group}> (xd, wd, od) "
        "aq = QuantizeLinear (a, xs, xz) y = DequantizeLinear (aq, xs, xz)"
    )
    rng = np.random.default_rng(seed)
    scales = np.exp2(rng.integers(-9, -5, 6)).astype(np.float32)
    weights = {
        "xs": np.float32(2**-4),
        "xz": np.int8(3),
        "w": rng.integers(-127, 128, (6, 4 // group, 3, 3)).astype(np.int8),
        "ws": scales[0] if axis is None else scales,
        "o": rng.integers(-999, 999, 4).astype(np.int32),
        "os": np.float32(2**-10),
    }
    found = prepare(onnx_text(f"{X} {{ {body} }}", **weights))
    dfg = build_dfg(found.canonical)
    (conv,) = [n for n in dfg.calls if n.owner is None]
    assert conv.op == "host:ConvTranspose" or not runs_integer(dfg, conv.index)
    assert set(compare(found, dfg, seed).values()) == {0}


def test_every_filter_of_a_transposed_convolution_has_its_own_scale(onnx_text: Text):
    _, dfg = prepared(onnx_text, "transposed convolution", "pow2")
    weight = dfg[dfg.calls[0].operands[1]]
    assert weight.quant is not None
    assert (weight.quant.axis, len(set(weight.quant.scale))) == (1, 5)


def test_a_function_of_unrounded_values_stays_in_floating_point(onnx_text: Text):
    model = onnx_text(f"{X} {{ [s] a = Softmax <axis = 1> (x) [q] y = Sqrt (a) }}")
    dfg = build_dfg(prepare(model).canonical)
    assert [(n.op, n.quant) for n in dfg.calls] == [("host:Softmax", None), ("table", None)]


@pytest.mark.parametrize(("name", "image"), [("efficientnet_b0", 32), ("densenet_small", 16)])
def test_whole_networks_agree(name: str, image: int, seed: int):
    found = prepare(zoo.build(name, image=image))
    dfg = build_dfg(found.canonical)
    assert all(runs_integer(dfg, n.index) for n in dfg.calls if n.op in {"table", "batch_norm"})
    assert set(compare(found, dfg, seed).values()) == {0}
