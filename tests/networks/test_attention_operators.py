"""Operators of whole attentions run on the machine as what they consist of."""

import numpy as np
import onnx
import pytest

import opu_fuse
from opu_fuse.frontend.qdq_reference import session
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import partition_model
from opu_fuse.sim.compare.runs import check
from tests.networks import masked_blocks
from tests.networks.attention_blocks import constants_of, with_constants
from tests.networks.test_attention import on_host, operators

pytestmark = pytest.mark.filterwarnings("ignore:no calibration data")
TOKENS, CHANNELS, HEADS = 17, 128, 4
HEADER = '<ir_version: 8, opset_import: ["" : 23, "com.microsoft" : 1]>'
PROJECTED = """a = MatMul(x, wqkv)  b = Add(a, bqkv)  q, k, v = Split<axis=2>(b, s333)
  count = Cast<to=9>(mask)  seen = Reshape(count, keys)  each = Expand(seen, square)"""
COUNTS = f"q_num_heads={HEADS}, kv_num_heads={HEADS}"
SPELLINGS = {
    "tokens": f"o = Attention<{COUNTS}>(q, k, v)",
    "causal": f"o = Attention<{COUNTS}, is_causal=1>(q, k, v)",
    "masked": f"o = Attention<{COUNTS}>(q, k, v, each)",
    "masked and causal": f"o = Attention<{COUNTS}, is_causal=1>(q, k, v, each)",
    "rotated": f"""qr = RotaryEmbedding<num_heads={HEADS}>(q, cos, sin)
  kr = RotaryEmbedding<num_heads={HEADS}>(k, cos, sin)  o = Attention<{COUNTS}>(qr, kr, v)""",
    "of ONNX Runtime": f"""mask32 = Cast<to=6>(mask)
  o = com.microsoft.MultiHeadAttention<num_heads={HEADS}>(q, k, v, , mask32)""",
    "packed": f"""mask32 = Cast<to=6>(mask)
  o = com.microsoft.Attention<num_heads={HEADS}>(x, wqkv, bqkv, mask32)""",
}


def block(spelling: str) -> onnx.ModelProto:
    """An attention with its layers before and after it."""
    c, n = CHANNELS, TOKENS
    text = f"""{HEADER} g (float[1,{n},{c}] x, int64[1,{n}] mask) => (float[1,{n},{c}] y) {{
  {PROJECTED}  {SPELLINGS[spelling]}  y = MatMul(o, wp) }}"""
    angles = np.random.default_rng(5).uniform(0, 6, (1, n, c // HEADS // 2))
    constants = constants_of(np.random.default_rng(0), 1, n, c, HEADS)
    more = {"keys": np.array([1, 1, 1, n]), "square": np.array([1, 1, n, n])}
    return with_constants(text, {**constants, **more, "cos": np.cos(angles), "sin": np.sin(angles)})


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_all_but_the_mask_is_one_segment_of_the_machine(spelling: str):
    model, samples = block(spelling), masked_blocks.lengths(TOKENS, 8, CHANNELS)
    program = opu_fuse.compile(model, "opu-1024a", calibration=samples)
    assert {"matmul", "softmax"} <= {*operators(program)}
    parts = program.bundle.segments
    assert len(parts) - len([part for part in parts if getattr(part, "ops", ())]) == 1
    assert not {"matmul", "host:Softmax", "multiply"} & {op.op for op in on_host(program)}
    inputs = {name: data[:3] for name, data in samples.items()}
    result = program.run(inputs, capture=True)
    assert check(program.bundle, inputs, result).passed
    exact = np.asarray(session(model).run(["y"], {n: a[:1] for n, a in inputs.items()})[0])
    noise = np.square(result.outputs["y"][:1] - exact).sum() / np.square(exact).sum()
    assert 10 * np.log10(noise) < -18.0


def test_an_attention_with_a_cache_says_which_form_machines_run():
    text = f"""{HEADER} g (float[1,4,6,8] q, float[1,4,3,8] pk, float[1,4,3,8] pv)
  => (float[1,4,6,8] y, float[1,4,9,8] k, float[1,4,9,8] v) {{
  y, k, v = Attention(q, q, q, , pk, pv) }}"""
    _, partition = partition_model(onnx.parser.parse_model(text), load_hw("opu-1024a"))
    (host,) = partition.host
    assert "without a cache, a window, or scores as a result" in host.reason
