"""Layers whose results a model rounds only after a function or a sum: they run on the machine, the
rounding in between is told, and is no further off than is told.
"""

import re

import numpy as np
import onnx
import pytest

from opu_fuse.bundle.program import HostSegment
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.quant import META_KEY, QuantParams
from opu_fuse.sim import engine
from opu_fuse.sim.compare.runs import check

HW = load_hw("opu-light")
RNG = np.random.default_rng(8)
IMAGE = RNG.normal(0, 2, (1, 4, 6, 5)).astype(np.float32)
PORTS = "(float[1,4,6,5] x) => (float[1,4,6,5] y)"
PLAIN = (
    "x_q = QuantizeLinear(x, s, z)  x_r = DequantizeLinear(x_q, s, z)"
    "  w_r = DequantizeLinear(w, t, z)  [layer] c = Conv<pads=[1,1,1,1]>(x_r, w_r, b) "
)
ROUNDED = "  m_q = QuantizeLinear(m, o, p)  y = DequantizeLinear(m_q, o, p)"
CONSTANTS = {
    "s": np.float32(2**-4),
    "t": np.float32(2**-8),
    "z": np.int8(0),
    "w": RNG.integers(-99, 100, (4, 4, 3, 3)).astype(np.int8),
    "b": np.array([0.5, -1, 0.25, 2], np.float32),
    "slopes": np.array([0.25, 0.5, 0.75, 1], np.float32).reshape(4, 1, 1),
    "three": np.float32(3),
    "six": np.float32(6),
    "none": np.float32(0),
    "mean": np.array([0, 0.5, 0, 1], np.float32),
    "ones": np.ones(4, np.float32),
}
FUNCTIONS = {
    "LeakyRelu": "m = LeakyRelu<alpha=0.25>(c)",
    "PRelu": "m = PRelu(c, slopes)",
    "HardSwish": "m = HardSwish(c)",
    "HardSwish, spelt out": (
        "a = Add(c, three)  k = Clip(a, none, six)  d = Mul(c, k)  m = Div(d, six)"
    ),
    "SiLU": "g = Sigmoid(c)  m = Mul(c, g)",
    "Sigmoid": "m = Sigmoid(c)",
    "Tanh": "m = Tanh(c)",
    "Elu behind a normalisation": (
        "n = BatchNormalization<epsilon=0.0>(c, ones, mean, mean, ones)  m = Elu(n)"
    ),
    "Sigmoid and MaxPool": ("g = Sigmoid(c)  m = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(g)"),
}
SUMS = {
    "a sum": "m = Add(c, x_r)",
    "a sum and Relu": "a = Add(x_r, c)  m = Relu(a)",
    "a map off the layer": "m = Sub(c, x_r)",
    "the layer off a map": "m = Sub(x_r, c)",
    "a function, then a sum": "g = Sigmoid(c)  f = Mul(c, g)  m = Add(x_r, f)",
}
POWERS = {"o": np.float32(2**-5), "p": np.int8(0)}
ODD = {"o": np.float32(0.0331), "p": np.int8(-101)}


def written(nodes: str, constants: dict[str, np.ndarray], ports: str = PORTS) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g {ports} {{ {nodes} }}'
    )
    read = {name for node in model.graph.node for name in node.input}
    for name, data in (CONSTANTS | constants).items():
        if name in read:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(data), name))
    return model


def told_steps(warnings: tuple[str, ...]) -> float:
    (told,) = re.findall(r"may move by ([\d.]+) steps", " ".join(warnings))
    return float(told)


@pytest.mark.parametrize("scale", [POWERS, ODD], ids=["powers of two", "odd"])
@pytest.mark.parametrize("nodes", {**FUNCTIONS, **SUMS}.values(), ids={**FUNCTIONS, **SUMS})
def test_it_runs_and_is_no_further_off_than_is_told(nodes: str, scale: dict[str, np.ndarray]):
    model = written(PLAIN + nodes + ROUNDED, scale)
    compiled = compile_model(model, HW)
    assert not any(isinstance(s, HostSegment) for s in compiled.bundle.segments)
    result = engine.run(compiled.bundle, HW, {"x": IMAGE}, capture=True)
    found = check(compiled.bundle, {"x": IMAGE}, result)
    assert found.passed
    if scale is POWERS:
        assert found.mismatches == 0
    expected = session(model).run(None, {"x": IMAGE})[0]
    assert len(np.unique(np.asarray(expected))) > 10, "says little"
    off = np.abs(result.outputs["y"] - expected).max() / scale["o"]
    assert off < int(told_steps(prepare(model).warnings)) + 1.5


@pytest.mark.parametrize("nodes", {**FUNCTIONS, **SUMS}.values(), ids={**FUNCTIONS, **SUMS})
def test_between_powers_of_two_stands_one(nodes: str):
    canonical = prepare(written(PLAIN + nodes + ROUNDED, POWERS)).canonical
    quant: QuantParams = canonical.graph[0].outputs[0].meta[META_KEY]
    assert (quant.is_pow2, quant.zero_point) == (True, 0)


@pytest.mark.parametrize("scale", [POWERS, ODD], ids=["powers of two", "odd"])
def test_a_function_that_is_the_same_everywhere_has_any_scale_before_it(scale):
    """A table whose steps in front of the result are all one: there is no range to cover."""
    model = written(
        PLAIN + "g = Sigmoid(c)  m = Mul(g, nothing)" + ROUNDED,
        scale | {"nothing": np.float32(0.0)},
    )
    compiled = compile_model(model, HW)
    result = engine.run(compiled.bundle, HW, {"x": IMAGE}, capture=True)
    assert check(compiled.bundle, {"x": IMAGE}, result).passed
    assert not result.outputs["y"].any()


WIDE = PLAIN.replace("(x, s, z)", "(x, s, long)").replace("(x_q, s, z)", "(x_q, s, long)")
LEAVES = {
    "a slope that needs as many numbers below zero": PLAIN + "m = LeakyRelu<alpha=0.01>(c)",
    "a function that never ends": PLAIN + "m = Sin(c)",
    "a layer in floats": PLAIN.replace("(x_r, w_r, b)", "(x, w_r, b)") + "m = Sigmoid(c)",
    "weights in floats": PLAIN.replace("(x_r, w_r, b)", "(x_r, u, b)") + "m = Sigmoid(c)",
    "a sum of two layers": PLAIN + "d = Conv(x_r, k)  m = Add(c, d)",
    "a function of a pool": PLAIN
    + "v = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(c)  m = Sigmoid(v)",
    "a gate of another map": PLAIN + "a = Sigmoid(c)  m = Mul(a, x_r)",
}


@pytest.mark.parametrize("nodes", LEAVES.values(), ids=LEAVES)
def test_nothing_is_added(nodes: str):
    constants = POWERS | {
        "u": CONSTANTS["w"].astype(np.float32),
        "k": np.float32(np.ones((4, 4, 1, 1))),
    }
    assert not prepare(written(nodes + ROUNDED, constants)).warnings


def test_a_product_of_several_rows_is_the_hosts_and_stays_as_it_is():
    nodes = "x_q = QuantizeLinear(x, s, z)  x_r = DequantizeLinear(x_q, s, z)"
    nodes += "  v_r = DequantizeLinear(v, t, z)  c = MatMul(x_r, v_r)  m = Sigmoid(c)"
    constants = POWERS | {"v": CONSTANTS["w"][:, :, 0, 0]}
    ports = "(float[1,3,4] x) => (float[1,3,4] y)"
    assert not prepare(written(nodes + ROUNDED, constants, ports)).warnings
    one = "(float[1,1,4] x) => (float[1,1,4] y)"
    assert told_steps(prepare(written(nodes + ROUNDED, constants, one)).warnings) < 1
