"""Dilations and groups of transposed convolutions are zeros among the weights; `canonical` compares
the results.
"""

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("shape", "attributes", "kernel", "group"),
    [
        ((8, 6, 3, 3), "dilations = [2, 2], pads = [2, 2, 2, 2]", (5, 5), 1),
        ((8, 6, 3, 2), "dilations = [2, 3], strides = [2, 2], pads = [1, 0, 2, 1]", (5, 4), 1),
        ((8, 3, 3, 3), "group = 2, strides = [2, 2], pads = [1, 1, 1, 1]", (3, 3), 1),
        ((8, 2, 2, 2), "group = 4, dilations = [2, 1], output_padding = [1, 0], strides = [2, 2]",
         (3, 2), 1),
        ((8, 2, 2, 2), "group = 8, strides = [2, 2]", (2, 2), 1),
        ((8, 1, 2, 2), "group = 8, strides = [2, 2], dilations = [2, 2]", (3, 3), 8),
        ((8, 1, 2, 2), "group = 8, strides = [2, 2]", (2, 2), 8),
        ((8, 1, 2, 2), "group = 2", (2, 2), 1),
        ((8, 3, 3, 3), 'group = 2, dilations = [2, 2], auto_pad = "SAME_UPPER", strides = [2, 2]',
         (5, 5), 1),
    ],
)  # fmt: skip
def test_weights_get_zeros(shape, attributes, kernel, group, onnx_text, canonical):
    text = f"""g (float[1, 8, 5, 6] x) => (float[A, B, C, D] y) {{
        [c] y = ConvTranspose <{attributes}> (x, w) }}"""
    weight = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    (node,) = canonical(onnx_text(text, w=weight)).graph
    ints = node.attributes.get_ints
    assert (ints("kernel_shape"), ints("dilations")) == (kernel, (1, 1))
    assert node.attributes.get_int("group") == group


def test_a_batch_norm_behind_goes_into_them(onnx_text, canonical):
    text = """g (float[1, 8, 5, 6] x) => (float[A, B, C, D] y) {
        [c] c = ConvTranspose <group = 2, strides = [2, 2]> (x, w)
        [b] y = BatchNormalization (c, s, t, m, v) }"""
    rng = np.random.default_rng(1)
    numbers = {n: rng.normal(size=6).astype(np.float32) for n in "stm"}
    weight = rng.normal(size=(8, 3, 2, 2)).astype(np.float32)
    variance = rng.uniform(0.5, 2.0, 6).astype(np.float32)
    model = canonical(onnx_text(text, w=weight, v=variance, **numbers))
    assert [node.op_type for node in model.graph] == ["ConvTranspose"]
