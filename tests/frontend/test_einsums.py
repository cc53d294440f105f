"""An Einsum is the operators that it spells; `canonical` compares the results."""

import numpy as np
import pytest

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
