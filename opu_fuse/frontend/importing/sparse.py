"""Expands sparse weights to dense ones, as ONNX Runtime does when it loads a model."""

import math

import numpy as np
import onnx
from onnx import numpy_helper

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.size_limits import CONSTANT_ELEMENTS
from opu_fuse.model.operator_sets import BODIES
from opu_fuse.process.sandbox import ForeignError, complaints

_HOLDERS = BODIES | {"Constant"}
"""Operators with subgraphs or sparse constants."""


def make_dense(graph: onnx.GraphProto, where: str, budget: float = 1.0) -> None:
    """Expand all sparse weights of a graph and its subgraphs (mutates them).

    budget: factor on the size limit of a constant. Raises ModelError, naming the weight, if its
    indices and values do not match.
    """
    for weight in graph.sparse_initializer:
        location = f"{where}: sparse weight {weight.values.name!r}"
        graph.initializer.append(_dense(weight, location, budget))
    graph.ClearField("sparse_initializer")
    for node in graph.node:
        if node.op_type not in _HOLDERS:
            continue
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.output:
                    make_dense(inner, where, budget)
            if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                location = f"{where}: node {node.name!r} (Constant)"
                dense = _dense(attribute.sparse_tensor, location, budget)
                attribute.CopyFrom(onnx.helper.make_attribute("value", dense))


def _dense(weight: onnx.SparseTensorProto, location: str, budget: float) -> onnx.TensorProto:
    """Expand one weight. location: its name in messages. Raises ModelError.

    The indices of its values are either flat offsets [values] or coordinates [values, rank].
    """
    shape = tuple(weight.dims)
    if any(size < 0 for size in shape) or math.prod(shape) > CONSTANT_ELEMENTS * budget:
        what = f"its shape {list(shape)} has no size, or too large a one"
        raise ModelError(location, what, "check the export")
    try:
        with complaints():
            values = numpy_helper.to_array(weight.values).reshape(-1)
            indices = numpy_helper.to_array(weight.indices)
    except ForeignError as error:
        raise ModelError(location, f"its data are damaged ({error})", "export it again") from error
    limits = np.asarray(shape if indices.ndim == 2 else [math.prod(shape)], np.int64)
    rows = indices if indices.ndim == 2 else indices.reshape(-1, 1)
    well_formed = indices.ndim == 1 or (indices.ndim == 2 and rows.shape[1] == len(shape) > 0)
    if not well_formed or len(indices) != len(values) or rows.dtype != np.int64:
        what = f"it has {len(values)} values, and indices of shape {list(indices.shape)}"
        raise ModelError(location, what, "check the export with onnx.checker")
    if np.any((rows < 0) | (rows >= limits)):
        what = f"it has a value outside its shape {list(shape)}"
        raise ModelError(location, what, "check the export with onnx.checker")
    offsets = rows[:, 0] if indices.ndim == 1 else np.ravel_multi_index(tuple(rows.T), shape)
    dense = np.zeros(math.prod(shape), values.dtype)
    dense[offsets] = values
    return numpy_helper.from_array(dense.reshape(shape), weight.values.name)
