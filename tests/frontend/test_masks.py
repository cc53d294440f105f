"""Masked attention: a mask of any size costs no precision of the scores."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from opu_fuse.frontend.choice_names import Scales
from opu_fuse.frontend.editing import constant
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.frontend.quantization.activation_ranges import Range
from opu_fuse.frontend.quantization.choose_scales import activation_quants
from opu_fuse.frontend.quantization.masks import without_masks
from tests.frontend.conftest import parse

TOKENS, CHANNELS = 16, 32

ATTENTION = f"""g (float[1,{TOKENS},{CHANNELS}] x, float[1,1,{TOKENS}] mask)
  => (float[1,{TOKENS},{CHANNELS}] y) {{
  q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)  kt = Transpose<perm=[0,2,1]>(k)
  m = MatMul(q, kt)  absent = Sub(one, mask)  far = Mul(absent, below)  s = Add(m, far)
  p = Softmax<axis=-1>(s)  y = MatMul(p, v) }}"""


def samples(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Sequences of 8 to 16 tokens, padded."""
    lengths = rng.integers(8, TOKENS + 1, count)
    mask = (np.arange(TOKENS) < lengths[:, None]).astype(np.float32)
    return {
        "x": rng.normal(size=(count, 1, TOKENS, CHANNELS)).astype(np.float32),
        "mask": mask.reshape(count, 1, 1, TOKENS),
    }


@pytest.mark.parametrize("scales", ["pow2", "free"])
@pytest.mark.parametrize("below", [-3.4e38, -10000.0, -100.0])
def test_masked_tokens_get_nothing_and_the_others_their_share(
    below: float, scales: str, rng: np.random.Generator
):
    names = ("wq", "wk", "wv")
    weights: dict[str, Any] = {
        n: rng.normal(size=(CHANNELS, CHANNELS)).astype(np.float32) / 8 for n in names
    }
    model = parse(ATTENTION, one=np.float32(1.0), below=np.float32(below), **weights)
    data, held = samples(rng, 8), samples(rng, 4)
    qdq = prepare(model, calibration=data, scales=scales, norms=("Softmax",)).qdq
    assert qdq is not None
    exact, rounded = (
        np.stack(
            [np.asarray(runs.run(["y"], {n: a[i] for n, a in held.items()})[0]) for i in range(4)]
        )
        for runs in map(session, (model, qdq))
    )
    noise = np.square(rounded - exact).sum() / np.square(exact).sum()
    assert 10 * np.log10(noise) < -20.0


SCORES = """g (float[1,2,5,5] s, bool[1,5] seen{more}) => (float[1,2,5,5] p{outputs})
  <float low = {{{low}}}, int64[4] keys = {{1,1,1,5}}, int64[4] all = {{1,2,5,5}}> {{
  k = Reshape(seen, keys)  e = Expand(k, all)  {body}  p = Softmax<axis=-1>(m) }}"""
FILLED = "n = Not(e)  m = Where(n, low, s)"


@pytest.mark.parametrize("body", ["m = Where(e, s, low)", FILLED])
@pytest.mark.parametrize("low", ["-3.4028234e38", "-1e30"])
def test_scores_that_a_where_masks_are_a_sum_of_the_same_bits(
    body: str, low: str, rng: np.random.Generator
):
    model = parse(SCORES.format(body=body, low=low, more="", outputs=""))
    loaded = load_model(model)
    assert [node.op_type for node in loaded.graph][-3:] == ["Where", "Add", "Softmax"]
    inputs = {
        "s": rng.normal(size=(1, 2, 5, 5)).astype(np.float32),
        "seen": np.array([[True, False, True, True, False]]),
    }
    for seen in (inputs["seen"], np.zeros((1, 5), bool)):
        written, summed = (
            session(m).run(["p"], inputs | {"seen": seen})[0] for m in (model, ir.to_proto(loaded))
        )
        np.testing.assert_array_equal(written, summed)


@pytest.mark.parametrize(
    ("body", "low", "more", "outputs"),
    [
        ("m = Where(e, s, low)", "-100.0", "", ""),
        ("m = Where(e, s, t)", "-1e30", ", float[1,2,5,5] t", ""),
        ("m = Where(e, s, low)", "-1e30", "", ", float[1,2,5,5] m"),
    ],
    ids=["a score may be lower", "no constant", "an output"],
)
def test_other_choices_remain(body: str, low: str, more: str, outputs: str):
    loaded = load_model(parse(SCORES.format(body=body, low=low, more=more, outputs=outputs)))
    assert "Where" in [node.op_type for node in loaded.graph]
    assert "Add" not in [node.op_type for node in loaded.graph]


def test_a_constant_mask_is_bounded_unless_it_masks_a_whole_row():
    text = "g (float[1,2,3,3] s) => (float[1,2,3,3] p) { m = Add(s, k)  p = Softmax<axis=-1>(m) }"
    seen = np.tril(np.ones((3, 3), bool))
    for low in (-np.inf, np.finfo(np.float32).min):
        for lengths, expected in ((seen, -16384.0), (seen & (np.arange(3) > 0), low)):
            mask = np.where(lengths, np.float32(0), np.float32(low))
            loaded = load_model(parse(text, k=mask))
            (added,) = [node for node in loaded.graph if node.op_type == "Add"]
            found = constant(added.inputs[1])
            assert found is not None
            assert found.min() == expected


def test_a_mask_of_minus_infinity_that_scores_are_added_to_is_finite(rng: np.random.Generator):
    text = """g (float[1,2,5,5] s, bool[1,5] seen) => (float[1,2,5,5] p)
      <float zero = {0.0}, int64[4] keys = {1,1,1,5}> {
      k = Reshape(seen, keys)  w = Where(k, zero, low)  m = Add(s, w)  p = Softmax<axis=-1>(m) }"""
    model = parse(text, low=np.array([-np.inf], np.float32))
    loaded = load_model(model)
    inputs = {
        "s": rng.normal(size=(1, 2, 5, 5)).astype(np.float32),
        "seen": np.array([[True, False, True, True, False]]),
    }
    written, finite = (session(m).run(["p"], inputs)[0] for m in (model, ir.to_proto(loaded)))
    np.testing.assert_array_equal(written, finite)
    inputs["seen"][:] = False
    assert np.isfinite(np.asarray(session(ir.to_proto(loaded)).run(["p"], inputs)[0])).all()


def test_what_touches_minus_infinity_stays_in_floats_with_a_warning(rng: np.random.Generator):
    """A sum of masks with a guard of tokens that see none, as the body of `Attention` has it."""
    text = """g (float[1,5,8] x, bool[1,5,5] seen) => (float[1,5,8] y) <float zero = {0.0}> {
      q = MatMul(x, wq)  kt = Transpose<perm=[0,2,1]>(x)  s = MatMul(q, kt)
      w = Where(seen, zero, low)  m = Add(w, causal)  t = Add(s, m)  p = Softmax<axis=-1>(t)
      most = ReduceMax<axes=[-1]>(m)  none = Equal(most, low)  safe = Where(none, zero, p)
      y = MatMul(safe, x) }"""
    low = np.array([-np.inf], np.float32)
    causal = np.where(np.tril(np.ones((5, 5), bool)), np.float32(0), low)
    weights = rng.normal(size=(8, 8)).astype(np.float32)
    model = parse(text, low=low, causal=causal, wq=weights)
    data = {
        "x": rng.normal(size=(4, 1, 5, 8)).astype(np.float32),
        "seen": rng.random((4, 1, 5, 5)) < 0.5,
    }
    prepared = prepare(model, calibration=data, norms=("Softmax",))
    (warning,) = (text for text in prepared.warnings if "minus infinity" in text)
    assert warning.startswith("tensor 'm' and ")
    assert warning.endswith("let masks hold a finite number, -10000 for example")
    assert prepared.qdq is not None
    exact, rounded = (
        np.stack(
            [np.asarray(runs.run(["y"], {n: a[i] for n, a in data.items()})[0]) for i in range(4)]
        )
        for runs in map(session, (model, prepared.qdq))
    )
    noise = np.square(rounded - exact).sum() / np.square(exact).sum()
    assert 10 * np.log10(noise) < -20.0


def test_a_wide_range_without_a_gap_is_no_mask(rng: np.random.Generator):
    model = ir.from_proto(parse("g (float[1,9] s) => (float[1,9] p) { p = Softmax<axis=-1>(s) }"))
    for values in (rng.normal(0.0, 40.0, 999), np.linspace(-200.0, 0.0, 99), np.zeros(9)):
        given = {"s": _range(values)}
        assert without_masks(model.graph, given) == given
    masked = np.concatenate([rng.uniform(-3.0, 3.0, 99), np.full(9, -1e9)])
    assert -12.0 < without_masks(model.graph, {"s": _range(masked)})["s"].low < -7.0


PRODUCT = """g (float[1,197,1,64] p, float[1,197,1,32] v) => (float[1,32,1,64] y) {
  y = Einsum<equation="nchw,ncvm->nmhw">(p, v) }"""


@pytest.mark.parametrize(("scales", "most"), [("pow2", 2.0**-10), ("free", 2.0**-9)])
def test_probabilities_have_the_scale_with_the_least_error(
    scales: Scales, most: float, rng: np.random.Generator
):
    """Rows of 197 flat scores: 1/128 holds every probability, and rounds most of them to 0."""
    e = np.exp(rng.normal(size=(64, 197)))
    p, v = e / e.sum(axis=1, keepdims=True), rng.normal(size=(197, 32))
    given = {"p": _range(p), "v": _range(v), "y": _range(p @ v)}
    quants = activation_quants(ir.from_proto(parse(PRODUCT)).graph, given, scales=scales)
    assert quants["p"].per_tensor <= most
    assert quants["p"].zero_point == quants["v"].zero_point == 0
    rounded = quants["p"].dequantize(quants["p"].quantize(p))
    noise = np.square((rounded - p) @ v).sum() / np.square(p @ v).sum()
    assert 10 * np.log10(noise) < -26.0


def _range(values: np.ndarray) -> Range:
    flat = values.reshape(-1).astype(np.float32)
    return Range(low=float(flat.min()), high=float(flat.max()), samples=flat)
