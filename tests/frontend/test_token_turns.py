"""Tokens mixed by layers become turns of maps; the `canonical` fixture compares the results."""

import numpy as np
import pytest

from opu_fuse.frontend.editing import standard_nodes
from opu_fuse.model.products import is_turn
from tests.frontend.conftest import parse
from tests.networks import token_mixers

NORMS = ("LayerNormalization",)
MODELS = {
    "mixer": token_mixers.mixer(24, 3, 16),
    "scaled": token_mixers.scaled(16, 4),
    "gated": token_mixers.gated(16, 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers_over_tokens_read_and_write_turned_maps(name, canonical):
    model = canonical(MODELS[name], rewriting=True, norms=NORMS)
    turns = [node for node in standard_nodes(model.graph, "Transpose") if is_turn(node)]
    assert len(turns) == 2
    assert len(standard_nodes(model.graph, "Conv")) == {"mixer": 4, "scaled": 3, "gated": 5}[name]


def _turned(after: str, result: str, *, perm: str = "0,3,1,2", size=(1, 1, 8, 6)):
    """A map (1, 8, 2, 3), turned as `size` and `perm` say, and what reads it."""
    rng = np.random.default_rng(5)
    return parse(
        f"g (float[1,4,2,3] x) => (float{result}) {{ a = Conv(x, w) r = Reshape(a, size) "
        f"t = Transpose<perm=[{perm}]>(r) {after} }}",
        w=rng.normal(size=(8, 4, 1, 1)).astype(np.float32),
        v=rng.normal(size=(4, 6, 1, 1)).astype(np.float32),
        w6=rng.normal(size=(6, 6, 1, 1)).astype(np.float32),
        k=rng.normal(size=(1, 6, 1, 8)).astype(np.float32),
        one=np.array(3),
        size=np.array(size),
    )


SPELLINGS = {
    "a line": _turned("y = Conv(t, v)", "[1,4,1,8] y"),
    "axes of one move": _turned("y = Conv(t, v)", "[1,4,1,8] y", perm="1,3,0,2"),
    "a map and a layer": _turned(
        "c = Conv(t, v) d = Conv(t, w6) e = Mul(t, d) f = Conv(e, v) y = Add(c, f)", "[1,4,1,8] y"
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_transpose_is_a_turn(name, canonical):
    model = canonical(SPELLINGS[name], rewriting=True)
    (turn,) = standard_nodes(model.graph, "Transpose")
    assert is_turn(turn)


STAYS = {
    "the result": _turned("y = Identity(t)", "[1,6,1,8] y"),
    "what the host reads": _turned("y = CumSum(t, one)", "[1,6,1,8] y"),
    "a result as well": _turned("y = Conv(t, v)", "[1,4,1,8] y, float[1,6,1,8] t"),
    "a map times constants": _turned("b = Mul(t, k) y = Conv(b, v)", "[1,4,1,8] y"),
    "a view of other rows": _turned(
        "y = Conv(t, v)", "[1,4,1,8] y", size=(1, 1, 6, 8), perm="0,2,1,3"
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_the_host_transposes(name, canonical):
    model = canonical(STAYS[name], rewriting=True)
    assert not any(map(is_turn, model.graph))
