"""Attention on the array: all multiplications, the bits of ONNX Runtime, and what is refused."""

import numpy as np
import onnx
import pytest
import yaml
from onnx import numpy_helper

import opu_fuse
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.hw.spec.load_spec import load_hw, load_hw_text
from opu_fuse.sim.compare.runs import check
from opu_fuse.sim.cycle.run import run_cycle
from tests.networks import attention_blocks as blocks
from tests.networks import masked_blocks
from tests.regressions.test_regressions import hold_against_onnxruntime

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")

CASES = {
    "one head": (blocks.transformer(13, 8, 1), 13 * 8 * 8 * 4 + 2 * 13 * 13 * 8),
    "odd tokens": (blocks.transformer(17, 24, 3), 17 * 24 * 24 * 4 + 2 * 17 * 17 * 24),
    "two tokens": (blocks.transformer(2, 12, 2), 2 * 12 * 12 * 4 + 2 * 2 * 2 * 12),
    "parts": (
        blocks.transformer(9, 30, 3, spelling="split"),
        9 * 30 * 30 * 4 + 2 * 9 * 9 * 30,
    ),
    "no softmax": (
        blocks.transformer(7, 16, 2, between="Relu"),
        7 * 16 * 16 * 4 + 2 * 7 * 7 * 16,
    ),
    "convolutional": (blocks.convolutional(16, 3, 2), 9 * 16 * (32 + 9 + 16) + 81 * 8 * (1 + 2)),
    "one key for all": (
        blocks.one_key_for_all(10, 3, 3, 8),
        9 * 10 * (24 + 16 + 24) + 2 * 81 * 24,
    ),
    "linear": (blocks.linear(16, 4, 2), 16 * 16 * 64 + 2 * 16 * 8 * 16),
    "windows": (blocks.windows(3, 7, 10, 2), 3 * (7 * 10 * 10 * 4 + 2 * 7 * 7 * 10)),
    "masked windows": (
        blocks.windows(4, 17, 24, 3, spelling="split", masked=True),
        4 * (17 * 24 * 24 * 4 + 2 * 17 * 17 * 24),
    ),
    "windows of one token": (blocks.windows(5, 1, 12, 2), 5 * (12 * 12 * 4 + 2 * 12)),
}


def run(model, hw, *, shuffle=None, **options):
    program = opu_fuse.compile(model, hw, **options)
    (port,) = program.bundle.inputs
    shape = (options.get("batch", 1), *port.shape[1:])
    inputs = {port.name: np.random.default_rng(3).normal(size=shape).astype(np.float32)}
    result = program.run(inputs, capture=True, shuffle=shuffle)
    return program, result, check(program.bundle, inputs, result)


def operators(program):
    return [op.op for group in program.bundle.groups for op in group.ops]


def on_host(program):
    return [op for part in program.bundle.segments for op in getattr(part, "ops", ())]


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024", "opu-light"])
@pytest.mark.parametrize("case", CASES)
def test_all_multiplications_run_on_the_machine_with_onnxruntimes_bits(case, machine):
    model, macs = CASES[case]
    program, _, checked = run(model, machine)
    assert checked.passed
    assert checked.mismatches == 0
    assert sum(group.macs for group in program.bundle.groups) == macs


def test_a_machine_that_splits_and_joins_maps_moves_no_head_on_the_host():
    program, _, _ = run(CASES["linear"][0], "opu-1024")
    assert on_host(program) == []
    assert operators(program).count("matmul") == 4
    assert operators(program).count("transpose") == 4


def test_windows_are_rows_and_cost_no_group_of_their_own():
    few, _, _ = run(blocks.windows(2, 7, 10, 2), "opu-1024a")
    many, _, checked = run(blocks.windows(70, 7, 10, 2), "opu-1024a")
    assert checked.passed
    assert on_host(many) == []
    assert sorted(operators(many)) == sorted(operators(few))
    assert ["matmul", "add", "softmax"] in [[o.op for o in g.ops] for g in many.bundle.groups]


def test_softmaxes_that_need_whole_buffers_are_not_co_scheduled():
    """Those of 64 windows after a mask would fit one bank of results; their partners need two."""
    program, _, checked = run(blocks.windows(64, 49, 96, 3, masked=True), "opu-1024a")
    assert ["add", "softmax"] in [[o.op for o in g.ops] for g in program.bundle.groups]
    assert checked.passed


def test_passes_of_small_windows_are_predicted_with_the_wait_for_their_parameters():
    hw = load_hw("opu-1024a")
    bundle = opu_fuse.compile(blocks.windows(16, 7, 10, 2), hw).bundle
    predicted = sum(group.cycles for group in bundle.groups)
    assert predicted == pytest.approx(run_cycle(bundle, hw).counters["cycles"], rel=0.1)


@pytest.mark.parametrize("scales", ["free", "pow2-asymmetric"])
def test_operands_have_zero_point_0_in_all_scales(scales):
    program, _, checked = run(CASES["odd tokens"][0], "opu-tiny", scales=scales)
    assert checked.passed
    assert operators(program).count("matmul") == 6


@pytest.mark.parametrize("case", ["odd tokens", "masked windows"])
def test_images_of_a_batch_have_their_own_keys(case):
    model, _ = CASES[case]
    program, together, checked = run(model, "opu-tiny", batch=3)
    assert checked.passed
    assert checked.mismatches == 0
    (port,) = program.bundle.inputs
    x = np.random.default_rng(3).normal(size=(3, *port.shape[1:])).astype(np.float32)
    alone = opu_fuse.compile(model, "opu-tiny").run({port.name: x})
    for name, array in alone.outputs.items():
        np.testing.assert_array_equal(array, together.outputs[name])


@pytest.mark.parametrize("case", ["linear", "windows"])
def test_images_of_a_batch_share_the_unit_matrix_with_fused_stacks_and_without(case):
    for cascades in ("always", "never"):
        _, _, checked = run(CASES[case][0], "opu-light", batch=2, cascades=cascades)
        assert checked.mismatches == 0


@pytest.mark.parametrize("spelling", masked_blocks.MASKS)
@pytest.mark.parametrize("size", [(19, 72, 3), (33, 16, 1)])
def test_masked_attention_is_one_segment_however_the_mask_is_written(spelling, size):
    tokens, channels, _ = size
    model, samples = (
        masked_blocks.padded(spelling, *size),
        masked_blocks.lengths(tokens, 8, channels),
    )
    if "causal" in spelling:
        del samples["mask"]
    program = opu_fuse.compile(model, "opu-1024a", calibration=samples)
    assert ["add", "softmax"] in [[o.op for o in g.ops][-2:] for g in program.bundle.groups]
    parts = program.bundle.segments
    assert len(parts) - len([part for part in parts if getattr(part, "ops", ())]) == 1
    inputs = {name: array[:3] for name, array in samples.items()}
    result = program.run(inputs, capture=True)
    assert check(program.bundle, inputs, result).mismatches == 0
    exact = np.asarray(session(model).run(["y"], {n: a[:1] for n, a in inputs.items()})[0])
    noise = np.square(result.outputs["y"][:1] - exact).sum() / np.square(exact).sum()
    assert 10 * np.log10(noise) < -18.0


def test_images_of_a_batch_have_their_own_masks():
    model, samples = masked_blocks.padded("keys", 19, 24, 3), masked_blocks.lengths(19, 4, 24)
    alone, together = (
        opu_fuse.compile(model, "opu-1024a", calibration=samples, batch=n).run(samples)
        for n in (1, 4)
    )
    np.testing.assert_array_equal(alone.outputs["y"], together.outputs["y"])


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024"])
def test_a_single_token_has_onnxruntimes_bits(machine):
    _, _, checked = run(blocks.transformer(1, 12, 2), machine)
    assert checked.mismatches == 0


@pytest.mark.parametrize("case", ["linear", "windows"])
@pytest.mark.parametrize("seed", range(4))
def test_every_legal_order_gives_the_same_bits(seed, case):
    _, result, _ = run(CASES[case][0], "opu-micro")
    _, other, _ = run(CASES[case][0], "opu-micro", shuffle=seed)
    for name, array in result.outputs.items():
        np.testing.assert_array_equal(array, other.outputs[name])


def test_many_keys_are_loaded_a_part_at_a_time():
    model = blocks.transformer(150, 16, 1)
    program, _, checked = run(model, "opu-tiny")
    assert checked.mismatches == 0
    (scores,) = [g for g in program.bundle.groups if g.macs == 150 * 150 * 16][:1]
    assert scores.ops[0].op == "matmul"


def product(pooled: bool) -> onnx.ModelProto:
    """40 matrices (7, 5) times (5, 9) that no map holds, and a maximum over rows of the result."""
    result = "float[1,40,3,4] y" if pooled else "float[1,40,7,9] y"
    pool = "y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(m)" if pooled else "y = Relu(m)"
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
g (float[1,40,7,5] a, float[1,40,5,9] b) => ({result}) {{ m = MatMul(a, b) {pool} }}""")


@pytest.mark.parametrize("pooled", [False, True])
def test_matrices_of_a_batch_that_no_map_holds_are_one_product(pooled):
    program = opu_fuse.compile(product(pooled), "opu-1024")
    rng = np.random.default_rng(3)
    inputs = {p.name: rng.normal(size=p.shape).astype(np.float32) for p in program.bundle.inputs}
    result = program.run(inputs, capture=True)
    assert check(program.bundle, inputs, result).mismatches == 0
    assert operators(program).count("matmul") == 1
    (product_alone,) = [g for g in program.bundle.groups if g.macs]
    assert product_alone.macs == 40 * 7 * 5 * 9


POOLED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,8,4,6] x) => (float[1,6,2,3] y) <float[8,8,1,1] v, float[8,8,1,1] w> {
  a = Conv(x, v)  b = Conv(x, w)
  m = Einsum<equation="nchw,nchm->nmhw">(a, b)
  y = MaxPool<kernel_shape=[2,2],strides=[2,2]>(m) }"""


def test_a_pool_that_looks_at_several_rows_runs_after_a_product_by_rows():
    model = onnx.parser.parse_model(POOLED)
    weight = np.random.default_rng(0).normal(size=(2, 8, 8, 1, 1)).astype(np.float32)
    model.graph.initializer.extend(map(numpy_helper.from_array, weight, "vw"))
    program, _, checked = run(model, "opu-tiny")
    assert checked.mismatches == 0
    groups = [[o.op for o in group.ops] for group in program.bundle.groups]
    assert groups == [["conv"], ["conv"], ["matmul"], ["max_pool"]]


GATED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,4,3,5] x) => (float[1,15,3,5] y) <float[5,4,1,1] w, int64[4] s, int64[4] t> {
  a = Conv(x, w)  b = Sigmoid(a)  c = Reshape(b, s)
  q = Transpose<perm=[0,1,3,2]>(c)  m = MatMul(q, c)
  r = Reshape(m, t)  y = Transpose<perm=[0,3,1,2]>(r) }"""


def test_lanes_before_a_head_that_are_not_zero_leave_a_product_on_the_host():
    """The last head of three in a word ends it, so that nothing follows; two are before it. A
    Sigmoid's lanes without channels are no zeros, so the other map does not leave them out.
    """
    text = f"""{blocks.HEADER} g (float[1,8,4,1] x) => (float[1,3,4,4] y) {{
        a = Conv(x, wa)  b = Conv(x, wb)  s = Sigmoid(b)
        q = Reshape(a, heads)  k = Reshape(s, heads)  t = Transpose<perm=[0,1,3,2]>(q)
        y = MatMul(t, k) }}"""
    rng = np.random.default_rng(5)
    weights = {name: rng.normal(size=(18, 8, 1, 1)) for name in ("wa", "wb")}
    model = blocks.with_constants(text, {**weights, "heads": np.array([1, 3, 6, 4])})
    _, _, checked = run(model, load_hw("opu-1024t"))
    assert checked.passed


def test_unused_lanes_that_are_not_zero_leave_a_product_on_the_host():
    model = onnx.parser.parse_model(GATED)
    weight = np.random.default_rng(0).normal(size=(5, 4, 1, 1)).astype(np.float32)
    for name, data in (
        ("w", weight),
        ("s", np.array([1, 1, 5, 15])),
        ("t", np.array([1, 3, 5, 15])),
    ):
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    program, _, checked = run(model, "opu-1024t")
    assert checked.passed
    (why,) = [reason for _, op, reason in on_host(program) if op == "matmul"]
    assert "unused lanes of both may not be zero" in why
    assert operators(program).count("matmul") == 0


QDQ = """<ir_version: 10, opset_import: ["" : 17]>
g (float[1,6,1,9] x, float[1,6,1,7] k) => (float[1,1,9,7] y)
<float s = {0.03125}, float r = {0.5}, int8 z = {0}, int8 zk = {ZERO}> {
  xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
  kq = QuantizeLinear(k, s, zk)  kd = DequantizeLinear(kq, s, zk)
  xt = Transpose<perm=[0,2,3,1]>(xd)  kt = Transpose<perm=[0,2,1,3]>(kd)
  m = MatMul(xt, kt)
  mq = QuantizeLinear(m, r, z)  y = DequantizeLinear(mq, r, z) }"""


@pytest.mark.parametrize("machine", ["opu-tiny", "opu-1024"])
def test_models_that_are_quantised_already_keep_their_bits(machine):
    model = onnx.parser.parse_model(QDQ.replace("ZERO", "0"))
    hold_against_onnxruntime(model, machine)
    assert operators(opu_fuse.compile(model, machine)) == ["matmul"]


def test_a_zero_point_of_an_operand_is_the_reason_for_the_host():
    program = opu_fuse.compile(onnx.parser.parse_model(QDQ.replace("ZERO", "3")), "opu-1024")
    (why,) = [reason for _, op, reason in on_host(program) if op == "matmul"]
    assert "has zero point 3, machines take 0" in why
    assert "round the factors of" in why


UINT8_SOFTMAX = """<ir_version: 10, opset_import: ["" : 17]>
g (float[1,6,9] x, float[1,9,4] v) => (float[1,6,4] y)
<float s = {0.03125}, float p = {0.00390625}, int8 z = {0}, uint8 zp = {0}> {
  xq = QuantizeLinear(x, s, z)  xd = DequantizeLinear(xq, s, z)
  vq = QuantizeLinear(v, s, z)  vd = DequantizeLinear(vq, s, z)
  n = Softmax<axis=-1>(xd)  nq = QuantizeLinear(n, p, zp)  nd = DequantizeLinear(nq, p, zp)
  m = MatMul(nd, vd)
  mq = QuantizeLinear(m, s, z)  y = DequantizeLinear(mq, s, z) }"""


def test_a_uint8_softmax_is_multiplied_by_the_host_and_the_result_is_onnx_runtimes():
    model = onnx.parser.parse_model(UINT8_SOFTMAX)
    hold_against_onnxruntime(model, "opu-1024a")
    program = opu_fuse.compile(model, "opu-1024a")
    (why,) = [reason for _, op, reason in on_host(program) if op == "matmul"]
    assert "has zero point -128, machines take 0" in why
    assert "with zero point 0 or hand over the float model" in why


def test_a_machine_without_multipliers_says_why_it_multiplies_no_maps():
    tree = load_hw("opu-classic").to_tree()
    tree["dataflow"]["operators"] |= {"matmul": ["ipa"], "transpose": ["ipa"]}
    hw = load_hw_text(yaml.safe_dump(tree), "mapped.yaml")
    found = opu_fuse.partition(CASES["linear"][0], hw)
    reasons = {op.reason for op in found.host}
    assert any("no multipliers that set unused channels to zero" in why for why in reasons)


def test_operators_of_the_array_do_not_change_the_identity_of_a_machine():
    tree = load_hw("opu-1024").to_tree()
    for name in ("matmul", "transpose"):
        del tree["dataflow"]["operators"][name]
    without = load_hw_text(yaml.safe_dump(tree), "without.yaml")
    assert without.spec_hash == load_hw("opu-1024").spec_hash
