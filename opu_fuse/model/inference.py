"""onnx's shape inference: types and shapes of all values from those of the inputs.

Shapes that a file declares are ignored, since stale ones would make wrong programs. Inference gets
the model without its weights, in a child process that may abort (`sandbox.py`). onnx counts a
pooling window that starts in the end padding. The definition of the operator and ONNX Runtime do
not count it, so this module corrects the shape.
"""

import functools
from collections.abc import Generator
from contextlib import contextmanager

import onnx
import onnx_ir as ir

from opu_fuse.model.operator_sets import PAIRS, POOLS
from opu_fuse.model.opsets import STANDARD
from opu_fuse.process.sandbox import ForeignError, complaints, in_child

LARGE = 125
"""Elements. Constants that shapes are computed from are smaller."""
MEMORY_BYTES = 2 << 30
"""Memory limit of the child process in which onnx runs."""
_NESTED = "Inference error(s): "
_CONSTANTS_ARE_NO_INPUTS = 4
"""First IR version in which an initialiser need not be a graph input, too."""

_NORMALISATIONS = ("GroupNormalization", "MeanVarianceNormalization")
_FOUR_BITS = frozenset({onnx.TensorProto.INT4, onnx.TensorProto.UINT4})
"""Types that Cast of older operator sets does not accept. A DequantizeLinear of such a constant is
replaced by an operator with a `shape` attribute, so that inference knows the shape.
"""

Shapes = dict[str, onnx.TypeProto]
"""Types by value name. Unknown dimensions are open."""


def patience(nodes: int) -> float:
    """Time limit in seconds for onnx to process `nodes` nodes, also on a loaded machine."""
    return 10.0 + nodes / 200.0


def infer(proto: onnx.ModelProto) -> bytes:
    """Infer the types of all node results and return them as a serialised GraphProto.

    Types that the model declares for inner values and outputs are dropped. proto: the model without
    weights. Raises ForeignError, naming the node, if the model is invalid.

    Call it in a child process (`in_child`), since onnx may abort.
    """
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    inferred = _infer(model)
    while _cut_after_pool(model.graph, inferred):
        inferred = _infer(model)
    for field in ("node", "initializer"):
        inferred.ClearField(field)
    return inferred.SerializeToString()


def unpacked(data: bytes) -> Shapes:
    """Deserialise the result of `infer`."""
    return _types(onnx.GraphProto.FromString(data))


def _types(graph: onnx.GraphProto) -> Shapes:
    return {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}


def _infer(proto: onnx.ModelProto) -> onnx.GraphProto:
    """The graph with inferred types. The model is modified. Raises ForeignError for an invalid
    model.
    """
    del proto.graph.value_info[:]
    _convert_as_casts(proto.graph)
    _normalise_as_identities(proto.graph)
    inputs = {value.name for value in proto.graph.input}
    for output in proto.graph.output:
        # onnx prefers the declared type of an output to that of an input of the same name.
        if output.name not in inputs and output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    with complaints():
        try:
            return _inferred(proto, strict=True)
        except onnx.shape_inference.InferenceError as error:
            # A nested message comes from the function body of an operator: a bug of onnx.
            if str(error).count(_NESTED) < 2:
                raise ForeignError(_plain(str(error))) from error
            return _inferred(proto, strict=False)


def _convert_as_casts(graph: onnx.GraphProto) -> None:
    """Replace ONNX Runtime's own Q and DQ nodes by Cast nodes.

    onnx cannot infer through the nodes of ONNX Runtime's domain. A Cast is element-wise, too. The
    nodes of the standard do not fit: they support 16 bits only since opset 21.
    """
    kinds = {t.name: t.data_type for t in graph.initializer}
    kinds |= {i.name: i.type.tensor_type.elem_type for i in graph.input}
    kinds |= {
        n.output[0]: a.t.data_type for n in graph.node for a in n.attribute if a.HasField("t")
    }
    sizes = {t.name: tuple(t.dims) for t in graph.initializer}
    sizes |= {i.name: dims(i.type) or () for i in graph.input}
    for node in graph.node:
        if node.domain != "com.microsoft" or node.op_type not in PAIRS:
            continue
        written = len(node.input) > 2 and node.input[2]
        kind = kinds.get(node.input[2]) if written else onnx.TensorProto.UINT8
        if kind is None or not _FOUR_BITS.isdisjoint(kinds.get(name) for name in node.input):
            if sizes.get(node.input[0]) and node.op_type == "DequantizeLinear":
                size = onnx.helper.make_attribute("shape", sizes[node.input[0]])
                stand_in = onnx.helper.make_node("RandomNormal", [], node.output, node.name)
                stand_in.attribute.append(size)
                node.CopyFrom(stand_in)
            continue
        to = kind if node.op_type == "QuantizeLinear" else onnx.TensorProto.FLOAT
        cast = onnx.helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)
        node.CopyFrom(cast)


def _normalise_as_identities(graph: onnx.GraphProto) -> None:
    """Replace normalisations by Identity: onnx infers no shape for them."""
    for node in graph.node:
        if node.domain in STANDARD and node.op_type in _NORMALISATIONS and node.input:
            node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output, node.name))


def _inferred(proto: onnx.ModelProto, *, strict: bool) -> onnx.GraphProto:
    infer_shapes = onnx.shape_inference.infer_shapes
    return infer_shapes(proto, check_type=strict, strict_mode=strict, data_prop=True).graph


def _plain(text: str) -> str:
    """First error of a message such as

    (op_type:Conv, node name: c): [ShapeInferenceError] Attribute ...

    without the name of the exception.
    """
    line = text.split(_NESTED, 1)[-1].splitlines()[0]
    for noise in ("[ShapeInferenceError] ", "[TypeInferenceError] "):
        line = line.replace(noise, "")
    return line.rstrip(".")


def dims(kind: onnx.TypeProto) -> tuple[int, ...] | None:
    """The shape if every dimension is static, else None."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    sizes = kind.tensor_type.shape.dim
    known = tuple([d.dim_value for d in sizes if d.HasField("dim_value")])
    return known if len(known) == len(sizes) else None


def _cut_after_pool(graph: onnx.GraphProto, inferred: onnx.GraphProto) -> bool:
    """Correct the first pool to which onnx gives a window too many. Return whether there was one.

    The results of the pool become graph inputs of the correct shape.
    """
    pools = [node for node in graph.node if node.op_type in POOLS]
    types = _types(inferred) if pools else {}
    for node in pools:
        right = _pooled(node, types)
        if right is not None and right != dims(types[node.output[0]]):
            for name in filter(None, node.output):
                kind = types[name].tensor_type.elem_type
                graph.input.append(onnx.helper.make_tensor_value_info(name, kind, right))
            graph.node.remove(node)
            return True
    return False


def _pooled(node: onnx.NodeProto, shapes: Shapes) -> tuple[int, ...] | None:
    """Output shape of a pool with `ceil_mode`, whose windows all start before the end padding.

    None if onnx infers the shape correctly, or the shape is not known.
    """
    if node.domain not in STANDARD:
        return None
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    automatic = attributes.get("auto_pad", b"NOTSET") not in {b"NOTSET", b""}
    size = dims(shapes[node.input[0]]) if node.input[0] in shapes else None
    if not attributes.get("ceil_mode") or automatic or size is None or node.output[0] not in shapes:
        return None
    rank = len(size) - 2
    kernel, ones = attributes["kernel_shape"], [1] * rank
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    pads = attributes.get("pads", [0] * 2 * rank)
    sizes = []
    for axis, (n, k, s, d) in enumerate(zip(size[2:], kernel, strides, dilations, strict=True)):
        begin, end = pads[axis], pads[rank + axis]
        # `covered` is what onnx counts; the second bound drops windows in the end padding.
        covered = -(-(n + begin + end - (k - 1) * d - 1) // s) + 1
        sizes.append(min(covered, -(-(n + begin) // s)))
    return (*size[:2], *sizes)


def infer_shapes(model: ir.Model) -> None:
    """Set the types and shapes of all node results of a model.

    Known types and shapes do not change if nothing is inferred. Raises ForeignError if the model is
    invalid, or onnx crashes on it.
    """
    with _weightless(model) as proto:
        _make_inputs(proto.graph, _known_results(model))
        types = infer_in_child(proto)
    for node in model.graph:
        for value in node.outputs:
            if value.name in types:
                adopt(value, types[value.name])


def _known_results(model: ir.Model) -> dict[str, onnx.ValueInfoProto]:
    """Known types and static shapes of results of operators outside the standard.

    onnx infers nothing for these operators.
    """
    return {
        value.name or "": ir.serde.serialize_value(value)
        for node in model.graph
        if node.domain not in STANDARD and node.op_type not in PAIRS
        for value in node.outputs
        if value.dtype is not None and value.shape is not None and value.shape.is_static()
    }


def _make_inputs(graph: onnx.GraphProto, known: dict[str, onnx.ValueInfoProto]) -> None:
    """Make known results graph inputs. Nodes without another result are removed."""
    if not known:
        return
    nodes = list(graph.node)
    graph.ClearField("node")
    for node in nodes:
        graph.input.extend(known[name] for name in node.output if name in known)
        remaining = ["" if name in known else name for name in node.output]
        if any(remaining):
            node.output[:] = remaining
            graph.node.append(node)


def infer_in_child(proto: onnx.ModelProto) -> Shapes:
    """Run `infer` in a child process."""
    packed = in_child(
        lambda: infer(proto),
        seconds=patience(len(proto.graph.node)),
        memory_bytes=MEMORY_BYTES,
    )
    return unpacked(packed)


def adopt(value: ir.Value, kind: onnx.TypeProto) -> None:
    """Set the type and shape of a value from an inferred type, where that has any."""
    static = _static(kind.SerializeToString())
    if static is not None:
        value.type, value.shape = ir.TensorType(static[0]), static[1]
        return
    inferred = ir.serde.deserialize_type_proto_for_type(kind)
    shape = ir.serde.deserialize_type_proto_for_shape(kind)
    value.type = inferred if inferred is not None else value.type
    if shape is not None and (shape.is_static() or value.shape is None):
        value.shape = shape


@functools.lru_cache(maxsize=1024)
def _static(packed: bytes) -> tuple[ir.DataType, ir.Shape] | None:
    """Element type and static shape of a serialised TypeProto; None if one is missing.

    Cached, since a network has few distinct types. Values can share a frozen shape.
    """
    kind = onnx.TypeProto.FromString(packed)
    known = dims(kind)
    if known is None or not kind.tensor_type.elem_type:
        return None
    return ir.DataType(kind.tensor_type.elem_type), ir.Shape(known, frozen=True)


@contextmanager
def _weightless(model: ir.Model) -> Generator[onnx.ModelProto]:
    """The model as a ModelProto in which constants of LARGE elements or more are graph inputs.

    `model` is modified inside the block and restored at its end.
    """
    graph = model.graph
    constants, inputs = list(graph.initializers.values()), len(graph.inputs)
    for value in constants:
        tensor = value.const_value
        if tensor is not None and tensor.size >= LARGE:
            value.shape, value.dtype = ir.Shape(tensor.numpy().shape), tensor.dtype
            del graph.initializers[str(value.name)]
            graph.inputs.append(value)
    try:
        proto = ir.to_proto(model)
        proto.ir_version = max(proto.ir_version, _CONSTANTS_ARE_NO_INPUTS)
        yield proto
    finally:
        while len(graph.inputs) > inputs:
            graph.inputs.pop()
        graph.initializers.clear()
        for value in constants:
            graph.initializers.add(value)
