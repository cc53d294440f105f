"""Static shapes: batch 1, everything else known or refused."""

import logging
import math

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import static_shape

_log = logging.getLogger(__name__)
_LARGE = 125
"""Elements; constants that shapes are computed from have fewer."""
_INFERENCE = {"check_type": False, "strict_mode": False, "data_prop": True}
"""Shapes that depend on data (behind NonZero, say) stay unknown."""


def fix_input_shapes(model: ir.Model, where: str) -> bool:
    """Set a dynamic leading dimension to 1; forget inner shapes that depended on it, and return
    whether there was one.

    Raises ModelError, naming input and dimension, for other dynamic dimensions, inputs without a
    shape, and images (four dimensions) with a batch other than 1.
    """
    changed = False
    for value in model.graph.inputs:
        shape = value.shape
        if shape is None:
            raise ModelError(
                where, f"input {value.name!r} has no shape", "export it with a fixed input shape"
            )
        dims = list(shape)
        if dims and not isinstance(dims[0], int):
            dims[0] = 1
            changed = True
        for axis, dim in enumerate(dims):
            if not isinstance(dim, int):
                label = f" ({dim.value!r})" if dim.value else ""
                raise ModelError(
                    where,
                    f"dimension {axis}{label} of input {value.name!r} is dynamic",
                    "export it with fixed sizes; only the batch may be dynamic",
                )
        if len(dims) == 4 and dims[0] != 1:
            raise ModelError(
                where,
                f"input {value.name!r} has batch {dims[0]}, networks are compiled for batch 1",
                "export it with batch 1 or a dynamic batch",
            )
        value.shape = ir.Shape(dims)
    if changed:
        _forget_dynamic_shapes(model)
    return changed


def _forget_dynamic_shapes(model: ir.Model) -> None:
    for node in model.graph:
        for value in node.outputs:
            if value.shape is not None and any(not isinstance(d, int) for d in value.shape):
                value.shape = None


def infer_shapes(model: ir.Model) -> None:
    """ONNX shape inference, values computed for shapes included; in place."""
    common.ShapeInferencePass(**_INFERENCE)(model)


def without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its weights as inputs, for the checker and for shape inference: what they
    look at is copied several times on its way.
    """
    graph = proto.graph
    named = {value.name for value in graph.input}
    weights = [
        onnx.helper.make_tensor_value_info(w.name, w.data_type, w.dims)
        for w in graph.initializer
        if w.name not in named
    ]
    return onnx.ModelProto(
        ir_version=proto.ir_version,
        opset_import=proto.opset_import,
        functions=proto.functions,
        graph=onnx.GraphProto(
            name=graph.name,
            node=graph.node,
            input=[*graph.input, *weights],
            output=graph.output,
            value_info=graph.value_info,
            initializer=[w for w in graph.initializer if math.prod(w.dims) < _LARGE],
        ),
    )


def add_inferred(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Set the shapes and types that `infer_shapes` would find; what the file says of a value stays.

    proto: the model without weights, as it was read. Turning IR into a model for inference, and
    back, takes longer than inferring.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, **_INFERENCE).graph
    except Exception as error:  # noqa: BLE001  it raises whatever its C++ raises
        _log.warning("shape inference failed: %s", error)
        return
    found = {info.name: info for info in (*inferred.value_info, *inferred.output)}
    for value in (value for node in model.graph for value in node.outputs):
        if value.name in found and not _is_known(value):
            ir.serde.deserialize_value_info_proto(found[value.name], value)


def shapes_known(model: ir.Model) -> bool:
    """Whether inference has nothing to add: all results have a type and fixed dimensions."""
    results = (value for node in model.graph for value in node.outputs)
    return all(map(_is_known, results))


def _is_known(value: ir.Value) -> bool:
    return value.dtype is not None and static_shape(value) is not None
