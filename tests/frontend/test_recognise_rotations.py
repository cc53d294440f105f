"""Rotary embeddings become a convolution of the tokens and two products with constants."""

import numpy as np
import onnx
import pytest
from onnx_ir.passes import common

from opu_fuse.frontend.importing.load import load_model
from tests.frontend.conftest import parse, run_plain
from tests.networks.rotated_blocks import ROTATED

N, HEADS, DEEP = 5, 2, 6
CHANNELS = HEADS * DEEP
SUM = "c = Mul(x, cos)  s = Mul(xr, sin)  y = Add(c, s)"
CUT = "xh = Reshape(tokens, heads)  x = Transpose<perm=[0,2,1,3]>(xh)"
OUTPUT = f"float[1,{HEADS},{N},{DEEP}] y"
FIRST = """xh = Reshape(tokens, heads)  all = Transpose<perm=[0,2,1,3]>(xh)
  first = Slice(all, n0, n1, n2)  x = Slice(all, n1, last, n2)"""


def model(
    body: str, outputs: str = OUTPUT, inputs: str = "", **more: np.ndarray
) -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    constants = {
        "cos": rng.normal(size=(N, DEEP)).astype(np.float32),
        "sin": rng.normal(size=(1, 1, N, DEEP)).astype(np.float32),
        "half": np.array([DEEP // 2]),
        "last": np.array([2**31 - 1]),
        "end": np.array([-1]),
        "whole": np.array([1, HEADS, N, DEEP]),
        "heads": np.array([1, N, HEADS, DEEP]),
        "root": np.float32(0.5),
        **{f"n{i}": np.array([i]) for i in range(4)},
        **more,
    }
    text = f"g (float[1,{N},{CHANNELS}] tokens{inputs}) => ({outputs}) {{ {body} }}"
    words = text.replace("(", " ").replace(")", " ").replace(",", " ").split()
    return parse(text, **{name: data for name, data in constants.items() if name in words})


def loaded(given: onnx.ModelProto) -> tuple[list[str], float]:
    """Operators after loading, and the largest difference of the first output."""
    rng = np.random.default_rng(2)
    inputs = {
        v.name: rng.normal(size=[d.dim_value for d in v.type.tensor_type.shape.dim]).astype("f4")
        for v in given.graph.input
    }
    result = load_model(given)
    off = np.abs(run_plain(given, inputs)[0] - run_plain(result, inputs)[0]).max()
    common.RemoveUnusedNodesPass()(result)
    return [node.op_type for node in result.graph], float(off)


ON_TOKENS = (
    *("Reshape", "Transpose", "Conv", "Transpose", "Reshape", "Mul", "Mul", "Add"),
    *("Reshape", "Transpose"),
)
"""A convolution of an image, two products, a sum, and the heads of that."""


@pytest.mark.parametrize("spelling", ROTATED)
@pytest.mark.parametrize("order", [SUM, "c = Mul(cos, x)  s = Mul(sin, xr)  y = Add(s, c)"])
def test_a_rotation_of_heads_is_one_of_tokens(spelling: str, order: str):
    kinds, off = loaded(model(f"{CUT}  {ROTATED[spelling].format(x='x')}  {order}"))
    assert sorted(kinds) == sorted(ON_TOKENS)
    assert off < 1e-6


def test_the_filters_are_ones_and_minus_ones_of_each_head():
    result = load_model(model(f"{CUT}  {ROTATED['halves'].format(x='x')}  {SUM}"))
    (conv,) = [node for node in result.graph if node.op_type == "Conv"]
    weights = conv.inputs[1]
    assert weights is not None
    assert weights.const_value is not None
    half = DEEP // 2
    head = np.block(
        [[np.zeros((half, half)), -np.eye(half)], [np.eye(half), np.zeros((half, half))]]
    )
    taps = weights.const_value.numpy()[:, :, 0, 0]
    np.testing.assert_array_equal(taps, np.tile(head, (HEADS, 1)))
    assert conv.attributes.get_int("group") == HEADS


def test_tokens_before_the_rotated_ones_are_rotated_by_nothing():
    body = f"{FIRST}  {ROTATED['halves'].format(x='x')}  c = Mul(x, cos)  s = Mul(xr, sin)"
    given = model(
        f"{body}  z = Add(c, s)  y = Concat<axis=2>(first, z)",
        cos=np.full((N - 1, DEEP), 0.6, np.float32),
        sin=np.full((N - 1, DEEP), 0.8, np.float32),
    )
    kinds, off = loaded(given)
    assert sorted(kinds) == sorted(ON_TOKENS)
    assert off < 1e-6


@pytest.mark.parametrize("first", [True, False])
def test_channels_next_to_the_rotated_ones_are_rotated_by_nothing(first: bool):
    """A part of each head, as in Phi and GPT-NeoX."""
    ends = (("n2", "last"), ("n0", "n2")) if first else (("n0", "four"), ("four", "last"))
    body = "xh = Reshape(tokens, heads)  all = Transpose<perm=[0,2,1,3]>(xh)"
    for name, (start, end) in zip(("x", "rest"), ends, strict=True):
        body += f"  {name} = Slice(all, {start}, {end}, n3)"
    parts = "rest, z" if first else "z, rest"
    given = model(
        f"{body}  {ROTATED['halves'].format(x='x')}  c = Mul(x, cos)  s = Mul(xr, sin)"
        f"  z = Add(c, s)  y = Concat<axis=-1>({parts})",
        half=np.array([2]),
        four=np.array([4]),
        cos=np.full((N, 4), 0.6, np.float32),
        sin=np.linspace(0, 1, 4 * N, dtype=np.float32).reshape(N, 4),
    )
    kinds, off = loaded(given)
    assert sorted(kinds) == sorted(ON_TOKENS)
    assert off < 1e-6


def test_a_later_factor_is_in_the_constants():
    body = f"{CUT}  {ROTATED['pairs'].format(x='x')}  {SUM.replace('y =', 'z =')}"
    kinds, off = loaded(model(f"{body}  t = Transpose<perm=[0,1,2,3]>(z)  y = Mul(root, t)"))
    assert kinds.count("Mul") == 2
    assert off < 1e-6


def test_a_part_of_wider_tokens_is_cut_out_first():
    wide = f"float[1,{N},{3 * CHANNELS}] wide"
    body = "xq, part, xv = Split<axis=2>(wide, parts)  xh = Reshape(part, heads)"
    body += f"  x = Transpose<perm=[0,2,1,3]>(xh)  {ROTATED['halves'].format(x='x')}  {SUM}"
    given = model(body, inputs=f", {wide}", parts=np.array([CHANNELS] * 3))
    kinds, off = loaded(given)
    assert kinds.count("Slice") == kinds.count("Conv") == 1
    assert off < 1e-6


HALVES = ROTATED["halves"].format(x="x")
OTHERS = {
    "computed angles": f"{CUT}  {HALVES}  c = Mul(x, cos)  s = Mul(xr, t)  y = Add(c, s)",
    "a product is read twice": f"{CUT}  {HALVES}  {SUM}  z = Relu(c)",
    "a difference": f"{CUT}  {HALVES}  {SUM.replace('Add', 'Sub')}",
    "rotated tokens": f"""{CUT}  xb = Slice(x, n2, last, n2)  xa = Slice(x, n0, n2, n2)
  xn = Neg(xb)  xr = Concat<axis=2>(xn, xa)  {SUM}""",
    "another value": f"{CUT}  {HALVES.replace('xb = Slice(x,', 'xb = Slice(u,')}  {SUM}",
    "channels of a head that are not next to each other": f"""xh = Reshape(tokens, other)
  x = Transpose<perm=[0,3,1,2]>(xh)  {HALVES}  {SUM}""",
    "some of the tokens": f"""{FIRST}  {HALVES}
  c = Mul(x, fewer)  s = Mul(xr, fewer)  z = Add(c, s)  y = Concat<axis=2>(z, first)""",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_remain(name: str):
    size = f"float[1,{HEADS},{N},{DEEP}]"
    body = OTHERS[name]
    outputs = f"{OUTPUT}, {size} z" if "z = Relu" in body else OUTPUT
    inputs = "".join(f", {size} {v}" for v in "tu" if f"{v})" in body or f"({v}," in body)
    given = model(
        body,
        outputs,
        inputs,
        other=np.array([1, N, DEEP, HEADS]),
        fewer=np.ones((N - 1, DEEP), np.float32),
    )
    kinds, off = loaded(given)
    assert "Neg" in kinds
    assert "Conv" not in kinds
    assert off == 0.0
