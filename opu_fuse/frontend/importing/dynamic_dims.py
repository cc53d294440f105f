"""Fixes dynamic dimensions to sizes that the user sets, by input or by dimension name."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from msgspec import Struct, field

from opu_fuse.errors import ModelError


class Sizes(Struct, frozen=True, kw_only=True):
    """Sizes of dynamic dimensions.

    shapes: of inputs, by input name.
    dims: of symbolic dimensions such as `height`, by their name, in all inputs.
    """

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)


NO_SIZES = Sizes()


def fix_sizes(inputs: Sequence[onnx.ValueInfoProto], sizes: Sizes, where: str) -> None:
    """Set the sizes of the inputs of a model (mutates them).

    Raises ModelError if a name is unknown, a rank does not match, or two sizes contradict.
    """
    for name, size in sizes.dims.items():
        names = {dim.dim_param for dim in _dims(inputs)} - {""}
        if name not in names:
            raise _unknown(where, "dynamic dimension", name, names)
        _fix(inputs, name, size, f"{where}: dimension {name!r}")
    by_name = {value.name: value for value in inputs}
    for name, shape in sizes.shapes.items():
        if name not in by_name:
            raise _unknown(where, "input", name, by_name)
        _fix_shape(inputs, by_name[name], shape, f"{where}: input {name!r}")


def forget_unknown(values: Iterable[onnx.ValueInfoProto]) -> None:
    """Make dimensions of size -1 or name "?" dynamic and unnamed (mutates them).

    Some exporters write these for a dimension of unknown size.
    """
    for dim in _dims(values):
        if dim.dim_value == -1 or dim.dim_param == "?":
            dim.Clear()


def _dims(inputs: Iterable[onnx.ValueInfoProto]) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in inputs:
        yield from value.type.tensor_type.shape.dim


def _fix(inputs: Sequence[onnx.ValueInfoProto], name: str, size: int, where: str) -> None:
    if size < 1:
        raise ModelError(where, f"it cannot be {size}", "give a size from 1 on")
    for dim in _dims(inputs):
        if dim.dim_param == name:
            dim.dim_value = size


def _fix_shape(
    inputs: Sequence[onnx.ValueInfoProto],
    value: onnx.ValueInfoProto,
    shape: Sequence[int],
    where: str,
) -> None:
    """Set the shape of one input. A named dimension is set in all inputs."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        tensor.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in shape)
    dims, text = tensor.shape.dim, ",".join(map(str, shape))
    if len(dims) != len(shape):
        what = f"it has {len(dims)} dimensions ({shape_text(value)}), {text} has {len(shape)}"
        raise ModelError(where, what, "give all of them, the batch first")
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        if dim.HasField("dim_value") and dim.dim_value != size:
            what = f"its dimension {axis} is {dim.dim_value}, the shape {text} says {size}"
            raise ModelError(where, what, f"give {dim.dim_value} for it, or export it so")
        if dim.dim_param:
            _fix(inputs, dim.dim_param, size, where)
        elif size < 1:
            what = f"its dimension {axis} cannot be {size}"
            raise ModelError(where, what, "give sizes from 1 on")
        dim.dim_value = size


def shape_text(value: onnx.ValueInfoProto, unknown: str = "?") -> str:
    """The shape of an input in the syntax of `--shape`.

    Symbolic dimensions are shown by name, unnamed ones as `unknown`.
    """
    return ",".join(
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or unknown
        for dim in _dims([value])
    )


def _unknown(where: str, kind: str, name: str, known: Iterable[str]) -> ModelError:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    has = f"it has {', '.join(map(repr, names[:5]))}" if names else "it has none"
    help_ = f"did you mean {near[0]!r}?" if near else has
    return ModelError(where, f"no {kind} is called {name!r}", help_)
