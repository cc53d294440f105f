"""Pairs as other tools write them run on the machine, with the bits that ONNX Runtime gives."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
import pytest

from opu_fuse.bundle.program import Bundle, HostSegment
from opu_fuse.errors import UserError
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model, partition_model
from opu_fuse.sim import engine
from opu_fuse.sim.compare.runs import check

HW = load_hw("opu-light")
RNG = np.random.default_rng(21)
INT4 = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.INT4)
UINT4 = onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.UINT4)
ROWS = np.array([1, 0.5, 2, 1, 1, 4], np.float32) / 256

PLAIN = "x_q = QuantizeLinear(x, s, z)  x_r = DequantizeLinear(x_q, s, z) "
MAP = " c = Conv<pads=[1,1,1,1]>(x_r, w_r)  c_q = QuantizeLinear(c, s, z) "
DENSE = " c_q = QuantizeLinear(c, s, z) "
REAL = " y = DequantizeLinear(c_q, s, z)"
FOREIGN = PLAIN.replace(" Quant", " com.microsoft.Quant").replace(" Dequ", " com.microsoft.Dequ")
TURNED = " w_t = Transpose<perm=[1,0]>(w_d) "
PER_ROW = " w_r = DequantizeLinear<axis=0>(w, rows) "
CLIPPED = (
    "x_q = QuantizeLinear(x, s, z)  x_k = Clip(x_q, low, high)  x_r = DequantizeLinear(x_k, s, z)"
    f" w_k = Clip(w, low, high)  w_r = DequantizeLinear<axis=0>(w_k, rows) {MAP}"
    " c_k = Clip(c_q, low, high)  y = DequantizeLinear(c_k, s, z)"
)
ONE_SIDE = (
    f"{PLAIN}{PER_ROW} c = Conv<pads=[1,1,1,1]>(x_r, w_r)  c_q = QuantizeLinear(c, s, u)"
    " c_k = Clip(c_q, , high)  y = DequantizeLinear(c_k, s, u)"
)


def kernels(low: int, high: int, kind: type | np.dtype = np.int8) -> np.ndarray:
    return RNG.integers(low, high, (6, 4, 3, 3)).astype(kind)


def rows(kind: type = np.int8) -> np.ndarray:
    return RNG.integers(-99, 100, (6, 4)).astype(kind)


FILTERS = kernels(-99, 100)
SHARED = {"s": np.float32(2**-4), "t": np.float32(2**-8), "z": np.int8(0)}
SHARED |= {"rows": ROWS, "w": FILTERS}
IMAGE = RNG.normal(0, 3, (1, 4, 6, 5)).astype(np.float32)
IMAGES, VECTORS = "(float[1,4,6,5] x) => (float[1,6,6,5] y)", "(float[1,4] x) => (float[1,6] y)"
NORMALISED = (
    " k = Conv<pads=[1,1,1,1]>(x_r, w_r) c = BatchNormalization<epsilon=0.0>(k, gain, add, no, one)"
    f" c_q = QuantizeLinear(c, s, z) {REAL}"
)
MOMENTS = {
    "gain": np.array([1, 0.5, -2, 0, -0.25, 4], np.float32),
    "add": np.array([0.5, -1, 0, 2, 0.25, -3], np.float32),
    "no": np.zeros(6, np.float32),
    "one": np.ones(6, np.float32),
}
FINE_BIAS = " b_r = DequantizeLinear(b, fine, z)  c = Conv<pads=[1,1,1,1]>(x_r, w_r, b_r) "
FINE = {"w": FILTERS // 32, "rows": ROWS * 16, "fine": np.float32(2**-10)}
FINE |= {"b": np.array([-98, 1, 14, 102, 66, 7], np.int8)}
Arrays = Mapping[str, np.ndarray | np.generic]
CASES = {
    "a dense layer's weight, turned behind its pair": (
        f"{PLAIN} w_d = DequantizeLinear<axis=0>(w, rows) {TURNED} c = MatMul(x_r, w_t)"
        + (DENSE + REAL),
        {"w": rows()},
    ),
    "the same with one scale": (
        f"{PLAIN} w_d = DequantizeLinear(w, t) {TURNED} c = Gemm(x_r, w_t) {DENSE}{REAL}",
        {"w": rows()},
    ),
    "a weight as a matrix": (
        f"{PLAIN} w_d = DequantizeLinear<axis=0>(w, rows)  w_r = Reshape(w_d, form) {MAP}{REAL}",
        {"w": FILTERS.reshape(6, 36), "form": np.array([6, 4, 3, 3], np.int64)},
    ),
    "a normalisation behind the weights' pair": (PLAIN + PER_ROW + NORMALISED, MOMENTS),
    "the same behind weights of one scale": (
        f"{PLAIN} w_r = DequantizeLinear(w, t) {NORMALISED}",
        MOMENTS,
    ),
    "the same with weights of -128, which it negates": (
        PLAIN + PER_ROW + NORMALISED,
        MOMENTS | {"w": np.random.default_rng(4).integers(-128, 128, (6, 4, 3, 3)).astype(np.int8)},
    ),
    "weights of 4 bits": (PLAIN + PER_ROW + MAP + REAL, {"w": kernels(-8, 8, INT4)}),
    "weights of 4 bits and zero points": (
        f"{PLAIN} w_r = DequantizeLinear<axis=0>(w, rows, zeros) {MAP}{REAL}",
        {"w": kernels(0, 16, UINT4), "zeros": np.arange(6).astype(UINT4)},
    ),
    "integers that are clipped to 4 bits": (
        CLIPPED,
        {"w": kernels(-30, 30), "low": np.int8(-7), "high": np.int8(7)},
    ),
    "unsigned integers that are clipped on one side": (
        ONE_SIDE,
        {"u": np.uint8(100), "high": np.uint8(110)},
    ),
    "pairs of ONNX Runtime's own domain": (FOREIGN + PER_ROW + MAP + REAL, {}),
    "a bias finer than the sums": (PLAIN + PER_ROW + FINE_BIAS + DENSE + REAL, FINE),
    "no zero points, the type as an attribute": (
        "x_q = QuantizeLinear<output_dtype=3>(x, s)  x_r = DequantizeLinear(x_q, s)"
        + (PER_ROW + MAP + REAL),
        {},
    ),
}


def written(ports: str, nodes: str, constants: Arrays, opset: int = 21) -> onnx.ModelProto:
    """A model of a text; what it reads of the constants is added."""
    imports = f'["" : {opset}, "com.microsoft" : 1]'
    model = onnx.parser.parse_model(
        f"<ir_version: 8, opset_import: {imports}> g {ports} {{ {nodes} }}"
    )
    read = {name for node in model.graph.node for name in node.input}
    for name in read.intersection(constants):
        tensor = onnx.numpy_helper.from_array(np.asarray(constants[name]), name)
        model.graph.initializer.append(tensor)
    return model


def checked(model: onnx.ModelProto, x: np.ndarray) -> tuple[Bundle, np.ndarray]:
    """Its program and result, every tensor being what ONNX Runtime gives."""
    bundle = compile_model(model, HW).bundle
    result = engine.run(bundle, HW, {"x": x}, capture=True)
    assert check(bundle, {"x": x}, result).mismatches == 0
    return bundle, result.outputs["y"]


def right(model: onnx.ModelProto, x: np.ndarray) -> Bundle:
    """Its program, which gives what ONNX Runtime makes of the model as it stands. (Made faster, it
    would clip sums of two products to 16 bits on processors without VNNI.)
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    expected = session.run(None, {"x": x})[0]
    assert len(np.unique(np.asarray(expected))) > 4, "says little"
    bundle, y = checked(model, x)
    np.testing.assert_array_equal(y, expected)
    return bundle


@pytest.mark.parametrize(("nodes", "constants"), CASES.values(), ids=CASES)
def test_nothing_is_left_to_the_host(nodes: str, constants: Arrays):
    x, ports = (IMAGE, IMAGES) if "Conv" in nodes else (IMAGE[:, :, 0, 0], VECTORS)
    bundle = right(written(ports, nodes, {**SHARED, **constants}), x)
    assert not any(isinstance(s, HostSegment) for s in bundle.segments)


LINES_TWICE = (
    "k = MaxPool<kernel_shape=[2,1], strides=[2,1]>(c_r)  l = Resize"
    '<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(k, , twice)'
)
MOVES = {
    "Concat": ("m = Concat<axis=1>(c_r, x_r)", (10, 6, 5)),
    "Concat of a Resize": (f"{LINES_TWICE}  m = Concat<axis=1>(l, x_r)", (10, 6, 5)),
    "SpaceToDepth": (
        "k = MaxPool<kernel_shape=[1,2]>(c_r)  l = SpaceToDepth<blocksize=2>(k)  m = Relu(l)",
        (24, 3, 2),
    ),
    "Slice": ("m = Slice(c_r, one, four, one)", (3, 6, 5)),
    "Split": ("m, n = Split<axis=1>(c_r, halves)", (3, 6, 5)),
}
"""What gives values of its operands, which have one scale, and no pair behind; with its size."""
PLACES = {
    "twice": np.array([1, 1, 2, 1], np.float32),
    "one": np.array([1], np.int64),
    "four": np.array([4], np.int64),
    "halves": np.array([3, 3], np.int64),
}


@pytest.mark.parametrize("move", MOVES)
def test_values_of_one_scale_have_it_wherever_they_are_moved(move: str):
    """A layer behind reads them, with a bias in floats; it is not left to the host."""
    moved, (channels, rows, columns) = MOVES[move]
    nodes = f"{PLAIN}{PER_ROW}{MAP} c_r = DequantizeLinear(c_q, s, z)  {moved}"
    nodes += "  v_r = DequantizeLinear(v, t, z)  d = Conv(m, v_r, b)  d_q = QuantizeLinear(d, s, z)"
    nodes += "  y = DequantizeLinear(d_q, s, z)"
    v = RNG.integers(-99, 100, (6, channels, 1, 1)).astype(np.int8)
    constants = (
        SHARED | PLACES | {"v": v, "b": np.array([0.5, -1, 2, 0, 0.25, -0.0625], np.float32)}
    )
    ports = IMAGES.replace("6,6,5", f"6,{rows},{columns}")
    bundle = right(written(ports, nodes, constants), IMAGE)
    assert not any(isinstance(s, HostSegment) for s in bundle.segments)


def test_a_last_layer_in_floats_has_the_bias_of_the_file():
    """Behind one on the machine; its operands are rounded, its result is not."""
    constants = SHARED | {"v": kernels(-9, 9)[:, :1].repeat(6, 1), "b": RNG.normal(size=6)}
    constants["b"] = constants["b"].astype(np.float32)
    last = " c_r = DequantizeLinear(c_q, s, z)  v_r = DequantizeLinear<axis=0>(v, rows)"
    last += " y = Conv<pads=[1,1,1,1]>(c_r, v_r, b)"
    bundle = right(written(IMAGES, PLAIN + PER_ROW + MAP + last, constants), IMAGE)
    assert len(bundle.groups) == 1


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_the_type_of_a_port_is_the_zero_points(kind: str):
    """Neither the input's pair nor the output's has a zero point: for one it is the operand's type,
    for the other an attribute or uint8.
    """
    said = "<output_dtype=3>" if kind == "int8" else ""
    nodes = f"x_r = DequantizeLinear(x, s) {PER_ROW} c = Conv<pads=[1,1,1,1]>(x_r, w_r)"
    nodes += f" y = QuantizeLinear{said}(c, s)"
    low, high = (-128, 128) if kind == "int8" else (0, 256)
    x = RNG.integers(low, high, IMAGE.shape).astype(kind)
    right(written(IMAGES.replace("float", kind), nodes, SHARED), x)


@pytest.mark.parametrize("zero", ["", "wide = Constant<value = uint16 {32768}>()"])
def test_sixteen_bits_before_the_standard_knew_them_run_on_the_host(zero: str):
    """Pairs of ONNX Runtime's own domain, behind which nobody infers a shape. The zero point tells
    their type, wherever it stands.
    """
    nodes = f"{zero} x_q = com.microsoft.QuantizeLinear(x, fine, wide)"
    nodes += " x_r = com.microsoft.DequantizeLinear(x_q, fine, wide)"
    constants = SHARED | {"fine": np.float32(2**-12)}
    if not zero:
        constants["wide"] = np.uint16(1 << 15)
    right(written(IMAGES, nodes + PER_ROW + MAP + REAL, constants, opset=13), IMAGE)


@pytest.mark.parametrize("kind", [INT4, UINT4], ids=["int4", "uint4"])
def test_four_bits_before_the_standard_knew_them_run_on_the_machine(kind: np.dtype):
    """As ONNX Runtime's quantiser writes them, in its own domain, into a model of an older set."""
    weights = RNG.integers(0, 8, (6, 4, 3, 3)).astype(kind)
    constants = SHARED | {"w4": weights, "four": np.zeros((), kind)}
    unpacked = " w_r = com.microsoft.DequantizeLinear(w4, t, four)"
    model = written(IMAGES, FOREIGN + unpacked + MAP + REAL, constants, opset=17)
    bundle = right(model, IMAGE)
    assert not any(isinstance(s, HostSegment) for s in bundle.segments)


@pytest.mark.parametrize("count", [0, 2])
def test_a_limit_that_is_no_number_is_refused(count: int):
    nodes = f"{PLAIN}{PER_ROW}{MAP} c_k = Clip(c_q, low)  y = DequantizeLinear(c_k, s, z)"
    model = written(IMAGES, nodes, SHARED | {"low": np.zeros(count, np.int8)})
    with pytest.raises(UserError, match="ONNX Runtime"):
        checked(model, IMAGE)


HALF = (
    f"{PLAIN}{PER_ROW}{MAP} c_r = DequantizeLinear(c_q, s, z)"
    " points_r = DequantizeLinear(points, t)  d = Conv(c_r, points_r)"
    " r = LeakyRelu<alpha=0.125>(d)  r_q = QuantizeLinear(r, s, z)  y = DequantizeLinear(r_q, s, z)"
)


@pytest.mark.parametrize("strategy", [s for s in StrategyName if s != StrategyName.GREEDY])
def test_a_quantised_model_is_partitioned_as_it_is_compiled(strategy: StrategyName):
    """Nothing rounds between the second convolution and its LeakyRelu: both are the host's."""
    constants = SHARED | {"points": np.eye(6, dtype=np.int8).reshape(6, 6, 1, 1)}
    model = written(IMAGES, HALF, constants)
    done = compile_model(model, HW, Options(strategy=strategy))
    dfg, found = partition_model(model, HW, strategy)
    assert found == done.partition
    assert [op.op for op in dfg.nodes] == [op.op for op in done.dfg.nodes]
    assert {dfg[op.node].op for op in found.host} == {"conv", "leaky_relu"}
    assert len(found.groups) == 1


def test_the_published_strategy_shows_a_quantised_model_too():
    constants = SHARED | {"points": np.eye(6, dtype=np.int8).reshape(6, 6, 1, 1)}
    _, found = partition_model(written(IMAGES, HALF, constants), HW, StrategyName.GREEDY)
    assert found.groups
    assert any("not rounded to int8" in v.text for v in found.violations)


LAYER = f"{PLAIN}{PER_ROW} [layer] c = Conv<pads=[1,1,1,1]>(x_r, w_r) "
OTHERWISE = {
    "it is rounded to 16 bits, machines hold int8": (
        "c_q = QuantizeLinear(c, t, wide)  y = DequantizeLinear(c_q, t, wide)"
    ),
    "it is rounded with a scale for each channel, give it one per tensor": (
        "c_q = QuantizeLinear<axis=1>(c, rows, six)  y = DequantizeLinear<axis=1>(c_q, rows, six)"
    ),
    "it is rounded to several scales, a map has one": (
        "b_q = QuantizeLinear(c, t, z)  c_q = QuantizeLinear(c, s, z)"
        " b = DequantizeLinear(b_q, t, z)  d = DequantizeLinear(c_q, s, z)  y = Add(b, d)"
    ),
    "no QuantizeLinear follows": "y = Softmax(c)",
}


@pytest.mark.parametrize("why", OTHERWISE)
def test_how_a_value_is_rounded_is_said(why: str):
    constants = SHARED | {"wide": np.int16(0), "six": np.zeros(6, np.int8)}
    dfg, found = partition_model(written(IMAGES, LAYER + OTHERWISE[why], constants), HW)
    (told,) = (op.reason for op in found.host if dfg[op.node].name == "layer")
    assert told.startswith(f"the result of layer is not rounded to int8 in the model ({why})")
