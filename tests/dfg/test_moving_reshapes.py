"""A Reshape that moves values to other channels or places is the host's; what reads it is not."""

import numpy as np
import onnx
import pytest

from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.engine import run
from opu_fuse.sim.ports import noise

CASES = {
    "between convolutions": "[c] a = Conv (x, w) [m] r = Reshape (a, s) [e] y = Conv (r, v)",
    "behind a dense layer": (
        "[g] a = GlobalAveragePool (x) [f] d = Flatten (a) [h] e = Gemm (d, k) "
        "[m] r = Reshape (e, s) [e] y = Conv (r, v)"
    ),
    "behind another host operator": (
        "[n] q = Relu (x) [t] a = Transpose <perm = [0, 2, 3, 1]> (q) [m] r = Reshape (a, t) "
        "[e] y = Conv (r, v)"
    ),
    "of an activation": "[n] q = Relu (x) [m] r = Reshape (q, t) [e] y = Conv (r, v)",
    "read twice": (
        "[c] a = Conv (x, w) [m] r = Reshape (a, s) [e] d = Conv (r, v) [n] q = Relu (r) "
        "[i] z = Conv (q, v) [p] y = Add (d, z)"
    ),
}
ARRAYS = {
    "w": (8, 4, 1, 1),
    "v": (3, 2, 3, 3),
    "k": (4, 512),
}


@pytest.mark.parametrize("name", CASES)
def test_only_the_reshape_is_on_the_host_and_the_bits_are_right(
    name: str, rng: np.random.Generator
):
    header = '<ir_version: 8, opset_import: ["" : 17]>'
    text = f"{header} g (float[1, 4, 8, 8] x) => (float[A, B, C, D] y) {{ {CASES[name]} }}"
    model = onnx.parser.parse_model(text)
    data = {k: rng.standard_normal(shape).astype(np.float32) for k, shape in ARRAYS.items()}
    data |= {"s": np.array([1, 2, 16, 16]), "t": np.array([1, 2, 16, 8])}
    used = {k: v for k, v in data.items() if f", {k})" in text}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, k) for k, v in used.items())
    hw = load_hw("opu-tiny")
    compiled = compile_model(model, hw)
    host = {compiled.dfg[op.node].op for op in compiled.partition.host}
    assert host - {"host:Transpose"} == {"host:Reshape"}
    inputs = noise(compiled.bundle)
    result = run(compiled.bundle, hw, inputs, capture=True)
    checked = check(compiled.bundle, inputs, result)
    assert checked.passed
    assert {*checked.uncompared} <= {"x_QuantizeLinear_Output"}  # read by the host alone
