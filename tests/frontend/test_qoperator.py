"""Networks of operators on integers (QLinearConv and the like) mean networks of pairs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import opu_fuse
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.prepare import prepare
from opu_fuse.frontend.qdq_reference import reference, session

Text = Callable[..., onnx.ModelProto]
RNG = np.random.default_rng(8)
STEP, OUT = np.float32(0.05), np.float32(0.11)
ROWS = np.array([0.02, 0.05, 0.03, 0.01], np.float32)
LARGEST = 64
"""Of a weight: where a processor has AVX2 and no VNNI, ONNX Runtime clips the sum of two products
of bytes to 16 bits.
"""
SIGNED = RNG.integers(-LARGEST, LARGEST + 1, (4, 4)).astype(np.int8)
BIAS = RNG.integers(-500, 500, 4).astype(np.int32)

OPERATORS = {
    "Conv": "QLinearConv<pads=[1,1,1,1]>(x, s, z, k, rows, none, t, u, bias)",
    "Gemm": "com.microsoft.QGemm<transB=1, alpha=0.5>(v, s, z, w, rows, none, bias, t, u)",
    "Gemm, plain": "com.microsoft.QGemm(v, s, z, w, rows, none, bias, t, u)",
    "MatMul": "QLinearMatMul(v, s, z, w, rows, none, t, u)",
    "Add": "com.microsoft.QLinearAdd(x, s, z, x, t, u, t, u)",
    "Mul": "com.microsoft.QLinearMul(x, s, z, x, t, u, t, u)",
    "Concat": "com.microsoft.QLinearConcat<axis=1>(t, u, x, s, z, x, t, u)",
    "AveragePool": "com.microsoft.QLinearAveragePool<kernel_shape=[2,2]>(x, s, z, t, u)",
    "GlobalAveragePool": "com.microsoft.QLinearGlobalAveragePool(x, s, z, t, u)",
    "Sigmoid": "com.microsoft.QLinearSigmoid(x, s, z, small, u)",
    "LeakyRelu": "com.microsoft.QLinearLeakyRelu<alpha=0.1>(x, s, z, t, u)",
    "Softmax": "com.microsoft.QLinearSoftmax<axis=1, opset=13>(x, s, z, small, u)",
}


def text(kind: str, nodes: str) -> str:
    return f"g ({kind}[1,4,6,6] x, {kind}[1,4] v) => ({kind}[...] y) {{ {nodes} }}".replace(
        f"{kind}[...]", f"{kind}[{'a,b' if '(v,' in nodes else 'a,b,c,d'}]"
    )


def constants(kind: type) -> Mapping[str, np.ndarray | np.generic]:
    middle = {np.uint8: 118, np.int8: -9}[kind]
    return {
        "s": STEP,
        "z": kind(middle),
        "t": OUT,
        "u": kind(middle - 7),
        "small": np.float32(1 / 256),
        "w": SIGNED,
        "k": RNG.integers(-LARGEST, LARGEST + 1, (4, 4, 3, 3)).astype(np.int8),
        "rows": ROWS,
        "none": np.zeros(4, np.int8),
        "bias": BIAS,
    }


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_on_integers_means_one_on_reals(name: str, kind: type, onnx_text: Text):
    nodes = "y = " + OPERATORS[name]
    model = onnx_text(text(kind.__name__, nodes), **constants(kind))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    qdq = prepare(model).qdq
    assert qdq is not None
    operators = {node.op_type for node in qdq.graph.node}
    assert operators == {"DequantizeLinear", name.partition(",")[0], "QuantizeLinear"}
    info = np.iinfo(kind)
    inputs = {
        "x": RNG.integers(info.min, info.max, (1, 4, 6, 6)).astype(kind),
        "v": RNG.integers(info.min, info.max, (1, 4)).astype(kind),
    }
    (wanted,) = session(model).run(None, inputs)
    got = reference(qdq, inputs)["y"]
    assert got.dtype == np.asarray(wanted).dtype == kind
    assert len(np.unique(got)) > 3
    assert np.abs(got.astype(int) - np.asarray(wanted).astype(int)).max() <= 1


def test_a_product_may_leave_its_sums_in_floats(onnx_text: Text):
    body = text("uint8", "y = com.microsoft.QGemm<transB=1>(v, s, z, w, rows, none, bias)")
    model = onnx_text(body.replace("=> (uint8", "=> (float"), **constants(np.uint8))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    qdq = ir.to_proto(load_model(model))
    assert "Gemm" in {n.op_type for n in qdq.graph.node}
    inputs = {"x": np.zeros((1, 4, 6, 6), np.uint8), "v": np.array([[1, 200, 30, 9]], np.uint8)}
    got, wanted = (session(m).run(None, inputs)[0] for m in (qdq, model))
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-5)


@pytest.mark.parametrize(
    "nodes",
    [
        "y = com.microsoft.QLinearGlobalAveragePool<channels_last=1>(x, s, z, t, u)",
        "y = com.microsoft.QLinearSoftmax<axis=1, opset=12>(x, s, z, small, u)",
        "y = com.microsoft.QLinearAdd(x, s, z)",
        "y = com.microsoft.QLinearConcat<axis=1>(t, u)",
        "y = QLinearConv<pads=[1,1,1,1]>(x, a, z, k, rows, none, t, u, bias)",
    ],
)
def test_what_has_no_form_in_reals_stays(nodes: str, onnx_text: Text):
    body = text("uint8", nodes).replace("(uint8[1,4,6,6]", "(float a, uint8[1,4,6,6]")
    model = onnx_text(body, **constants(np.uint8))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    assert [n.op_type for n in load_model(model).graph][-1].startswith("QLinear")


def test_an_operator_whose_shape_nobody_knows_stands_in_no_pools_way(onnx_text: Text):
    body = """g (float[1,4,6,6] x) => (float[1,4,3,3] y)
    { q = QuantizeLinear(x, s, z)  c = QLinearConv(q, s, z, k, rows, none, t, u, bias)
      p = MaxPool<kernel_shape=[2,2], pads=[1,1,1,1], strides=[2,2]>(c)
      o = com.microsoft.QLinearSoftmax<axis=3, opset=11>(p, t, u, small, u)
      y = DequantizeLinear(o, small, u) }"""
    model = onnx_text(body, **constants(np.uint8))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    prepared = prepare(model)
    kinds = [node.op_type for node in prepared.canonical.graph]
    assert kinds[0] == "Conv"
    assert "QLinearSoftmax" in kinds
    qdq = prepared.qdq
    assert qdq is not None
    inputs = {"x": RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)}
    (wanted,) = session(model).run(None, inputs)
    np.testing.assert_allclose(reference(qdq, inputs)["y"], np.asarray(wanted), atol=2 / 256)


def test_what_moves_integers_moves_what_they_stand_for(onnx_text: Text):
    body = """g (float[1,4,6,6] x) => (float[1,72] y, int8[1,2,6,6] lo)
    { q = QuantizeLinear(x, s, z)  t = Transpose<perm=[0,1,3,2]>(q)  lo, hi = Split<axis=1>(t, two)
      p = MaxPool<kernel_shape=[1,1]>(hi)  f = Flatten(p)  y = DequantizeLinear(f, s, z) }"""
    model = onnx_text(body, s=STEP, z=np.int8(3), two=np.array([2, 2], np.int64))
    loaded = load_model(model)
    moved = [n for n in loaded.graph if n.op_type in {"Transpose", "Split", "MaxPool", "Flatten"}]
    assert all(v.dtype is not None and v.dtype.name == "FLOAT" for n in moved for v in n.outputs)
    qdq = prepare(model).qdq
    assert qdq is not None
    inputs = {"x": RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)}
    got = reference(qdq, inputs)
    for name, wanted in zip(("y", "lo"), session(model).run(None, inputs), strict=True):
        np.testing.assert_array_equal(got[name], wanted)


FLOOR = 'coordinate_transformation_mode="asymmetric", nearest_mode="floor"'
MOVERS = {
    "Pad": "Pad(q, pads, filling)",
    "Pad, mirrored": 'Pad<mode="reflect">(q, pads)',
    "Resize": f"Resize<{FLOOR}>(q, , twice)",
    "DepthToSpace": "DepthToSpace<blocksize=2>(q)",
    "SpaceToDepth": "SpaceToDepth<blocksize=2>(q)",
    "Gather": "Gather<axis=1>(q, order)",
    "Tile": "Tile(q, often)",
    "ReduceMax": "ReduceMax<axes=[2]>(q)",
}


@pytest.mark.parametrize("machine", ["opu-1024t", "opu-tiny"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("name", MOVERS)
def test_what_the_quantiser_leaves_in_integers_is_moved(name, kind, machine, onnx_text: Text):
    body = f"""g (float[1,4,6,6] x) => (float[a,b,c,d] y)
    {{ q = QuantizeLinear(x, s, z)  m = {MOVERS[name]}  y = DequantizeLinear(m, s, z) }}"""
    model = onnx_text(
        body,
        **constants(kind),
        pads=np.array([0, 0, 1, 2, 0, 0, 2, 1], np.int64),
        filling=kind(100),
        twice=np.array([1, 1, 2, 2], np.float32),
        order=np.array([2, 0, 0], np.int64),
        often=np.array([1, 1, 2, 1], np.int64),
    )
    qdq = prepare(model).qdq
    assert qdq is not None
    moved = [n for n in qdq.graph.node if n.op_type == name.partition(",")[0]]
    assert moved[0].input[0].endswith("/real")
    inputs = {"x": RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)}
    (wanted,) = session(model).run(None, inputs)
    np.testing.assert_array_equal(reference(qdq, inputs)["y"], wanted)
    program = opu_fuse.compile(model, opu_fuse.load_hw(machine))
    np.testing.assert_array_equal(program.run(inputs).outputs["y"], wanted)


def test_a_map_of_integers_that_is_interpolated_stays(onnx_text: Text):
    body = """g (float[1,4,6,6] x) => (float[1,4,12,12] y)
    { q = QuantizeLinear(x, s, z)  m = Resize<mode="linear">(q, , twice)
      y = DequantizeLinear(m, s, z) }"""
    model = onnx_text(body, s=STEP, z=np.uint8(118), twice=np.array([1, 1, 2, 2], np.float32))
    program = opu_fuse.compile(model, opu_fuse.load_hw("opu-1024t"))
    inputs = {"x": RNG.normal(size=(1, 4, 6, 6)).astype(np.float32)}
    (wanted,) = session(model).run(None, inputs)
    np.testing.assert_array_equal(program.run(inputs).outputs["y"], wanted)


class _Images(CalibrationDataReader):
    def __init__(self, images: np.ndarray) -> None:
        self._images = iter(images)

    def get_next(self) -> Any:
        image = next(self._images, None)
        return None if image is None else {"x": image}


NETWORK = """g (float[1,4,12,12] x) => (float[1,6] y)
{ c = Conv<pads=[1,1,1,1]>(x, w, b)  r = Relu(c)  p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
  d = Conv<pads=[1,1,1,1]>(p, w, b)  a = Add(d, p)  j = Concat<axis=1>(a, p)
  m = GlobalAveragePool(j)  f = Flatten(m)  y = Gemm(f, k) }"""


@pytest.mark.parametrize("activation", [QuantType.QUInt8, QuantType.QInt8])
def test_a_network_that_onnx_runtime_wrote_so_runs_on_the_machine(
    tmp_path: Path, activation: QuantType, onnx_text: Text
):
    shapes = {"w": (4, 4, 3, 3), "b": (4,), "k": (8, 6)}
    weights = {n: RNG.normal(size=s).astype(np.float32) * 0.3 for n, s in shapes.items()}
    onnx.save(onnx_text(NETWORK, **weights), tmp_path / "float.onnx")
    images = RNG.standard_normal((4, 1, 4, 12, 12), np.float32)
    quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "q.onnx",
        _Images(images),
        quant_format=QuantFormat.QOperator,
        activation_type=activation,
        per_channel=True,
        # ONNX Runtime's sums of two products of uint8 and int8 saturate at 16 bits on processors
        # without VNNI.
        reduce_range=True,
    )
    model = onnx.load(tmp_path / "q.onnx")
    assert "QLinearConv" in {n.op_type for n in model.graph.node}
    program = opu_fuse.compile(tmp_path / "q.onnx", opu_fuse.load_hw("opu-tiny"))
    done = [op.op for group in program.bundle.groups for op in group.ops]
    assert [done.count(op) for op in ("conv", "dense", "max_pool")] == [2, 1, 1]
    inputs = {"x": images[0]}
    got, wanted = program.run(inputs).outputs["y"], session(model).run(None, inputs)[0]
    np.testing.assert_allclose(got, np.asarray(wanted), atol=0.05 * np.abs(images[0]).max())


def as_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network with its initialisers written as Constant nodes."""
    nodes = [
        onnx.helper.make_node("Constant", [], [t.name], value=t) for t in model.graph.initializer
    ]
    nodes += model.graph.node
    for field in (model.graph.initializer, model.graph.node):
        del field[:]
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("name", ["Conv", "Gemm"])
def test_scales_may_be_constant_nodes(name: str, onnx_text: Text):
    model = onnx_text(text("uint8", "y = " + OPERATORS[name]), **constants(np.uint8))
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    operators = {node.op_type for node in load_model(as_nodes(model)).graph}
    assert operators == {"DequantizeLinear", name.partition(",")[0], "QuantizeLinear"}


def test_limits_of_integers_may_be_constant_nodes(onnx_text: Text):
    """So torch exports the pairs of seven bits."""
    body = """g (float[1,4,6,6] x) => (float[1,4,6,6] y)
    { q = QuantizeLinear(x, s, z)  c = Clip(q, low, high)  y = DequantizeLinear(c, s, z) }"""
    numbers = {"s": STEP, "z": np.uint8(64), "low": np.uint8(0), "high": np.uint8(127)}
    loaded = load_model(as_nodes(onnx_text(body, **numbers)))
    (clip,) = (node for node in loaded.graph if node.op_type == "Clip")
    assert clip.inputs[1] is not None
    assert clip.inputs[1].const_value is not None
    assert clip.inputs[1].const_value.numpy() == np.float32(-64 * STEP)


@pytest.mark.parametrize("up", [False, True])
def test_constant_nodes_of_a_branch_stay_its_own(up: bool, onnx_text: Text):
    """The two have the same names inside."""
    branch = "() => (float[4] {0}) {{ k = Constant<value = float {{{1}}}>() {0} = Mul(d, k) }}"
    body = f"""g (float[4] x) => (float[4] y)
    {{ q = QuantizeLinear(x, s, z)  r = Clip(q, z, high)  d = DequantizeLinear(r, s, z)
      b = If(up)<then_branch = t {branch.format("e", 1)}, else_branch = f {branch.format("h", 2)}>
      y = Mul(b, three) }}"""
    three = np.float32(3)
    numbers = {"s": np.float32(0.5), "z": np.uint8(0), "high": np.uint8(4), "three": three}
    loaded = ir.to_proto(load_model(as_nodes(onnx_text(body, **numbers, up=np.array(up)))))
    (y,) = session(loaded).run(None, {"x": np.array([1, 9, -1, 2], np.float32)})
    np.testing.assert_array_equal(y, (3 if up else 6) * np.array([1, 2, 0, 2], np.float32))
