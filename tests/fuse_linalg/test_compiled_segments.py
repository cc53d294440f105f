"""Host segments of compiled programs, cut into kernels and smaller models."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from opu_fuse.bundle.kernels import kernel_from_json, kernel_to_json
from opu_fuse.bundle.program import HostSegment
from opu_fuse.fuse.linalg.split import split_host_model
from opu_fuse.hw.load import load_hw
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.generic import run_kernel
from tests.fuse_linalg.runtime import run_model
from tests.fuse_linalg.sketch import same_bits

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
gates (float[1,8,14,14] x) => (float[1,8,14,14] y, float[1,8] z) {
    c1 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
    h = HardSwish (c1)
    c2 = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (h, w2)
    s = Sigmoid (c2)
    m = Mul (c2, s)
    t = Tanh (m)
    a = Add (t, h)
    n = Neg (a)
    r = Max (n, k)
    y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (r, w3)
    p = GlobalAveragePool (m)
    f = Flatten (p)
    z = Softmax (f)
}
"""
FUSED = {"c1:DequantizeLinear", "HardSwish_0", "h:int8:QuantizeLinear", "Mul_0", "Neg_0", "Max_0"}


@pytest.fixture(scope="module")
def host_models():
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    weights = {n: rng.normal(size=(8, 8, 3, 3)) * 0.15 for n in ("w1", "w2", "w3")}
    for name, data in {**weights, "k": np.array([-1.5])}.items():
        model.graph.initializer.append(numpy_helper.from_array(data.astype(np.float32), name))
    bundle = compile_model(ir.serde.deserialize_model(model), load_hw("opu-tiny")).bundle
    members = [s.member for s in bundle.segments if isinstance(s, HostSegment)]
    return [onnx.load_from_string(bundle.hosts[member]) for member in members]


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


def test_kernels_read_back_from_the_program_give_the_bits_of_onnx_runtime(host_models, rng):
    fused = set()
    for model in host_models:
        values = values_for(model, rng)
        known = dict(values)
        for piece in split_host_model(model):
            if piece.kernel is None:
                known |= run_model(piece.model, known)
                continue
            fused |= set(piece.nodes)
            known |= run_kernel(kernel_from_json(kernel_to_json(piece.kernel), "k"), known)
        expected = run_model(model, values)
        assert all(same_bits(known[name], data) for name, data in expected.items())
        assert any(len(np.unique(data)) >= 32 for data in expected.values())
    assert fused >= FUSED
    assert fused.isdisjoint({"Sigmoid_0", "Tanh_0", "Softmax_0"})
