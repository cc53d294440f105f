"""Tile and Expand as machines repeat values; `canonical` compares the results."""

import numpy as np
import pytest


@pytest.mark.parametrize("kind", ["Tile", "Expand"])
@pytest.mark.parametrize(
    ("size", "target", "wanted"),
    [
        ((1, 1, 6, 5), (1, 4, 6, 5), ["Gather"]),
        ((1, 3, 1, 1), (1, 3, 6, 5), ["Resize"]),
        ((1, 3, 1, 5), (1, 3, 4, 5), ["Resize"]),
        ((1, 1, 1, 1), (1, 4, 6, 5), ["Gather", "Resize"]),
        ((1, 3, 6, 5), (1, 3, 6, 5), []),
        ((1, 3, 6, 5), (2, 3, 6, 5), None),
    ],
)
def test_what_is_repeated(kind, size, target, wanted, onnx_text, canonical):
    times = np.array(target) // np.array(size)
    shape = np.array(times if kind == "Tile" else target, np.int64)
    text = f"""g (float{[*size]} x) => (float[A, B, C, D] y) {{
        [r] r = Relu (x) [t] y = {kind} (r, shape) }}"""
    kinds = [node.op_type for node in canonical(onnx_text(text, shape=shape)).graph]
    assert kinds == ["Relu", *([kind] if wanted is None else wanted)]


@pytest.mark.parametrize(
    ("times", "wanted"),
    [([1, 3, 1, 1], "Gather"), ([1, 1, 2, 1], "Tile"), ([1, 2, 1, 3], "Tile")],
)
def test_several_rows_that_come_again_stay(times, wanted, onnx_text, canonical):
    text = """g (float[1, 3, 6, 5] x) => (float[A, B, C, D] y) {
        [r] r = Relu (x) [t] y = Tile (r, times) }"""
    model = canonical(onnx_text(text, times=np.array(times)))
    assert [node.op_type for node in model.graph] == ["Relu", wanted]
