"""Static shapes: inferred ones, and those that the file declares as a fallback.

A declared shape is only used if none is inferred (after operators of other domains, or if a shape
is data-dependent). The user gets a warning if the two contradict.
"""

import logging

import onnx_ir as ir

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import static_shape
from opu_fuse.model.inference import Shapes, adopt, dims
from opu_fuse.model.inference import infer_shapes as infer
from opu_fuse.process.sandbox import ForeignError

_log = logging.getLogger(__name__)


def infer_shapes(model: ir.Model, where: str = "model") -> None:
    """Infer types and shapes of all results. Raises ModelError for an invalid model."""
    try:
        infer(model)
    except ForeignError as error:
        raise ModelError(
            where, f"the graph is invalid ({error})", "check the export with onnx.checker"
        ) from error


def set_inferred(model: ir.Model, shapes: Shapes) -> None:
    """Replace the declared shapes of all results by the inferred ones."""
    for node in model.graph:
        for value in node.outputs:
            value.shape = None
            if value.name in shapes:
                adopt(value, shapes[value.name])


def adopt_declared(model: ir.Model, declared: Shapes) -> bool:
    """Set declared shapes of results that have no inferred one. Return whether any was set."""
    believed = False
    for node in model.graph:
        for value in node.outputs:
            kind = declared.get(value.name or "")
            if kind is None or is_known(value) or dims(kind) is None:
                continue
            if _may_be(value, dims(kind)):
                adopt(value, kind)
                believed = True
    return believed


def _may_be(value: ir.Value, size: tuple[int, ...] | None) -> bool:
    """Whether a declared shape is compatible with the known dimensions of a value."""
    if size is None or value.shape is None:
        return size is not None
    if len(value.shape) != len(size):
        return False
    pairs = zip(value.shape, size, strict=True)
    return all(a == b for a, b in pairs if isinstance(a, int))


def contradictions(declared: Shapes, shapes: Shapes) -> tuple[str, ...]:
    """A warning if declared shapes differ from the inferred ones, else ()."""
    wrong = [
        (name, size, right)
        for name, kind in declared.items()
        if name in shapes
        and (size := dims(kind)) is not None
        and (right := dims(shapes[name])) is not None
        and size != right
    ]
    if not wrong:
        return ()
    name, size, right = wrong[0]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    correction = f"its operators make {_text(right)}{more}: what they make is used"
    return (f"the file declares {name!r} as {_text(size)}, {correction}",)


def _text(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size)) or "a single number"


def shapes_known(model: ir.Model) -> bool:
    """Whether all results have a type and a static shape."""
    return not count_unknown(model)


def count_unknown(model: ir.Model) -> int:
    """Count of results without a type or a static shape."""
    return sum(not is_known(value) for node in model.graph for value in node.outputs)


def is_known(value: ir.Value) -> bool:
    """Whether a value has a type and a static shape."""
    return value.dtype is not None and static_shape(value) is not None
