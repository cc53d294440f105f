"""Small models that were once computed wrongly, or not at all; most were found by fuzzing.

Right means: ONNX Runtime's own outputs, and every int8 tensor that the engine shows. The reference
reads nothing of ours but the quantised model.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import opu_fuse
from opu_fuse.bundle.program import HostSegment
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.ports import noise
from tests.written import written

FOLDER = Path(__file__).parent
LAYOUT = ("opu-1024", "opu-micro", "opu-light", "opu-classic")
RIGHT = {
    # the same map twice in a concatenation: its lanes had the weights of the last place
    **dict.fromkeys(("gd1", "h100_min", "h101_min", "h111_min", "n48_min"), LAYOUT),
    # concatenations that share operands: the later one was read at the place of the first (a Relu
    # ends each: what nothing quantised computes or reads would not be rounded)
    **dict.fromkeys(("cd1", "cc2", "cd4", "classic_concat_wrong"), LAYOUT),
    # a constant was taken for a map in memory, a stage for two
    "classic_weight": ("opu-classic",),
    "lone_add": LAYOUT,
    "lone_mul2": LAYOUT,
    "relu_relu": LAYOUT,
    **dict.fromkeys(("rse_sigmoid", "rse_hardsigmoid", "se_residual"), ("opu-light", "opu-1024")),
    # a joined concatenation was looked at before its last part was there
    "n302_min": ("opu-1024", "opu-light"),
    "concat_prelu2": ("opu-1024", "opu-classic"),
    # a split's operand reaches beyond the part that a concatenation reads
    "split_part_in_nested_concat": LAYOUT,
    "split_in_concat_lifetime": LAYOUT,
    # one phase of a transposed convolution saw zero, not the zero point, outside its input
    "transposed_one_phase": ("opu-1024", "opu-light"),
    "transposed_behind_batch_norm": ("opu-1024",),
    # a pool or an activation ran beside the group that waits for it, through a view of the host
    "reader_beside_its_source": ("opu-tiny", "opu-micro"),
    # floats that are rounded behind a view of them only
    "flatten_of_float_input": ("opu-tiny", "opu-1024"),
    # the host rounds a pool of floats, and a group reads it through a view that the host makes too
    "float_pool_flattened": ("opu-tiny", "opu-light"),
    # windows of a transposed convolution, one a channel, behind a clamp in front of the array
    "clamped_depthwise_transposed": ("opu-light",),
    # a constant of three columns was taken for three channels of the map that it is subtracted from
    "columns_in_concat": ("opu-classic", "opu-tiny"),
    # the host wrote its view of a map to memory that another map had got meanwhile
    "host_view_overwrites": ("opu-1024",),
}
HEADER = '<ir_version: 10, opset_import: ["" : 17]> g '
TEXTS = {
    "a padding before a flattened map": """(float[1,6,4,4] x) => (float[1,7] y)
    <int64[8] pads = {0,0,1,0,0,0,2,0}, float[168,7] w, int64[2] flat = {1,168}>
    { p = Pad(x, pads)  f = Reshape(p, flat)  y = MatMul(f, w) }""",
    "a padding before a transposed convolution": """(float[1,4,5,6] x) => (float[1,3,17,19] y)
    <int64[8] pads = {0,0,1,2,0,0,2,1}, float[4,3,3,3] w>
    { p = Pad(x, pads)  y = ConvTranspose<strides=[2,2]>(p, w) }""",
    "a padding before an average that exceeds a tile": """
    (float[1,4,60,60] x) => (float[1,4,2,3] y) <int64[8] pads = {0,0,1,2,0,0,2,1}>
    { p = Pad(x, pads)  y = AveragePool<kernel_shape=[58,58], strides=[4,2]>(p) }""",
    "one padding behind another": """(float[1,5,4,6] x) => (float[1,5,6,12] y)
    <int64[8] pads = {0,0,1,2,0,0,1,2}, int64[8] more = {0,0,0,1,0,0,0,1}>
    { r = Relu(x)  p = Pad(r, pads)  y = Pad(p, more) }""",
    "a concatenation of a reshaped map": """
    (float[1,1,2,9] x, float[1,9,5,2] v) => (float[1,3,2,9] y)
    <int64[4] shape = {1,5,2,9}, float[3,6,1,1] w>
    { r = Reshape(v, shape)  c = Concat<axis=1>(x, r)  y = Conv(c, w) }""",
    "a view of a value of the host, read there and on the machine": """
    (float[1,1,8,5] x) => (float[1,1,8,5] y, float[1,2,5,8] z)
    <int64[4] shape = {1,1,5,8}, float[1,1,1,1] w, float[2,1,1,1] u>
    { h = Tanh(x)  v = Reshape(h, shape)  y = Conv(h, w)  z = Conv(v, u) }""",
    "a part of a split that the host reads late": """
    (float[1,32,6,6] x) => (float[1,8,6,6] y, float[1,16,6,6] z)
    <int64[2] parts = {24,8}, float[16,32,1,1] w, float[16,16,1,1] v>
    { h = Tanh(x)  a, b = Split<axis=1>(h, parts)  c = Conv(h, w)  s = Selu(c)  z = Conv(s, v)
      t = Conv(z, v)  p = GlobalAveragePool(t)  m = ReduceMax<keepdims=1>(p)  y = Mul(b, m) }""",
    "a split of which a view of a concatenation holds a part": """
    (float[1,35,1,1] x, float[1,70,1,1] v) => (float[1,35,1,1] y, float[1,3,1,1] z)
    <int64[2] parts = {35,35}, int64[4] shape = {1,35,2,1}, float[3,35,1,1] w>
    { a, b = Split<axis=1>(v, parts)  c = Concat<axis=1>(x, b)  r = Reshape(c, shape)
      y = GlobalAveragePool(r)  z = Conv(a, w) }""",
    "a split of a reshaped map": """(float[1,9,5,2] x) => (float[1,3,2,9] y)
    <int64[4] shape = {1,5,2,9}, int64[2] parts = {2,3}, float[3,3,1,1] w>
    { r = Reshape(x, shape)  a, b = Split<axis=1>(r, parts)  y = Conv(b, w) }""",
    # the array summed the other part's lanes, which the functions had read and written too
    "a product of functions of parts that share words": """
    (float[1,4,1,12] x) => (float[1,1,12,12] y, float[1,1,12,12] z)
    <float[10,4,1,1] w, float[10,4,1,1] v>
    { a = Conv(x, w)  b = Conv(x, v)  a0, a1 = Split<axis=1>(a)  b0, b1 = Split<axis=1>(b)
      f0 = Relu(a0)  f1 = Relu(a1)  g0 = Relu(b0)  g1 = Relu(b1)
      p0 = Transpose<perm=[0,2,3,1]>(f0)  p1 = Transpose<perm=[0,2,3,1]>(f1)
      q0 = Transpose<perm=[0,2,1,3]>(g0)  q1 = Transpose<perm=[0,2,1,3]>(g1)
      y = MatMul(p0, q0)  z = MatMul(p1, q1) }""",
    "a product of a concatenation that ends in a part": """
    (float[1,4,1,12] x) => (float[1,1,12,12] y) <float[64,4,1,1] w, float[10,4,1,1] v>
    { a = Conv(x, w)  b = Conv(x, v)  b0, b1 = Split<axis=1>(b)  c = Concat<axis=1>(a, b0)
      p = Transpose<perm=[0,2,3,1]>(c)  q = Transpose<perm=[0,2,1,3]>(c)  y = MatMul(p, q) }""",
    "a product of maps that are padded with ones": """
    (float[1,5,1,12] x) => (float[1,1,14,14] y)
    <int64[8] pads = {0,0,0,1,0,0,0,1}, float one = {1.0}, float[5,5,1,1] w>
    { a = Conv(x, w)  m = Pad(a, pads, one)  r = Relu(m)
      p = Transpose<perm=[0,2,3,1]>(r)  q = Transpose<perm=[0,2,1,3]>(r)  y = MatMul(p, q) }""",
    "one head of a product": """
    (float[1,3,4,5] a, float[1,3,5,4] b) => (float[4,4] y)
    <int64[1] none = {0}, int64[1] one = {1}, int64[2] size = {4,4}>
    { m = MatMul(a, b)  h = Slice(m, none, one, one)  t = Transpose<perm=[0,1,3,2]>(h)
      y = Reshape(t, size) }""",
    "one head of a Softmax": """
    (float[1,3,4,5] a, float[1,3,5,4] b) => (float[1,4,1,4] y)
    <int64[1] none = {0}, int64[1] one = {1}>
    { m = MatMul(a, b)  s = Softmax(m)  h = Slice(s, none, one, one)
      y = Transpose<perm=[0,3,1,2]>(h) }""",
    "a padding before a normalisation": """
    (float[1,5,1,4] x) => (float[8,7] y)
    <int64[8] pads = {0,2,0,2,0,0,0,2}, int64[2] size = {8,7}, float[7] g>
    { p = Pad(x, pads)  t = Transpose<perm=[0,2,3,1]>(p)  r = Reshape(t, size)
      y = LayerNormalization(r, g) }""",
    "a dense layer behind a normalisation": """
    (float[24,54,4] x) => (float[1,15] y)
    <int64[4] size = {1,36,36,4}, int64[2] flat = {1,5184}, float[4] g, float[5184,15] w>
    { n = LayerNormalization(x, g)  r = Reshape(n, size)  t = Transpose<perm=[0,3,1,2]>(r)
      f = Reshape(t, flat)  y = Gemm<alpha=0.5>(f, w) }""",
    # operators that an input port computes were part of a table or norm, too
    "a function of the bytes of an image": """(uint8[1,2,3,4] x) => (float[1,3,3,4] y)
    <float s = {0.015625}, float t = {0.03125}, int8 z = {0}, int8[3,2,1,1] w>
    { c = Cast<to=1>(x)  m = Mul(c, s)  q = QuantizeLinear(m, t, z)  d = DequantizeLinear(q, t, z)
      f = Tanh(d)  fq = QuantizeLinear(f, s, z)  fd = DequantizeLinear(fq, s, z)
      wd = DequantizeLinear(w, s, z)  y = Conv(fd, wd) }""",
    "a normalisation of the bytes of an image": """(uint8[1,6,4,3] x) => (float[1,6,4,3] y)
    <float[6] g, float s = {0.015625}, int8 z = {0}>
    { c = Cast<to=1>(x)  m = Mul(c, s)  q = QuantizeLinear(m, s, z)  d = DequantizeLinear(q, s, z)
      r = Transpose<perm=[0,2,3,1]>(d)  n = LayerNormalization(r, g)
      t = Transpose<perm=[0,3,1,2]>(n)  tq = QuantizeLinear(t, s, z)
      td = DequantizeLinear(tq, s, z)  u = Relu(td)  uq = QuantizeLinear(u, s, z)
      y = DequantizeLinear(uq, s, z) }""",
}
# What a quantised model does with a map k that is a constant, c, and the image that is added then.
CONSTANT_MAPS = {
    "conv": ("c = Conv<pads=[1,1,1,1]>(k, wr)", 8),
    "pool": ("c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(k)", 4),
    "relu": ("c = Relu(k)", 8),
    "reshaped": ("v = Reshape(k, turned) c = Reshape(v, size)", 8),
    "sum of two": ("c = Add(k, k)", 8),
    "joined": ("j = Concat<axis=1>(k, k) c, e = Split<axis=1>(j)", 8),
    "mean": ("c = GlobalAveragePool(k)", 1),
}
CONSTANT_MAP = """(float[1,4,{side},{side}] x) => (float[1,4,{side},{side}] y)
<int8[1,4,8,8] i, int8[4,4,3,3] w, float s = {{0.03125}}, float t = {{0.001953125}}, int8 z = {{0}},
 int64[2] turned = {{1,256}}, int64[4] size = {{1,4,8,8}}>
{{ k = DequantizeLinear(i, s, z)  wr = DequantizeLinear(w, t, z)  {body}
  cq = QuantizeLinear(c, s, z)  cr = DequantizeLinear(cq, s, z)
  xq = QuantizeLinear(x, s, z)  xr = DequantizeLinear(xq, s, z)  a = Add(cr, xr)
  aq = QuantizeLinear(a, s, z)  y = DequantizeLinear(aq, s, z) }}"""


def reference(qdq, inputs):
    """Every int8 tensor and every output, by name."""
    model = onnx.load_from_string(qdq)
    outputs = {o.name for o in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0] not in outputs:
            model.graph.output.append(onnx.helper.make_empty_tensor_value_info(node.output[0]))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.mark.parametrize(
    ("model", "machine"), [(m, machine) for m, machines in RIGHT.items() for machine in machines]
)
def test_what_was_wrong_once_is_right_in_every_tensor(model, machine):
    hold_against_onnxruntime(FOLDER / f"{model}.onnx", machine)


@pytest.mark.parametrize("machine", ["opu-1024", "opu-light", "opu-classic"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_case_found_by_fuzzing_is_right_in_every_tensor(text, machine):
    hold_against_onnxruntime(written(HEADER + TEXTS[text], seed=3), machine)


@pytest.mark.parametrize("machine", ["opu-1024", "opu-tiny"])
@pytest.mark.parametrize("name", CONSTANT_MAPS)
def test_a_constant_is_no_map_in_memory(name, machine):
    body, side = CONSTANT_MAPS[name]
    text = CONSTANT_MAP.format(body=body, side=side)
    hold_against_onnxruntime(written(HEADER + text, seed=3), machine)


def hold_against_onnxruntime(model, machine):
    hw = opu_fuse.load_hw(machine)
    program = opu_fuse.compile(model, hw)
    inputs = noise(program.bundle)
    result = program.run(inputs, capture=True)
    expected = reference(program.bundle.qdq, inputs)
    for name, array in result.outputs.items():
        assert np.array_equal(array, np.asarray(expected[name]).reshape(array.shape)), name
    shown = {t.name: t.qdq_name for t in program.bundle.tensors}
    shown |= {s.name: s.qdq_name for g in program.bundle.groups for s in g.stages}
    hosts = (s for s in program.bundle.segments if isinstance(s, HostSegment))
    shown |= {value: name for s in hosts for value, name in s.rounded}
    compared = [name for name in result.tensors if shown.get(name)]
    assert compared
    for name in compared:
        made = result.masks.get(name, np.array(True))
        got = result.tensors[name]
        wanted = np.asarray(expected[shown[name]]).reshape(got.shape)
        if wanted.dtype == np.uint8:  # the machine keeps it as int8, 128 less
            wanted = wanted.astype(np.int16) - 128
        wrong = made & (got != wanted)
        assert not wrong.any(), f"{name}: {np.count_nonzero(wrong)} of {wrong.size}"
    assert check(program.bundle, inputs, result).passed
