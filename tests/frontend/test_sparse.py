"""Sparse weights are what ONNX Runtime makes of them: dense ones."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.load import load_model
from opu_fuse.frontend.qdq_reference import session
from tests.some import some

Text = Callable[..., onnx.ModelProto]
CONV = "g (float[1,3,6,6] x) => (float[1,4,4,4] y) { y = Conv(x, w) }"
RNG = np.random.default_rng(6)
W = (RNG.normal(size=(4, 3, 3, 3)) * (RNG.random((4, 3, 3, 3)) < 0.2)).astype(np.float32)
X = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)


def sparse(
    values: np.ndarray, places: np.ndarray, shape, name: str = "w"
) -> onnx.SparseTensorProto:
    return onnx.helper.make_sparse_tensor(
        numpy_helper.from_array(values, name), numpy_helper.from_array(places, "i"), list(shape)
    )


def with_weight(onnx_text: Text, weight: onnx.SparseTensorProto) -> onnx.ModelProto:
    model = onnx_text(CONV)
    model.graph.sparse_initializer.append(weight)
    return model


@pytest.mark.parametrize("linear", [True, False])
def test_places_may_be_counted_or_listed_by_axis(linear: bool, onnx_text: Text):
    places = np.flatnonzero(W) if linear else np.argwhere(W)
    model = with_weight(onnx_text, sparse(W[W != 0], places.astype(np.int64), W.shape))
    loaded = load_model(model)
    np.testing.assert_array_equal(some(loaded.graph.initializers["w"].const_value).numpy(), W)
    (wanted,) = session(model).run(None, {"x": X})
    (got,) = session(ir.to_proto(loaded)).run(None, {"x": X})
    np.testing.assert_array_equal(got, wanted)


def test_a_weight_may_be_empty(onnx_text: Text):
    nothing = sparse(np.zeros(0, np.float32), np.zeros(0, np.int64), W.shape)
    loaded = load_model(with_weight(onnx_text, nothing))
    assert not some(loaded.graph.initializers["w"].const_value).numpy().any()


def test_a_constant_node_may_be_sparse(onnx_text: Text):
    model = onnx_text(CONV)
    node = onnx.helper.make_node("Constant", [], ["w"])
    places = np.flatnonzero(W).astype(np.int64)
    value = sparse(W[W != 0], places, W.shape)
    node.attribute.append(onnx.helper.make_attribute("sparse_value", value))
    model.graph.node.insert(0, node)
    loaded = load_model(model)
    (wanted,) = session(model).run(None, {"x": X})
    (got,) = session(ir.to_proto(loaded)).run(None, {"x": X})
    np.testing.assert_array_equal(got, wanted)


DAMAGED = {
    "outside": (
        [1.0, 2.0],
        [0, 108],
        [4, 3, 3, 3],
        r"has a value outside its shape \[4, 3, 3, 3\]",
    ),
    "negative": ([1.0], [-1], [4, 3, 3, 3], "has a value outside its shape"),
    "too few": ([1.0, 2.0], [0], [4, 3, 3, 3], r"has 2 values, and indices of shape \[1\]"),
    "axes": ([1.0], [[0, 0]], [4, 3, 3, 3], r"has 1 values, and indices of shape \[1, 2\]"),
    "huge": ([1.0], [0], [1 << 20, 1 << 20], "has no size, or too large a one"),
    "no size": ([1.0], [0], [-4, 3, 3, 3], "has no size, or too large a one"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_does_not_fit_is_refused_with_its_name(name: str, onnx_text: Text):
    values, places, shape, message = DAMAGED[name]
    weight = sparse(np.asarray(np.float32(values)), np.asarray(np.int64(places)), [1] * len(shape))
    weight.dims[:] = shape
    with pytest.raises(ModelError, match=f"sparse weight 'w': it.* {message}") as caught:
        load_model(with_weight(onnx_text, weight))
    assert "\n" not in str(caught.value)


def test_two_weights_of_one_name_are_refused(onnx_text: Text):
    model = with_weight(
        onnx_text, sparse(np.array([1], np.float32), np.array([0], np.int64), W.shape)
    )
    model.graph.initializer.append(numpy_helper.from_array(W, "w"))
    with pytest.raises(ModelError, match="two weights are called 'w'"):
        load_model(model)
