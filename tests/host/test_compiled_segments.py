"""Host segments of compiled programs: fused kernels and ONNX Runtime, as the engines run them."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from opu_fuse.bundle.program import HostSegment
from opu_fuse.host.build.segment import host_model
from opu_fuse.host.run import segment as host
from opu_fuse.host.run.segment import Hosts, hosts_of
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.schedule.segment_order import HostWork
from opu_fuse.sim.engine import run
from tests.host.runtime import run_model
from tests.host.sketch import same_bits

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
gates (float[1,8,14,14] x) => (float[1,8,14,14] y, float[1,8] z) {
    c1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
    h = HardSwish (c1)
    c2 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (h, w2)
    s = Sigmoid (c2)
    m = Mul (h, s)
    t = Tanh (m)
    d = Sub (t, h)
    r = Mul (d, m)
    y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r, w3)
    p = GlobalAveragePool (m)
    f = Flatten (p)
    z = Softmax (f)
}
"""


@pytest.fixture(scope="module")
def compiled():
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(size=(8, 8, 3, 3)) * 0.15 for n in ("w1", "w2", "w3")}
    for name, data in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(data.astype(np.float32), name))
    return compile_model(
        ir.serde.deserialize_model(model), load_hw("opu-tiny"), Options(keep_float=("Sub_0",))
    )


def segments(compiled):
    """(host segment, its whole ONNX model) in order."""
    found = [s for s in compiled.bundle.segments if isinstance(s, HostSegment)]
    works = [s for s in compiled.plan.segments if isinstance(s, HostWork)]
    return [
        (segment, host_model(compiled.dfg, work.nodes, "whole").model)
        for segment, work in zip(found, works, strict=True)
    ]


def values_for(model, rng):
    found = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        if tensor.elem_type == onnx.TensorProto.INT8:
            found[info.name] = rng.integers(-128, 128, shape).astype(np.int8)
        else:
            found[info.name] = rng.normal(size=shape).astype(np.float32)
    return found


def test_the_pieces_of_a_program_give_the_bits_of_onnx_runtime_on_the_whole_segment(compiled, rng):
    kinds = set()
    for segment, model in segments(compiled):
        values = values_for(model, rng)
        expected = run_model(model, values)
        names = dict(segment.inputs)
        got = Hosts(compiled.bundle.hosts).run(segment, {names[n]: v for n, v in values.items()})
        assert set(segment.results) == set(expected), "a result is not shown"
        for name, value in segment.results.items():
            assert same_bits(got[value], expected[name]), name
        assert all(len(np.unique(data)) >= min(32, data.size // 2) for data in expected.values())
        kinds |= {piece.member.partition(".")[2].partition(".")[2] for piece in segment.pieces}
    assert kinds == {"kernel.json", "onnx"}


def test_every_operator_is_in_a_kernel_or_says_why_not(compiled):
    hosts = [s for s in compiled.bundle.segments if isinstance(s, HostSegment)]
    why = dict(op for s in hosts for piece in s.pieces for op in piece.ops)
    assert set(why) == {name for s in hosts for name, _, _ in s.ops}
    assert {name for name, reason in why.items() if not reason} == {
        *("HardSwish_0", "Mul_0", "Sub_0", "Mul_1")
    }
    assert why["Sigmoid_0"] == "Sigmoid: numpy and ONNX Runtime round it differently"
    assert why["Softmax_0"] == "Softmax: kernels have no such operator"
    cuts = {(producer, consumer): text for s in hosts for producer, consumer, text in s.cuts}
    assert cuts["Mul_0", "Sub_0+Mul_1"] == (
        "Sub_0+Mul_1 needs Tanh_0, which needs Mul_0: fused, they would wait forever"
    )


FOREIGN = """
<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,8,4,4] x) => (float[1,8,4,4] y) <float[1,8,4,4] h, float[1,8,4,4] n> {
    [relu] a = Relu(x)
    [trilu] h = com.microsoft.Trilu(a)
    [sub] n = Sub(h, a)
    [mul] e = Mul(n, a)
    [softmax] y = Softmax(e)
}
"""


def test_operators_behind_one_of_another_domain_are_fused_although_inference_ends_there():
    model = ir.from_proto(onnx.parser.parse_model(FOREIGN))
    options = Options(keep_float=("sub",))
    bundle = compile_model(model, load_hw("opu-tiny"), options).bundle
    (segment,) = [s for s in bundle.segments if isinstance(s, HostSegment)]
    assert [[name for name, _ in p.ops] for p in segment.pieces] == [
        *(["trilu"], ["sub", "mul"], ["softmax"])
    ]
    assert run(bundle, load_hw("opu-tiny")).outputs["y"].shape == (1, 8, 4, 4)


def test_sessions_are_made_once_for_all_runs_of_a_program(compiled, monkeypatch):
    host._begin_cache()
    made = []
    plain = host.session
    monkeypatch.setattr(host, "session", lambda model: made.append(model) or plain(model))
    bundle, hw = compiled.bundle, load_hw("opu-tiny")
    first = run(bundle, hw)
    models = [data for name, data in bundle.hosts.items() if name.endswith(".onnx")]
    assert sorted(made) == sorted(models)
    again = run(bundle, hw, capture=True)
    assert len(made) == len(models)
    assert all(same_bits(again.outputs[n], value) for n, value in first.outputs.items())
    assert hosts_of(bundle) is hosts_of(bundle)
