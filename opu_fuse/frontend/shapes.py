"""Static shapes: batch 1, everything else known or refused."""

import logging

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import static_shape

_log = logging.getLogger(__name__)


def fix_input_shapes(model: ir.Model, where: str) -> None:
    """Set a dynamic leading dimension to 1; forget inner shapes that depended on it.

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


def _forget_dynamic_shapes(model: ir.Model) -> None:
    for node in model.graph:
        for value in node.outputs:
            if value.shape is not None and any(not isinstance(d, int) for d in value.shape):
                value.shape = None


def infer_shapes(model: ir.Model) -> None:
    """ONNX shape inference, values computed for shapes included; in place.

    Shapes that depend on data (behind NonZero, say) stay unknown.
    """
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)


def shapes_known(model: ir.Model) -> bool:
    """Whether inference has nothing to add: all results have a type and fixed dimensions."""
    results = (value for node in model.graph for value in node.outputs)
    return all(v.dtype is not None and static_shape(v) is not None for v in results)
