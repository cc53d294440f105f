"""Values of an attention that are computed turned; the `canonical` fixture compares the results."""

import onnx
import pytest

from opu_fuse.frontend.editing import constant, sources_of, standard_nodes
from opu_fuse.model.products import has_turned_form
from tests.networks import attention_blocks as blocks

NORMS = ("Softmax",)


def turned(model) -> list[tuple[int, ...]]:
    """Shapes of the results of turned layers."""
    nodes = (node for node in model.graph if has_turned_form(node))
    return [node.outputs[0].shape.numpy() for node in nodes]


def widths(model) -> list[int]:
    """Output channels of 1x1 convolutions."""
    weights = (constant(node.inputs[1]) for node in standard_nodes(model.graph, "Conv"))
    return [len(weight) for weight in weights if weight is not None]


MODELS = {
    "gathered": (blocks.transformer(16, 64, 8), [(1, 16, 1, 8)] * 8, [128, 64]),
    "split": (blocks.transformer(32, 64, 4, spelling="split"), [(1, 32, 1, 16)] * 4, [128, 64]),
    "a layer of their own": (blocks.cross(48, heads=8), [(1, 48, 1, 8)] * 8, [64, 64, 64]),
    "one head": (blocks.cross(16, heads=1, deep=64), [(1, 16, 1, 64)], [64, 64, 64]),
    "rows": (blocks.windows(3, 16, 64, 4), [(1, 16, 3, 16)] * 4, [128, 64]),
    "masked rows": (
        blocks.windows(4, 16, 64, 2, spelling="split", masked=True),
        [(1, 16, 4, 32)] * 2,
        [128, 64],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_values_are_computed_turned_and_by_no_other_layer(name, canonical):
    model, shapes, layers = MODELS[name]
    found = canonical(model, rewriting=True, norms=NORMS)
    assert turned(found) == shapes
    assert sorted(widths(found)) == sorted(layers)


def test_a_turned_layer_comes_from_product_and_layer(canonical):
    found = canonical(MODELS["a layer of their own"][0], rewriting=True, norms=NORMS)
    sources = {tuple(sources_of(node)) for node in found.graph if has_turned_form(node)}
    assert sources == {("matmul_16", "matmul_8", "add_9")}


def _with_output(model: onnx.ModelProto, name: str, size: tuple[int, ...]) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, size)
    changed.graph.output.append(value)
    return changed


def test_channels_that_are_a_result_too_are_computed_again(canonical):
    model = _with_output(MODELS["gathered"][0], "v", (1, 8, 16, 8))
    found = canonical(model, rewriting=True, norms=NORMS)
    assert turned(found) == [(1, 16, 1, 8)] * 8
    assert sorted(widths(found)) == [64, 192]


STAYS = {
    "a machine has no norms": (MODELS["gathered"][0], ()),
    "the rows of factors have other sums": (blocks.transformer(16, 64, 8, between="Relu"), NORMS),
    "tokens fill less than half of the weight rows": (blocks.transformer(7, 64, 8), NORMS),
    "channels fill a part of a word": (blocks.transformer(16, 24, 3), NORMS),
    "a result has the bias of the values": (
        _with_output(MODELS["gathered"][0], "o", (1, 8, 16, 8)),
        NORMS,
    ),
    "several heads mix": (blocks.talking(16, 4, 2, 32), NORMS),
}


@pytest.mark.parametrize("name", STAYS)
def test_values_are_turned_after_their_layer_where(name, canonical):
    model, norms = STAYS[name]
    assert not turned(canonical(model, rewriting=True, norms=norms))
