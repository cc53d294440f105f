"""Unfolded and folded patches only move pixels: Reshapes and Transposes of the same bits."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.frontend.canonical import unfolds
from opu_fuse.frontend.importing.load import load_model
from tests.frontend.conftest import run_plain

Text = Callable[..., onnx.ModelProto]
PIXELS, PATCHES = "float[1,3,6,4] x", "float[1,3,4,6] x"
CONSTANTS = {
    "rows": np.arange(6).reshape(3, 2).T,
    "cols": np.arange(4).reshape(2, 2).T,
    "others": np.arange(6).reshape(2, 3),
    "image": np.array([6, 4]),
    "block": np.array([2, 2]),
    "columns": np.array([1, 12, 6]),
    "channels": np.array([1, 12, 3, 2]),
}
MOVES = {
    "unfold": (PIXELS, "u = Gather <axis = 2> (x, rows) y = Gather <axis = 4> (u, cols)"),
    "fold": (
        PATCHES,
        "c = Reshape (x, columns) y = Col2Im <strides = [2, 2]> (c, image, block)",
    ),
    "shuffle": (
        PATCHES,
        'c = Reshape (x, channels) y = DepthToSpace <blocksize = 2, mode = "CRD"> (c)',
    ),
}
OTHERS = {
    "rows that are no patches": (PIXELS, "y = Gather <axis = 2> (x, others)"),
    "blocks that overlap": (
        "float[1,12,15] x",
        "y = Col2Im <strides = [1, 1]> (x, image, block)",
    ),
    "depth first": (PATCHES, "c = Reshape (x, channels) y = DepthToSpace <blocksize = 2> (c)"),
}


def rewritten(text: Text, given: str, nodes: str) -> tuple[bool, onnx.ModelProto, ir.Model]:
    words = nodes.replace(",", " ").replace("(", " ").replace(")", " ").split()
    constants = {name: data for name, data in CONSTANTS.items() if name in words}
    result = {2: "A,B,C,D,E,F", 1: "A,B,C,D,E"}.get(nodes.count("Gather"), "A,B,C,D")
    proto = text(f"g ({given}) => (float[{result}] y) {{ {nodes} }}", opset=18, **constants)
    model = load_model(proto)
    return unfolds.run(model), proto, model


@pytest.mark.parametrize("name", MOVES)
def test_patches_next_to_each_other_are_a_transpose(name: str, onnx_text: Text):
    changed, proto, model = rewritten(onnx_text, *MOVES[name])
    assert changed
    assert {node.op_type for node in model.graph} <= {"Reshape", "Transpose"}
    size = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = {"x": np.arange(np.prod(size), dtype=np.float32).reshape(size)}
    np.testing.assert_array_equal(run_plain(proto, x)[0], run_plain(model, x)[0])


@pytest.mark.parametrize("name", OTHERS)
def test_other_moves_remain(name: str, onnx_text: Text):
    changed, _, _ = rewritten(onnx_text, *OTHERS[name])
    assert not changed
