"""Exporters that trace with a dynamic batch write sizes as arithmetic on shapes, and halves as
slices: with a batch of 1 all of it is known, each shape when the one before it is.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx
import onnx_ir as ir
import pytest

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]
RNG = np.random.default_rng(3)
NUMBERS = {
    **{f"i{n}": np.int64(n) for n in range(4)},
    **{f"v{n}": np.array([n], np.int64) for n in range(3)},
    "two": np.int64(2),
    "any": np.array([-1], np.int64),
}
BLOCK = """
{x}c = Conv({x}, w)  {x}s = Shape({x}c)
{x}n = Gather({x}s, i0)  {x}ch = Gather({x}s, i1)  {x}h = Gather({x}s, i2)  {x}w = Gather({x}s, i3)
{x}g = Div({x}ch, two)
{x}nu = Unsqueeze({x}n, v0)  {x}gu = Unsqueeze({x}g, v0)  {x}hu = Unsqueeze({x}h, v0)
{x}wu = Unsqueeze({x}w, v0)
{x}5 = Concat<axis=0>({x}nu, v2, {x}gu, {x}hu, {x}wu)
{x}4 = Concat<axis=0>({x}nu, any, {x}hu, {x}wu)
{x}a = Reshape({x}c, {x}5)  {x}b = Transpose<perm=[0,2,1,3,4]>({x}a)  {x}d = Reshape({x}b, {x}4)
{x}t = Shape({x}d)  {x}u = Gather({x}t, v1)  {x}p = Add({x}u, v1)  {x}q = Div({x}p, v2)
{x}r = Mul({x}q, v1)  {x}lo = Slice({x}d, v0, {x}r, v1)
{x}z = Mul({x}q, v2)  {x}hi = Slice({x}d, {x}r, {x}z, v1)
{x}f = Conv<pads=[1,1,1,1]>({x}hi, k)  {y} = Concat<axis=1>({x}lo, {x}f)"""


def test_shapes_that_depend_on_folded_ones_are_folded(onnx_text: Text, canonical: Canonical):
    names = ["x", "x1", "x2", "y"]
    blocks = "".join(BLOCK.format(x=x, y=y) for x, y in pairwise(names))
    model = onnx_text(
        f"g (float[N,8,6,6] x) => (float[a,b,c,d] y) {{ {blocks} }}",
        **NUMBERS,
        w=RNG.normal(size=(8, 8, 1, 1)).astype(np.float32),
        k=RNG.normal(size=(4, 4, 3, 3)).astype(np.float32),
    )
    operators = ["Conv", "Reshape", "Transpose", "Reshape", "Split", "Conv", "Concat"]
    assert [n.op_type for n in canonical(model).graph] == operators * 3


SLICED = "g (float[1,8,6,6] x) => (float[1,a,b,c] y, float[1,d,e,f] z) {{ {} }}"
INDICES = {
    name: np.array([value], np.int64)
    for name, value in {"n0": 0, "n1": 1, "n3": 3, "n5": 5, "m3": -3, "end": 2**63 - 1}.items()
}


@pytest.mark.parametrize(
    ("slices", "sizes"),
    [
        ("y = Slice(x, n0, n3, n1)  z = Slice(x, n3, end, n1, n1)", [3, 5]),
        ("z = Slice(x, m3, end, n1)  y = Slice(x, n1, n5, n1)", [1, 4, 3]),
        ("y = Slice(x, n5, end, n1)  z = Relu(x)", [5, 3]),
    ],
)
def test_slices_of_channels_are_one_split(
    slices: str, sizes: list[int], onnx_text: Text, canonical: Canonical
):
    split = canonical(onnx_text(SLICED.format(slices), **INDICES)).graph[0]
    assert split.op_type == "Split"
    parts = split.inputs[1]
    assert parts is not None
    assert parts.const_value is not None
    assert parts.const_value.numpy().tolist() == sizes


def test_a_part_of_a_part_reads_the_part(onnx_text: Text, canonical: Canonical):
    slices = "p = Slice(x, n1, n5, n1)  y = Slice(p, n0, n3, n1)  z = Relu(p)"
    first, second, _ = canonical(onnx_text(SLICED.format(slices), **INDICES)).graph
    assert (first.op_type, second.op_type) == ("Split", "Split")
    assert second.inputs[0] in first.outputs


@pytest.mark.parametrize(
    "slices",
    [
        "y = Slice(x, n0, n5, n1)  z = Slice(x, n3, end, n1)",  # overlap
        "y = Slice(x, n0, n5, n3)  z = Slice(x, n0, end, n1, n3)",  # columns, steps
        "y = Slice(x, n0, end, n1)  z = Slice(x, n5, n3, n1)",  # everything, nothing
    ],
)
def test_other_slices_stay(slices: str, onnx_text: Text, canonical: Canonical):
    left = {n.op_type for n in canonical(onnx_text(SLICED.format(slices), **INDICES)).graph}
    assert "Split" not in left


def test_a_slice_of_what_depends_on_data_stays(onnx_text: Text, canonical: Canonical):
    """Of its shape, [4, N], half is known."""
    nodes = "z = NonZero(x)  l = Slice(z, v0, v2, v1)  y = Cast<to=1>(l)"
    text = f"g (float[1, 4, 3, 2] x) => (float[A, B] y) {{ {nodes} }}"
    used = {name: data for name, data in NUMBERS.items() if name in {"v0", "v1", "v2"}}
    model = canonical(onnx_text(text, **used))
    assert [node.op_type for node in model.graph] == ["NonZero", "Slice", "Cast"]
