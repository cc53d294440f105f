"""Ways to write windows and patches, in text; the `canonical` fixture compares results."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from opu_fuse.model.composites import composites
from tests.networks.permuted_pixels import SPELLINGS, network

Text = Callable[..., onnx.ModelProto]
Canonical = Callable[[onnx.ModelProto], ir.Model]
FIRST, LAST = "Transpose <perm = [0, 3, 1, 2]>", "Transpose <perm = [0, 2, 3, 1]>"


def found(model: ir.Model) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Extents and order of every permutation."""
    wholes = composites(model.graph).values()
    return [(w.attrs["extents"], w.attrs["order"]) for w in wholes if w.op == "permute"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_one_permutation_each_way(spelling: str, canonical: Canonical):
    model = canonical(network(spelling, 4, (2, 3), (4, 5)))
    back = ((4, 5, 2, 3), (2, 0, 3, 1)) if spelling == "patches" else ((2, 3, 4, 5), (0, 2, 1, 3))
    there = (2, 4, 3, 5), (1, 3, 0, 2) if spelling == "patches" else (0, 2, 1, 3)
    assert found(model) == [there, back]
    assert [n.op_type for n in model.graph].count("Transpose") == 2


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_there_and_back_cancel(spelling: str, canonical: Canonical):
    model = canonical(network(spelling, 4, (2, 3), (4, 5), between="d = Identity(b)"))
    assert {n.op_type for n in model.graph} == {"Conv", "Add"}


def test_equal_permutations_are_one(onnx_text: Text, canonical: Canonical):
    nodes = (
        "[c] a = Relu (x) [r] b = Reshape (a, s6) "
        "[t] d = Transpose <perm = [0, 1, 2, 4, 3, 5]> (b) [u] e = Reshape (d, s4) "
        f"[v] f = {LAST} (e) [w] h = {FIRST} (f) [o] m = Sigmoid (e) [p] n = Tanh (h) "
        "[q] y = Sub (m, n)"
    )
    sizes = {"s6": np.array([1, 2, 2, 3, 2, 2]), "s4": np.array([1, 2, 4, 6])}
    model = canonical(
        onnx_text(f"g (float[1, 2, 6, 4] x) => (float[A, B, C, D] y) {{ {nodes} }}", **sizes)
    )
    assert found(model) == [((2, 3, 2, 2), (0, 2, 1, 3))]


STAY = {
    "channels are divided": (
        "[r] a = Reshape (x, s5) [t] b = Transpose <perm = [0, 2, 1, 3, 4]> (a)"
        + " [u] d = Reshape (b, s4) [v] e = Relu (d) [q] y = Sigmoid (e)",
        {"s5": np.array([1, 2, 3, 4, 6]), "s4": np.array([1, 3, 8, 6])},
    ),
    "channels become pixels": (
        "[c] a = Relu (x) [t] b = Transpose <perm = [0, 3, 2, 1]> (a) [q] y = Sigmoid (b)",
        {},
    ),
}


@pytest.mark.parametrize("name", STAY)
def test_what_moves_channels_is_no_permutation(name: str, onnx_text: Text, canonical: Canonical):
    nodes, sizes = STAY[name]
    model = canonical(
        onnx_text(f"g (float[1, 6, 4, 6] x) => (float[A, B, C, D] y) {{ {nodes} }}", **sizes)
    )
    assert found(model) == []


def test_a_single_channel_may_be_last(onnx_text: Text, canonical: Canonical):
    nodes = (
        "[r] a = Reshape (x, s6) [t] b = Transpose <perm = [0, 1, 3, 4, 2, 5]> (a) "
        "[u] y = Reshape (b, s4)"
    )
    sizes = {"s6": np.array([1, 2, 2, 4, 1, 1]), "s4": np.array([1, 8, 2, 1])}
    model = canonical(
        onnx_text(f"g (float[1, 1, 4, 4] x) => (float[A, B, C, D] y) {{ {nodes} }}", **sizes)
    )
    assert [n.op_type for n in model.graph] == ["Reshape", "Transpose", "Reshape"]


@pytest.mark.parametrize("rows", [6, 12])
def test_an_image_divided_anew_is_between_two_permutations(
    rows: int, onnx_text: Text, canonical: Canonical
):
    """Windows of 3 x 2 pixels of an image, then of 2 x 2 pixels. Exporters write one Reshape from
    the ones to the others, whose axes are no factors of each other.
    """
    nodes = (
        f"[c] c = Relu (x) [l] a = {LAST} (c) [r] b = Reshape (a, windows) "
        "[t] d = Transpose <perm = [0, 5, 1, 3, 2, 4]> (b) [u] e = Reshape (d, others) "
        "[v] f = Transpose <perm = [0, 1, 2, 4, 3, 5]> (e) [w] h = Reshape (f, s4) "
        "[o] y = Sigmoid (h)"
    )
    sizes = {
        "windows": np.array([1, rows // 3, 4, 3, 2, 4]),
        "others": np.array([1, 4, rows // 2, 2, 4, 2]),
        "s4": np.array([1, 4, rows // 2 * 4, 4]),
    }
    shape = f"float[1, 4, {rows // 3 * 4}, 6] x"
    model = canonical(onnx_text(f"g ({shape}) => (float[A, B, C, D] y) {{ {nodes} }}", **sizes))
    from_windows, to_others = (rows // 3, 4, 3, 2), (rows // 2, 2, 4, 2)
    assert found(model) == [(from_windows, (0, 2, 1, 3)), (to_others, (0, 2, 1, 3))]
