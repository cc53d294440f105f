"""`compile` names what stays on the host, and says each reason once."""

import numpy as np
import onnx

from opu_fuse.fuse.explain.host_text import host_lines
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model, partition_model

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)
    <float s = {0.5}, int8 z = {0}> {
    q = QuantizeLinear(x, s, z)  r = DequantizeLinear(q, s, z)
    [one] c = Conv(r, w, b)  [first] e = Sigmoid(c)  f = QuantizeLinear(e, s, z)
    g = DequantizeLinear(f, s, z)
    [two] h = Conv(g, w, b)  [second] i = Sigmoid(h)  j = QuantizeLinear(i, s, z)
    k = DequantizeLinear(j, s, z)
    [last] y = Softmax<axis=1>(k) }"""


def test_a_reason_is_said_once_behind_all_names():
    model = onnx.parser.parse_model(TEXT)
    for name, shape in {"w": (4, 4, 1, 1), "b": (4,)}.items():
        data = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        model.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    dfg, found = partition_model(model, load_hw("opu-1024t"))
    lines = list(host_lines(dfg, found))
    assert len(found.host) == 7  # the biases of both layers among them
    assert [line.partition(" in the model")[0] for line in lines[:2]] == [
        "host: one, two: the result of each is not rounded to int8",
        "host: first, second: what each reads is not quantised to int8",
    ]
    assert lines[2].startswith("host: last: Softmax: no module of this machine runs it; ")
    assert all(line.count("; ") == 1 for line in lines), "and what would help"


def test_a_shape_that_no_machine_holds_comes_before_the_rounding_that_would_not_help():
    """A detector's boxes: "hand over the float model" was said of the float model."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 4, 4, 4] x, float[4, 4, 1, 1] w) '
        "=> (float[1, 4, 16] y) <int64[3] line = {1, 4, 16}> { [c] a = Conv (x, w) "
        "[r] b = Reshape (a, line) [s] d = Softmax (b) [o] y = Add (d, d) }"
    )
    model = onnx.parser.parse_model(text)
    del model.graph.input[1]
    weight = np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    compiled = compile_model(model, load_hw("opu-1024t"))
    (reason,) = [op.reason for op in compiled.partition.host if compiled.dfg[op.node].name == "o"]
    assert "has shape (1, 4, 16)" in str(reason)
