"""Queries and keys that are normalised before their product: the norms of their heads.

The `canonical` fixture compares the results.
"""

import numpy as np
import pytest

from opu_fuse.frontend.editing import constant, standard_nodes, static_shape
from tests.networks import rotated_blocks as blocks
from tests.networks.attention_blocks import HEADER, with_constants
from tests.some import some

NORMS = ("Softmax", "LayerNormalization", "RMSNormalization")

MODELS = {
    "tokens": (blocks.cosine(1, 7, 12, 3), (1, 1, 7, 4)),
    "windows": (blocks.cosine(5, 7, 12, 3), (1, 5, 7, 4)),
    "channels": (blocks.cosine(1, 7, 12, 3, of_channels=True), (1, 1, 4, 7)),
}


@pytest.mark.parametrize("name", MODELS)
def test_each_head_is_normalised_with_its_factor(name, canonical):
    model, shape = MODELS[name]
    graph = canonical(model, rewriting=True, norms=NORMS).graph
    norms = standard_nodes(graph, "RMSNormalization")
    assert [static_shape(norm.outputs[0]) for norm in norms] == [shape] * 6
    scales = np.array([some(constant(norm.inputs[1])) for norm in norms]) * np.sqrt(shape[-1])
    assert np.ptp(scales, axis=1).max() < 1e-6
    np.testing.assert_allclose(sorted(scales[:, 0]), [1.0] * 3 + [2.0, 5.0, 8.0], rtol=1e-6)
    assert not standard_nodes(graph, "Mul")


def _product(norm: str, product: str, operands: str = "q, k") -> str:
    return f"""{HEADER} g (float[1,8,1,6] image, float[1,8,1,6] other) => (float[1,2,A,B] y) {{
  a = Reshape(image, heads)  b = Reshape(other, heads)
  qt = Transpose<perm=[0,1,3,2]>(a)  q = {norm}(qt, scale)  k = Identity(b)  {product} }}"""


TEXTS = {
    "what is summed": _product("LayerNormalization<axis=-1>", "y = MatMul(q, k)"),
    "another axis": _product(
        "LayerNormalization<axis=-1>",
        "t = Transpose<perm=[0,1,3,2]>(q)  u = Transpose<perm=[0,1,3,2]>(k)  y = MatMul(t, u)",
    ),
    "two axes": _product("LayerNormalization<axis=-2>", "y = MatMul(q, k)"),
}
COUNTS = {"what is summed": 2, "another axis": 1, "two axes": 1}


@pytest.mark.parametrize("name", TEXTS)
def test_only_norms_of_what_a_product_sums_are_those_of_heads(name, canonical):
    scale = np.linspace(0.5, 2.0, 24 if name == "two axes" else 4)
    constants = {
        "heads": np.array([1, 2, 4, 6]),
        "scale": scale.reshape(6, 4) if name == "two axes" else scale,
    }
    found = canonical(with_constants(TEXTS[name], constants), rewriting=True, norms=NORMS)
    assert len(standard_nodes(found.graph, "LayerNormalization")) == COUNTS[name]


def test_a_factor_of_a_norm_that_others_read_stays(canonical):
    text = _product("LayerNormalization<axis=-1>", "m = MatMul(q, k)  y = Mul(m, half)")
    text = text.replace("=> (", "=> (float[1,2,6,4] q, ")
    constants = {
        "heads": np.array([1, 2, 4, 6]),
        "scale": np.linspace(0.5, 2.0, 4),
        "half": np.array(0.5),
    }
    graph = canonical(with_constants(text, constants), rewriting=True, norms=NORMS).graph
    scales = [
        some(constant(norm.inputs[1])) for norm in standard_nodes(graph, "LayerNormalization")
    ]
    assert any(np.allclose(scale, constants["scale"]) for scale in scales)
