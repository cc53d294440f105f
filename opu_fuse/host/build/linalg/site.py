"""An ONNX node with what is known about its operands."""

from collections.abc import Mapping

import numpy as np
import onnx
from msgspec import Struct, field
from onnx import helper, numpy_helper

from opu_fuse.affine import Affine, AffineMap


class TensorType(Struct, frozen=True, kw_only=True):
    """Shape and dtype (as numpy names it) of a value. shape None: not known before running."""

    shape: tuple[int, ...] | None
    dtype: str


class Site(Struct, frozen=True, kw_only=True):
    """A node with one result. inputs: types in operand order, None where an optional operand is
    missing; constants: those known, by value name. All shapes are known, without zeros.
    """

    node: onnx.NodeProto
    inputs: tuple[TensorType | None, ...]
    result: TensorType
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    def shape(self, n: int) -> tuple[int, ...]:
        """Shape of an operand that is present."""
        kind = self.inputs[n]
        assert kind is not None
        assert kind.shape is not None
        return kind.shape

    @property
    def result_shape(self) -> tuple[int, ...]:
        assert self.result.shape is not None
        return self.result.shape

    def has(self, n: int) -> bool:
        """True when operand n is present."""
        return n < len(self.inputs) and self.inputs[n] is not None

    def constant(self, n: int) -> np.ndarray | None:
        """Data of operand n, None where it is missing or computed."""
        return self.constants.get(self.node.input[n]) if self.has(n) else None

    def attribute(self, name: str, default: object = None) -> object:
        """An attribute's value, else the default."""
        for a in self.node.attribute:
            if a.name == name:
                return helper.get_attribute_value(a)
        return default

    def number(self, name: str, default: float) -> np.float32:
        """A float attribute."""
        value = self.attribute(name, default)
        assert isinstance(value, float | int)
        return np.float32(value)

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attribute(name, default)
        assert isinstance(value, int)
        return value

    def spread(self, n: int) -> AffineMap:
        """Map of operand n under numpy broadcasting (aligned on the right)."""
        shape, result = self.shape(n), self.result_shape
        lead = len(result) - len(shape)
        return AffineMap(
            dims=len(result),
            results=tuple(
                Affine(terms=((lead + i, 1),)) if size == result[lead + i] else Affine()
                for i, size in enumerate(shape)
            ),
        )


def site_of(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray],
) -> Site | None:
    """The node's site; None where it has several results, or a type is unknown or empty."""
    results = [name for name in node.output if name]
    kinds = [None if not name else types.get(name) for name in node.input]
    missing = any(name and t is None for name, t in zip(node.input, kinds, strict=True))
    if len(results) != 1 or missing or results[0] not in types:
        return None
    result = types[results[0]]
    shapes = [t.shape for t in (*kinds, result) if t is not None]
    if any(shape is None or 0 in shape for shape in shapes):
        return None
    return Site(node=node, inputs=tuple(kinds), result=result, constants=constants)


def types_of(model: onnx.ModelProto) -> dict[str, TensorType]:
    """Types of a model's values, as far as shape inference finds them; constants included."""
    draft = onnx.ModelProto()
    draft.CopyFrom(model)
    for output in draft.graph.output:
        if not output.type.tensor_type.elem_type:  # "of no type" also says "of no dimensions"
            output.ClearField("type")
    # In this process: these nodes have passed inference in a child's when the model was loaded, and
    # a child for every host segment would take longer than all else that is done with it.
    graph = onnx.shape_inference.infer_shapes(draft, data_prop=True).graph
    results: dict[str, TensorType] = {}
    for info in (*graph.value_info, *graph.output, *graph.input):
        tensor = info.type.tensor_type
        if info.type.WhichOneof("value") == "tensor_type" and tensor.elem_type:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
            results[info.name] = TensorType(shape=_static(tensor), dtype=dtype)
    constants = constants_of(model.graph)
    return results | {
        n: TensorType(shape=d.shape, dtype=d.dtype.name) for n, d in constants.items()
    }


def constants_of(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Initialisers and results of Constant nodes, as arrays."""
    results = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and not node.domain:
            data = _constant_node(node)
            if data is not None:
                results[node.output[0]] = data
    return results


def _constant_node(node: onnx.NodeProto) -> np.ndarray | None:
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    match attribute.name:
        case "value":
            return numpy_helper.to_array(value)
        case "value_float" | "value_floats":
            return np.array(value, np.float32)
        case "value_int" | "value_ints":
            return np.array(value, np.int64)
        case _:
            return None


def _static(tensor: onnx.TypeProto.Tensor) -> tuple[int, ...] | None:
    if not tensor.HasField("shape"):
        return None
    sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]
    return tuple(sizes) if min(sizes, default=0) >= 0 else None
