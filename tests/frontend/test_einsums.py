"""An Einsum is the operators that it spells; `canonical` compares the results."""

import numpy as np
import pytest

from opu_fuse.frontend.canonical.einsums import run
from opu_fuse.frontend.importing.load import load_model
from tests.frontend.conftest import run_plain

TWO = {
    "nchw,oc->nohw": ((5, 4), ["Conv"]),
    "bchw,cd->bdhw": ((4, 5), ["Conv"]),
    "nchw, co -> nohw": ((4, 5), ["Conv"]),
    "...chw,cd->...dhw": ((4, 5), ["Conv"]),
    "nchw,oc->nhwo": ((5, 4), ["Conv", "Transpose"]),
    "nchw,hk->nckw": ((6, 3), ["Transpose", "Conv", "Transpose"]),
    "nchw,chwk->nk": ((4, 6, 5, 7), ["Reshape", "Gemm"]),
    "nchw,khwc->nk": ((7, 6, 5, 4), ["Reshape", "Gemm"]),
    "nchw,c->nchw": ((4,), ["Mul"]),
    "nchw,chw->nchw": ((4, 6, 5), ["Mul"]),
    "nchw,c": ((4,), None),
    "nchw,ck->nhk": ((4, 3), ["Einsum"]),
    "nchw,cc->nhw": ((4, 4), ["Einsum"]),
    "nchw,kq->nchwk": ((3, 2), ["Einsum"]),
    "nchw,nk->nkchw": ((1, 3), ["Einsum"]),
}


@pytest.mark.parametrize("equation", TWO)
@pytest.mark.parametrize("first", [False, True])
def test_a_constant_is_a_weight_or_a_factor(equation, first, onnx_text, canonical):
    shape, wanted = TWO[equation]
    given, arrow, result = equation.partition("->")
    if first:
        given = ",".join(reversed(given.split(",")))
    if not arrow:
        result = "hnw"
    operands = "e, x" if first else "x, e"
    rank = 4 if "..." in result else len(result.replace(" ", ""))
    dims = ", ".join("ABCDE"[:rank])
    text = f"""g (float[1, 4, 6, 5] x) => (float[{dims}] y) {{
        [m] y = Einsum <equation = "{given}{arrow}{result if arrow else ""}"> ({operands}) }}"""
    weight = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    kinds = [node.op_type for node in canonical(onnx_text(text, e=weight)).graph]
    assert wanted is None or kinds == wanted
    assert wanted is not None or "Einsum" not in kinds


@pytest.mark.parametrize(
    ("size", "equation", "weight", "wanted"),
    [
        ([1, 6, 5, 4], "bhwc,cd->bhwd", (4, 3), ["Transpose", "Conv", "Transpose"]),
        ([1, 6, 5, 4], "...c,dc->...d", (3, 4), ["Transpose", "Conv", "Transpose"]),
        ([1, 4], "nc,kc->nk", (3, 4), ["Gemm"]),
        ([1, 4], "ij,jk", (4, 3), ["Gemm"]),
        ([1, 4, 9], "ncl,oc->nol", (3, 4), ["Reshape", "Conv", "Reshape"]),
    ],
)
def test_rows_lines_and_channels_last(size, equation, weight, wanted, onnx_text, canonical):
    dims = ", ".join("ABCD"[: len(size)])
    text = f"""g (float{size} x) => (float[{dims}] y) {{
        [m] y = Einsum <equation = "{equation}"> (x, e) }}"""
    data = np.random.default_rng(1).normal(size=weight).astype(np.float32)
    model = canonical(onnx_text(text, e=data))
    assert [node.op_type for node in model.graph] == wanted


@pytest.mark.parametrize(
    ("equation", "rank", "wanted"),
    [
        ("nchw->nhwc", 4, ["Transpose"]),
        ("nchw->nhw", 3, ["ReduceSum"]),
        ("nchw->nchw", 4, []),
        ("nchw->nwh", 3, ["Einsum"]),
    ],
)
def test_of_one_operand(equation, rank, wanted, onnx_text, canonical):
    text = f"""g (float[1, 4, 6, 5] x) => (float[{", ".join("ABCD"[:rank])}] y) {{
        [r] r = Relu (x) [m] y = Einsum <equation = "{equation}"> (r) }}"""
    kinds = [node.op_type for node in canonical(onnx_text(text)).graph]
    assert kinds == ["Relu", *wanted]


@pytest.mark.parametrize(
    ("equation", "wanted"),
    [
        ("nchw,nc->nchw", ["GlobalAveragePool", "Mul"]),
        ("nchw,nc->nhw", ["GlobalAveragePool", "Reshape", "Einsum"]),
    ],
)
def test_of_two_computed_operands(equation, wanted, onnx_text, canonical):
    rank = len(equation.partition("->")[2])
    text = f"""g (float[1, 4, 6, 5] x) => (float[{", ".join("ABCD"[:rank])}] y) {{
        [p] p = GlobalAveragePool (x) [f] f = Flatten (p)
        [m] y = Einsum <equation = "{equation}"> (x, f) }}"""
    kinds = [node.op_type for node in canonical(onnx_text(text)).graph]
    assert kinds == wanted


@pytest.mark.parametrize(
    ("equation", "first", "second", "wanted"),
    [
        ("B H I D, B H J D -> B H I J", (1, 2, 6, 4), (1, 2, 5, 4), ["Transpose", "MatMul"]),
        ("bhij,bhjd->bhid", (1, 2, 6, 5), (1, 2, 5, 4), ["MatMul"]),
        ("bhij,bhjd->bihd", (1, 2, 6, 5), (1, 2, 5, 4), ["MatMul", "Transpose"]),
        ("bihd,bjhd->bhij", (1, 6, 2, 4), (1, 5, 2, 4), ["Transpose", "Transpose", "MatMul"]),
        (
            "bijh,bjhd->bihd",
            (1, 6, 5, 2),
            (1, 5, 2, 4),
            ["Transpose"] * 2 + ["MatMul", "Transpose"],
        ),
        ("id,jd->ji", (6, 4), (5, 4), ["Transpose", "MatMul"]),
        ("bhid,bjd->bhij", (2, 3, 6, 4), (2, 5, 4), ["Transpose", "Reshape", "MatMul"]),
        ("...id,...jd->...ij", (2, 3, 6, 4), (2, 3, 5, 4), ["Transpose", "MatMul"]),
    ],
)
def test_a_product_of_matrices_is_a_matmul(equation, first, second, wanted, onnx_text):
    """The rewritten model gives the same numbers, to float32's last bits."""
    rank = len(equation.replace(" ", "").replace("...", "xy").partition("->")[2])
    dims = ", ".join("ABCD"[:rank])
    text = f"""g (float{[*first]} x, float{[*second]} z) => (float[{dims}] y) {{
        [m] y = Einsum <equation = "{equation}"> (x, z) }}"""
    proto = onnx_text(text)
    model = load_model(proto)
    assert run(model)
    assert [node.op_type for node in model.graph] == wanted
    rng = np.random.default_rng(2)
    feeds = {"x": rng.normal(size=first), "z": rng.normal(size=second)}
    feeds = {name: data.astype(np.float32) for name, data in feeds.items()}
    given, made = (run_plain(m, feeds)[0] for m in (proto, model))
    np.testing.assert_allclose(given, made, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("bhid,bhjd->bij", (1, 2, 6, 4), (1, 2, 5, 4)),  # sums heads as well
        ("bhid,bd->bhi", (1, 2, 6, 4), (1, 4)),  # a vector
        ("bhid,bgjd->bhgij", (1, 2, 6, 4), (1, 3, 5, 4)),  # every head by every other one
    ],
)
def test_other_products_of_two_computed_values_remain(equation, first, second, onnx_text):
    dims = ", ".join("ABCDE"[: len(equation.partition("->")[2])])
    text = f"""g (float{[*first]} x, float{[*second]} z) => (float[{dims}] y) {{
        [m] y = Einsum <equation = "{equation}"> (x, z) }}"""
    assert not run(load_model(onnx_text(text)))
