"""Copies of the edge before a max pool, in text; the `canonical` fixture compares results."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest


@pytest.mark.parametrize(
    ("windows", "left"),
    [
        ("kernel_shape = [3, 3], strides = [2, 2]", "MaxPool"),
        ("kernel_shape = [3, 3], dilations = [2, 1]", "Pad MaxPool"),
        ("kernel_shape = [2, 3]", "Pad MaxPool"),
    ],
    ids=["they change no maximum", "a window has gaps", "one lies in the padding"],
)
def test_they_go_into_its_padding_where(
    windows: str,
    left: str,
    onnx_text: Callable[..., onnx.ModelProto],
    canonical: Callable[..., ir.Model],
):
    nodes = f'p = Pad <mode = "edge"> (x, pads) y = MaxPool <{windows}> (p)'
    text = f"g (float[1, 4, 9, 8] x) => (float[A, B, C, D] y) {{ {nodes} }}"
    model = canonical(onnx_text(text, pads=np.array([0, 0, 0, 1, 0, 0, 2, 1])))
    assert " ".join(node.op_type for node in model.graph) == left
