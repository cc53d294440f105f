"""A program that leaves most of a network to the host says so in a line."""

import re

import numpy as np
import onnx
import pytest

from opu_fuse.fuse.share import little_on_machine
from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import compile_model

HEADER = '<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,8,8] x) => (float[a,b,c,d] y) '
RNG = np.random.default_rng(2)
WEIGHTS = {
    "w": RNG.normal(size=(4, 4, 3, 3)).astype(np.float32) * 0.2,
    "k": RNG.integers(-100, 100, (4, 4, 3, 3)).astype(np.int8),
    "s": np.float32(0.01),
    "z": np.int16(0),
    "scale": np.float32(1e-4),
}
ON_HOST = {
    "scales of each image": (
        """{ q, t, u = DynamicQuantizeLinear(x)  [c] c = ConvInteger<pads=[1,1,1,1]>(q, k, u)
        f = Cast<to=1>(c)  y = Mul(f, scale) }""",
        "100 % are those of ConvInteger on the host, the largest c: .*; compile the float model",
    ),
    "16 bits": (
        """{ q = QuantizeLinear(x, s, z)  r = DequantizeLinear(q, s, z)  v = DequantizeLinear(k, s)
        [c] a = Conv<pads=[1,1,1,1]>(r, v)  p = QuantizeLinear(a, s, z)
        y = DequantizeLinear(p, s, z) }""",
        "those of conv on the host, the largest c: .*rounded to 16 bits.* the float model",
    ),
}
MOSTLY = "{ c = Conv<pads=[1,1,1,1]>(x, w)  d = Conv<pads=[1,1,1,1]>(c, w)  e = Softmax<axis=1>(d) "


def line(body: str) -> str | None:
    model = onnx.parser.parse_model(HEADER + body)
    for name, data in WEIGHTS.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(data), name))
    hw = load_hw("opu-tiny")
    done = compile_model(model, hw)
    return little_on_machine(done.dfg, hw, done.partition)


@pytest.mark.parametrize("kind", ON_HOST)
def test_the_largest_cause_and_the_remedy_are_named(kind):
    body, wanted = ON_HOST[kind]
    said = line(body)
    assert said is not None
    assert "\n" not in said
    assert said.startswith("only 0 % of the multiplications run on opu-tiny; ")
    assert re.search(wanted, said), said


def test_half_on_the_machine_is_nothing_to_say():
    assert line(MOSTLY + "y = Identity(e) }") is None


def test_a_network_without_products_says_nothing():
    assert line("{ y = Softmax<axis=1>(x) }") is None
