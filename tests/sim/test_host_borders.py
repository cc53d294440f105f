"""Between host and machine a map changes its layout at the border, once, and nowhere else."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.bundle.program import HostSegment
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim import engine, session
from opu_fuse.sim.compare.runs import check
from tests.host.sketch import same_bits

# Host and machine in turn; both host segments read a, and the machine and the last one read s.
MODEL = """
<ir_version: 10, opset_import: ["" : 17]>
g (float[1,8,6,6] x) => (float[1,8,6,6] y, float[1,8,6,6] z) {
    [r1] a = Relu(x)
    [s1] g1 = Sigmoid(a)
    [m1] s = Mul(a, g1)
    [r2] b = Relu(s)
    [s2] g2 = Sigmoid(b)
    [m2] t = Mul(s, g2)
    [m3] y = Mul(t, a)
    [r3] z = Relu(b)
}
"""


@pytest.fixture(scope="module")
def bundle():
    model = ir.from_proto(onnx.parser.parse_model(MODEL))
    return compile_model(model, load_hw("opu-tiny")).bundle


@pytest.fixture
def moved(monkeypatch):
    """(to the machine, to the host): value name -> how often its layout was changed."""
    written, read = Counter(), Counter()
    write, look = session.write_tensor, session.read_tensor
    monkeypatch.setattr(
        session, "write_tensor", lambda w, t, v: written.update([t.name]) or write(w, t, v)
    )
    monkeypatch.setattr(
        session, "read_tensor", lambda w, t, n: read.update([t.name]) or look(w, t, n)
    )
    return written, read


def image(rng):
    return {"x": rng.normal(size=(1, 8, 6, 6)).astype(np.float32)}


def test_each_map_crosses_a_border_once_and_none_goes_back(bundle, moved, rng):
    hosts = [s for s in bundle.segments if isinstance(s, HostSegment)]
    assert [isinstance(s, HostSegment) for s in bundle.segments] == [False, True] * 2
    assert all(len(s.pieces) > 1 for s in hosts), "pieces exchange plain arrays"
    readers = Counter(value for s in hosts for _, value in s.inputs)
    assert readers["a"] == 2
    assert readers["s"] == 1
    engine.run(bundle, load_hw("opu-tiny"), image(rng))
    written, read = moved
    assert written == {"x": 1, "s": 1}, "what the machine reads of input and host"
    assert read == {"a": 1, "b": 1, "z": 1}, "what host and output read of the machine"


def test_what_stays_on_the_host_is_what_lies_in_the_machine(bundle, rng):
    inputs = image(rng)
    result = engine.run(bundle, load_hw("opu-tiny"), inputs, capture=True)
    checked = check(bundle, inputs, result)
    assert checked.passed
    assert checked.uncompared == ()
    again = engine.run(bundle, load_hw("opu-tiny"), inputs, shuffle=3)
    assert all(same_bits(again.outputs[n], value) for n, value in result.outputs.items())
