"""Sums of products: MatMul, Gemm, Einsum. Functions as in `elementwise.py`."""

import math
import string
from collections.abc import Mapping, Sequence

from msgspec import structs

from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.elementwise import Lowering, constant
from opu_fuse.host.build.steps.nest import ZERO, Nest, Operand, fill, number, plain, whole


def _matmul(site: Site) -> list[Nest] | None:
    """Numpy's rules: broadcast leading axes, and a vector is a row or a column."""
    a, b = (len(site.shape(n)) for n in (0, 1))
    rank = max(a, b)
    if rank > len(string.ascii_lowercase) // 2:
        return None
    lead = string.ascii_lowercase[: max(rank - 2, 0)]
    first = f"{lead[len(lead) - (a - 2) :]}xy" if a > 1 else "y"
    second = f"{lead[len(lead) - (b - 2) :]}yz" if b > 1 else "y"
    return _contracted(site, [first, second], lead + "x" * (a > 1) + "z" * (b > 1))


def _einsum(site: Site) -> list[Nest] | None:
    text = site.attribute("equation")
    equation = (text.decode() if isinstance(text, bytes) else "").replace(" ", "")
    if "..." in equation or not equation:
        return None
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        result = "".join(sorted(x for x in set(left) - {","} if left.count(x) == 1))
    return _contracted(site, terms, result)


def _contracted(site: Site, terms: Sequence[str], result: str) -> list[Nest] | None:
    """The products of all operands, summed over the letters that the result has not."""
    dtype = site.result.dtype
    if any(t is None or t.dtype != dtype for t in site.inputs):
        return None
    sizes: dict[str, int] = {}
    for n, term in enumerate(terms):
        for letter, size in zip(term, site.shape(n), strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    order = [*(x for x in sizes if x not in result), *result]

    def loops(term: str, shape: Sequence[int]) -> list[int]:
        return [order.index(x) if n > 1 else -1 for x, n in zip(term, shape, strict=True)]

    inputs = tuple(
        whole(site.node.input[n], dtype, site.shape(n), loops(t, site.shape(n)), len(order))
        for n, t in enumerate(terms)
    )
    body = Payload([dtype] * (len(terms) + 1))
    value = 0
    for n in range(1, len(terms)):
        value = body.emit("mul", value, n)
    value = body.emit("add", len(terms), value)
    target = site.node.output[0]
    shape = site.result_shape
    return [
        fill(target, dtype, math.prod(shape), number(dtype, 0)),
        Nest(
            extents=tuple(sizes[x] for x in order),
            inputs=inputs,
            results=(whole(target, dtype, shape, loops(result, shape), len(order)),),
            body=body.instructions,
            yields=(value,),
        ),
    ]


def _gemm(site: Site) -> list[Nest] | None:
    """The product of two matrices times alpha, plus beta times the third operand."""
    dtype = site.result.dtype
    if dtype not in ZERO:
        return None
    first, second = (bool(site.integer(name, 0)) for name in ("transA", "transB"))
    terms = ["yx" if first else "xy", "zy" if second else "yz"]
    bare = structs.replace(site, inputs=site.inputs[:2])
    nests = _contracted(bare, terms, "xz")
    assert nests is not None
    shape, name = site.result_shape, site.node.output[0]
    inputs: list[Operand] = []
    body = Payload([dtype] * (2 if site.has(2) else 1))
    value = body.emit("mul", int(site.has(2)), constant(body, float(site.number("alpha", 1.0))))
    if site.has(2):
        own = site.shape(2)
        loops = [2 - len(own) + n if size > 1 else -1 for n, size in enumerate(own)]
        inputs.append(whole(site.node.input[2], dtype, own, loops, 2))
        scaled = body.emit("mul", 0, constant(body, float(site.number("beta", 1.0))))
        value = body.emit("add", value, scaled)
    return [
        *nests,
        Nest(
            extents=shape,
            inputs=tuple(inputs),
            results=(plain(name, dtype, shape),),
            body=body.instructions,
            yields=(value,),
        ),
    ]


CONTRACTIONS: Mapping[str, Lowering] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
}
"""Operator of ONNX -> its nests."""
