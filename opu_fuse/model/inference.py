"""onnx's shape inference: types and shapes of all values from those of the inputs.

It believes nothing of what a file declares (stale shapes would make wrong programs), sees no
weights, and works where it may abort (`sandbox.py`). onnx counts a pooling window that starts in
the end padding; its own definition and ONNX Runtime do not, and that is put right here.
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
"""Elements; constants that shapes are computed from have fewer."""
MEMORY_BYTES = 2 << 30
_NESTED = "Inference error(s): "
_CONSTANTS_ARE_NO_INPUTS = 4
"""IR version; before, every initialiser had to be an input too."""

_NORMALISATIONS = ("GroupNormalization", "MeanVarianceNormalization")
_FOUR_BITS = frozenset({onnx.TensorProto.INT4, onnx.TensorProto.UINT4})
"""No Cast of older operator sets takes them. What makes reals of such constants is replaced by an
operator that says of what shape they are.
"""

Shapes = dict[str, onnx.TypeProto]
"""Types by name of the value; what is not known of a shape is left open."""


def patience(nodes: int) -> float:
    """Seconds in which onnx looks through that many nodes even on a busy machine."""
    return 10.0 + nodes / 200.0


def infer(proto: onnx.ModelProto) -> bytes:
    """Types of all that the nodes write, packed; what the model declares of inner values and
    outputs is dropped. proto: without weights, changed on the way. Raises ForeignError, naming the
    node, where the model is wrong.

    For a child process (`in_child`), whose memory may be changed and whose end does no harm.
    """
    found = _infer(proto)
    while _cut_behind_pool(proto.graph, found):
        found = _infer(proto)
    for field in ("node", "initializer"):
        found.ClearField(field)
    return found.SerializeToString()


def unpacked(data: bytes) -> Shapes:
    """What `infer` packed."""
    return _types(onnx.GraphProto.FromString(data))


def _types(graph: onnx.GraphProto) -> Shapes:
    return {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}


def _infer(proto: onnx.ModelProto) -> onnx.GraphProto:
    del proto.graph.value_info[:]
    _convert_as_casts(proto.graph)
    _normalise_as_identities(proto.graph)
    inputs = {value.name for value in proto.graph.input}
    for output in proto.graph.output:
        # What onnx knows of an output hides what it knows of an input of that name.
        if output.name not in inputs and output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    with complaints():
        try:
            return _inferred(proto, strict=True)
        except onnx.shape_inference.InferenceError as error:
            # A complaint of the body of a function that defines an operator is onnx's mistake.
            if str(error).count(_NESTED) < 2:
                raise ForeignError(_plain(str(error))) from error
            return _inferred(proto, strict=False)


def _convert_as_casts(graph: onnx.GraphProto) -> None:
    """Of ONNX Runtime's own Q and DQ nodes onnx knows nothing. Casts stand in for them, which
    convert numbers one by one as well: the standard's know 16 bits since opset 21 only.
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
                made = onnx.helper.make_node("RandomNormal", [], node.output, node.name)
                made.attribute.append(size)
                node.CopyFrom(made)
            continue
        to = kind if node.op_type == "QuantizeLinear" else onnx.TensorProto.FLOAT
        cast = onnx.helper.make_node("Cast", node.input[:1], node.output, node.name, to=to)
        node.CopyFrom(cast)


def _normalise_as_identities(graph: onnx.GraphProto) -> None:
    """What these make has type and shape of what they read, which onnx does not find out."""
    for node in graph.node:
        if node.domain in STANDARD and node.op_type in _NORMALISATIONS and node.input:
            node.CopyFrom(onnx.helper.make_node("Identity", node.input[:1], node.output, node.name))


def _inferred(proto: onnx.ModelProto, *, strict: bool) -> onnx.GraphProto:
    infer_shapes = onnx.shape_inference.infer_shapes
    return infer_shapes(proto, check_type=strict, strict_mode=strict, data_prop=True).graph


def _plain(text: str) -> str:
    """The first complaint: (op_type:Conv, node name: c): [ShapeInferenceError] Attribute ..."""
    line = text.split(_NESTED, 1)[-1].splitlines()[0]
    for noise in ("[ShapeInferenceError] ", "[TypeInferenceError] "):
        line = line.replace(noise, "")
    return line.rstrip(".")


def dims(kind: onnx.TypeProto) -> tuple[int, ...] | None:
    """The shape where every dimension is a known number, else None."""
    if not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    sizes = kind.tensor_type.shape.dim
    known = tuple([d.dim_value for d in sizes if d.HasField("dim_value")])
    return known if len(known) == len(sizes) else None


def _cut_behind_pool(graph: onnx.GraphProto, found: onnx.GraphProto) -> bool:
    """Make the results of the first pool with a window too many inputs of their right shape."""
    pools = [node for node in graph.node if node.op_type in POOLS]
    types = _types(found) if pools else {}
    for node in pools:
        right = _pooled(node, types)
        if right is not None and right != dims(types[node.output[0]]):
            for name in filter(None, node.output):
                kind = types[name].tensor_type.elem_type
                graph.input.append(onnx.helper.make_tensor_value_info(name, kind, right))
            graph.node.remove(node)
            return True
    return False


def _pooled(node: onnx.NodeProto, found: Shapes) -> tuple[int, ...] | None:
    """The shape that a pool rounding up makes, of windows that start before the end padding."""
    if node.domain not in STANDARD:
        return None
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    automatic = given.get("auto_pad", b"NOTSET") not in {b"NOTSET", b""}
    size = dims(found[node.input[0]]) if node.input[0] in found else None
    if not given.get("ceil_mode") or automatic or size is None or node.output[0] not in found:
        return None
    rank = len(size) - 2
    kernel, ones = given["kernel_shape"], [1] * rank
    strides, dilations = given.get("strides", ones), given.get("dilations", ones)
    pads = given.get("pads", [0] * 2 * rank)
    rows = []
    for axis, (n, k, s, d) in enumerate(zip(size[2:], kernel, strides, dilations, strict=True)):
        begin, end = pads[axis], pads[rank + axis]
        covered = -(-(n + begin + end - (k - 1) * d - 1) // s) + 1
        rows.append(min(covered, -(-(n + begin) // s)))
    return (*size[:2], *rows)


def infer_shapes(model: ir.Model) -> None:
    """Types and shapes of all results of a model, in place; what is known stays where nothing is
    inferred. Raises ForeignError where the model is wrong, or onnx crashes on it.
    """
    with _weightless(model) as proto:
        _give(proto.graph, _known_behind_others(model))
        found = infer_in_child(proto)
    for node in model.graph:
        for value in node.outputs:
            if value.name in found:
                adopt(value, found[value.name])


def _known_behind_others(model: ir.Model) -> dict[str, onnx.ValueInfoProto]:
    """Results of operators of other domains whose types and shapes were found otherwise: onnx finds
    nothing of them.
    """
    return {
        value.name or "": ir.serde.serialize_value(value)
        for node in model.graph
        if node.domain not in STANDARD and node.op_type not in PAIRS
        for value in node.outputs
        if value.dtype is not None and value.shape is not None and value.shape.is_static()
    }


def _give(graph: onnx.GraphProto, known: dict[str, onnx.ValueInfoProto]) -> None:
    """Make these results inputs instead."""
    if not known:
        return
    nodes = list(graph.node)
    graph.ClearField("node")
    for node in nodes:
        graph.input.extend(known[name] for name in node.output if name in known)
        left = ["" if name in known else name for name in node.output]
        if any(left):
            node.output[:] = left
            graph.node.append(node)


def infer_in_child(proto: onnx.ModelProto) -> Shapes:
    """`infer`, where it does no harm; the model stays."""
    found = in_child(
        lambda: infer(proto),
        seconds=patience(len(proto.graph.node)),
        memory_bytes=MEMORY_BYTES,
    )
    return unpacked(found)


def adopt(value: ir.Value, kind: onnx.TypeProto) -> None:
    """Type and shape of one value, where inference knows any."""
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
    """Element type and shape of a packed TypeProto that tells both, else None. Networks repeat few
    of them often; a frozen shape may belong to many values.
    """
    kind = onnx.TypeProto.FromString(packed)
    known = dims(kind)
    if known is None or not kind.tensor_type.elem_type:
        return None
    return ir.DataType(kind.tensor_type.elem_type), ir.Shape(known, frozen=True)


@contextmanager
def _weightless(model: ir.Model) -> Generator[onnx.ModelProto]:
    """The model as a message, with all but small constants as inputs."""
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
