"""Streams of a transformer whose channels differ in size, rotated by `--equalisation`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import opu_fuse
from opu_fuse.frontend.prepare import Prepared, prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.frontend.quantization.rotate import _after, rotation
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from tests.frontend.conftest import parse

TOKENS, CHANNELS, WIDE = 12, 64, 96
NORMS = ("LayerNormalization",)
Arrays = Mapping[str, np.ndarray]

PRE = f"""g (float[1,{TOKENS},{CHANNELS}] x) => (float[1,{TOKENS},{CHANNELS}] y) {{
  m0 = MatMul(x, we)  e = Add(m0, be)
  n1 = LayerNormalization(e, g1, o1)
  m1 = MatMul(n1, w1)  a1 = Add(m1, b1)  r1 = Relu(a1)  f1 = MatMul(r1, v1)  s1 = Add(f1, e)
  n2 = LayerNormalization(s1, g2, o2)
  m2 = MatMul(n2, w2)  a2 = Add(m2, b2)  r2 = Relu(a2)  f2 = MatMul(r2, v2)  s2 = Add(s1, f2)
  n3 = LayerNormalization(s2, g3, o3)
  y = MatMul(n3, wy) }}"""
POST = f"""g (float[1,{TOKENS},{CHANNELS}] x) => (float[1,{TOKENS},{CHANNELS}] y) {{
  m0 = MatMul(x, we)  e = Add(m0, be)
  n1 = LayerNormalization(e, g1, o1)
  m1 = MatMul(n1, w1)  a1 = Add(m1, b1)  r1 = Relu(a1)  f1 = MatMul(r1, v1)  s1 = Add(f1, n1)
  n2 = LayerNormalization(s1, g2, o2)
  m2 = MatMul(n2, w2)  a2 = Add(m2, b2)  r2 = Relu(a2)  f2 = MatMul(r2, v2)  s2 = Add(n2, f2)
  n3 = LayerNormalization(s2, g3, o3)
  t = Sigmoid(n3)  y = MatMul(t, wy) }}"""


def constants(outlier: float) -> dict[str, Any]:
    """Weights. Channel 5 of what is added to the stream is larger by `outlier`, and the next
    normalisation scales it down, as trained networks do.
    """
    rng, c = np.random.default_rng(2), CHANNELS
    spread = np.ones(c)
    spread[5] = outlier
    found: dict[str, np.ndarray] = {"we": rng.normal(size=(c, c)) / 8, "be": rng.normal(size=c)}
    found["be"] *= spread
    for n in "12":
        found |= {f"w{n}": rng.normal(size=(c, WIDE)) / 8, f"b{n}": rng.normal(size=WIDE) / 2}
        found[f"v{n}"] = rng.normal(size=(WIDE, c)) / 8 * spread
    for n in "123":
        found |= {f"g{n}": (1 + rng.normal(size=c) / 4) / spread, f"o{n}": rng.normal(size=c) / 4}
    found["wy"] = rng.normal(size=(c, c)) / 8
    return {name: a.astype(np.float32) for name, a in found.items()}


@pytest.fixture
def data(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"x": rng.normal(size=(6, 1, TOKENS, CHANNELS)).astype(np.float32)}


def outputs(model: object, data: Arrays) -> np.ndarray:
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    runs = session(proto)  # type: ignore[arg-type]  # it is a ModelProto
    return np.stack([np.asarray(runs.run(None, {"x": x})[0]) for x in data["x"]])


def decibels(exact: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10(np.square(exact).sum() / np.square(got - exact).sum()))


def prepared(text: str, outlier: float, data: Arrays, *, on: bool, quantised: bool) -> Prepared:
    model = parse(text, **constants(outlier))
    return prepare(
        model, calibration=data, equalisation=on, quantised=quantised, norms=NORMS, scales="free"
    )


@pytest.mark.parametrize("channels", [2, 3, 8, 65, 384])
def test_a_rotation_spreads_one_channel_over_all_and_keeps_mean_and_length(channels: int):
    q = rotation(channels)
    assert np.abs(q @ q.T - np.eye(channels)).max() < 1e-12
    assert np.abs(q.sum(axis=0) - 1.0).max() < 1e-12
    assert np.abs(q.sum(axis=1) - 1.0).max() < 1e-12
    if channels > 8:
        assert np.abs(q).max() < 2.3 / np.sqrt(channels)


@pytest.mark.parametrize(("text", "gain"), [(PRE, 3.0), (POST, 1.0)])
def test_a_rotated_network_computes_its_floats_and_loses_less(text: str, gain: float, data: Arrays):
    exact = outputs(parse(text, **constants(60.0)), data)
    floating = prepared(text, 60.0, data, on=True, quantised=False).canonical
    assert decibels(exact, outputs(floating, data)) > 90.0
    plain, rotated = (
        decibels(exact, outputs(prepared(text, 60.0, data, on=on, quantised=True).qdq, data))
        for on in (False, True)
    )
    assert rotated > plain + gain


def test_a_stream_before_its_normalisations_takes_no_further_layer(data: Arrays):
    """All layers at its ends have constants that take the rotation up."""
    plain, rotated = (
        prepared(PRE, 60.0, data, on=on, quantised=False).canonical for on in (False, True)
    )
    assert [n.op_type for n in plain.graph] == [n.op_type for n in rotated.graph]


@pytest.mark.parametrize("text", [PRE, POST])
def test_streams_without_outliers_are_left_alone(text: str, data: Arrays):
    plain, same = (
        prepared(text, 1.0, data, on=on, quantised=False).canonical for on in (False, True)
    )
    assert [n.name for n in plain.graph] == [n.name for n in same.graph]
    assert np.array_equal(outputs(plain, data), outputs(same, data))


def test_a_rotated_program_has_onnx_runtimes_bits(data: Arrays):
    program = opu_fuse.compile(
        parse(POST, **constants(60.0)), "opu-1024a", calibration=data, equalisation=True
    )
    sample = {"x": data["x"][0]}
    result = run(program.bundle, program.hw, sample, capture=True)
    assert check(program.bundle, sample, result).passed


def test_the_copy_of_a_value_comes_before_all_its_readers():
    text = "g (float[1,4,2,2] x) => (float[1,4,2,2] y) { a = Relu(x) b = Sigmoid(x) y = Add(a, b) }"
    model = ir.from_proto(parse(text))
    first, other, _ = model.graph
    x = first.inputs[0]
    assert x is not None
    first.replace_input_with(0, other.outputs[0])
    first.replace_input_with(0, x)  # the last use now
    copy = _after(x)
    assert [node.op_type for node in model.graph] == ["Conv", "Relu", "Sigmoid", "Add"]
    assert first.inputs[0] is other.inputs[0] is copy
