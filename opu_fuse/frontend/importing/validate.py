"""Validates a model before compilation. Every error is one line for the user.

`check_file` checks the protobuf message as read: opset, inputs, weights. Then onnx's own checker
and shape inference run (`onnx_checks.py`). After constant folding `check_network` checks the types
of values, shapes and window attributes. `size_limits.py` checks sizes.
"""

from collections import Counter
from collections.abc import Collection
from typing import Any

import onnx
import onnx_ir as ir

from opu_fuse.choices import option
from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import (
    constant,
    is_standard,
    operand,
    standard_nodes,
    static_shape,
)
from opu_fuse.frontend.importing.decompose.control_flow import why_not
from opu_fuse.frontend.importing.decompose.qonnx import refuse_left_over
from opu_fuse.frontend.importing.dynamic_dims import (
    NO_SIZES,
    Sizes,
    fix_sizes,
    forget_unknown,
    shape_text,
)
from opu_fuse.frontend.importing.sparse import make_dense
from opu_fuse.frontend.importing.value_checks import mistake_of_constant, mistake_of_numbers
from opu_fuse.frontend.importing.window_checks import mistake_of_window
from opu_fuse.frontend.qdq import mistake_of_scales
from opu_fuse.model.folding import holds_graphs
from opu_fuse.model.operator_sets import CONVOLUTIONS
from opu_fuse.model.opsets import HOST_DOMAINS, STANDARD

OLDEST_OPSET = 7
TARGET_OPSET = 17
"""Models of an older opset are upgraded to this one. Newer ones keep their opset."""

_KNOWN_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
_ONLY_TENSORS = "only tensors of numbers can be compiled"
_CHECK = "check the export with onnx.checker"
_NAMED = 3
"""Most operators that a message names; the others are counted."""
_LAYOUT_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")

IN_TRAINING = "it is in training mode: each image would be normalised by statistics of its own"
EVALUATION = "export the network in evaluation mode (model.eval() in PyTorch)"


def check_file(
    proto: onnx.ModelProto, where: str, sizes: Sizes = NO_SIZES, *, budget: float = 1.0
) -> None:
    """Check the message of a model file, and fix its input shapes (mutates it).

    Dynamic dimensions get those of `sizes`, a dynamic batch becomes 1, and sparse weights become
    dense (up to `budget` times the usual size). Raises ModelError for an invalid file.
    """
    if not proto.HasField("graph") or not proto.opset_import or not proto.graph.output:
        raise not_onnx(where, "it holds no ONNX graph")
    _check_texts(proto, where)
    _check_opset(proto, where)
    _check_layouts(proto.graph, where)
    make_dense(proto.graph, where, budget)
    weights = {weight.name for weight in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name not in weights]
    forget_unknown([*proto.graph.input, *proto.graph.output])
    fix_sizes([v for v in inputs if v.type.HasField("tensor_type")], sizes, where)
    for value in inputs:
        _fix_input(value, where)
    outputs = Counter(value.name for value in proto.graph.output)
    name, times = outputs.most_common(1)[0]
    if times > 1:
        raise ModelError(
            where, f"output {name!r} is listed {times} times as an output", "list it once"
        )
    _check_weights(proto.graph, where)


def not_onnx(where: str, reason: str) -> ModelError:
    """The error for a file that is no ONNX model."""
    return ModelError(where, f"this is not an ONNX model, {reason}", "export the network to ONNX")


def _check_texts(message: Any, where: str) -> None:
    """Raise ModelError for text in a message that is not UTF-8.

    Protobuf reads such text as bytes and cannot serialise it again. Weights are skipped, since the
    check would copy them.
    """
    for field, value in message.ListFields():
        if type(value) is str:
            continue
        kind = field.type
        if kind == field.TYPE_STRING:
            for text in (value,) if type(value) is bytes else value:
                if type(text) is bytes:
                    raise not_onnx(where, f"{text!r} in it is no text")
        elif kind == field.TYPE_MESSAGE and field.name != "initializer":
            for inner in (value,) if hasattr(value, "ListFields") else value:
                _check_texts(inner, where)


def opset_of(proto: onnx.ModelProto) -> int | None:
    """Version of the standard operator set; None if it is not imported."""
    return next((o.version for o in proto.opset_import if o.domain in STANDARD), None)


def _check_opset(proto: onnx.ModelProto, where: str) -> None:
    """Raise ModelError for an opset that is missing, too old, or newer than that of onnx."""
    newest = onnx.defs.onnx_opset_version()
    opset = opset_of(proto)
    if opset is None:
        raise not_onnx(where, "it imports no standard operators")
    if opset < OLDEST_OPSET:
        raise ModelError(
            where,
            f"opset {opset} is older than {OLDEST_OPSET}, the oldest that is supported",
            f"export it again with opset {TARGET_OPSET}",
        )
    if opset > newest:
        raise ModelError(
            where,
            f"opset {opset} is newer than {newest}, the newest that onnx {onnx.__version__} knows",
            f"export it with opset {newest} or lower, or upgrade the onnx package",
        )


def _check_layouts(graph: onnx.GraphProto, where: str) -> None:
    """Raise ModelError for operators that ONNX Runtime's optimiser writes for one type of CPU.

    Their weights are packed for its vector units.
    """
    counts = Counter(n.op_type for n in graph.node if n.domain in _LAYOUT_DOMAINS)
    if counts:
        domain = next(n.domain for n in graph.node if n.domain in _LAYOUT_DOMAINS)
        named = ", ".join(f"{name} ({count})" for name, count in counts.most_common(_NAMED))
        raise ModelError(
            where,
            f"ONNX Runtime's optimiser has packed it for one kind of processor ({domain}: {named})",
            "save it with graph_optimization_level=ORT_ENABLE_BASIC (or ORT_ENABLE_EXTENDED) "
            "instead of ORT_ENABLE_ALL, or give the model that it was converted from",
        )


def _fix_input(value: onnx.ValueInfoProto, where: str) -> None:
    """Set a dynamic batch to 1. Raises ModelError unless the input is a static tensor."""
    kind = value.type.WhichOneof("value")
    tensor = value.type.tensor_type
    if kind != "tensor_type" or tensor.elem_type == onnx.TensorProto.STRING:
        what = "string tensor" if kind == "tensor_type" else str(kind).removesuffix("_type")
        raise ModelError(
            where, f"input {value.name!r} is a {what}", "only tensors of numbers can be compiled"
        )
    if not tensor.HasField("shape"):
        raise ModelError(
            where,
            f"input {value.name!r} has no shape",
            f"give one with {option('shapes', '1,…', key=value.name)}",
        )
    for axis, dim in enumerate(tensor.shape.dim):
        if not dim.HasField("dim_value") and axis == 0:
            dim.dim_value = 1
        if not dim.HasField("dim_value"):
            label = f" ({dim.dim_param!r})" if dim.dim_param else ""
            raise ModelError(
                where,
                f"dimension {axis}{label} of input {value.name!r} is dynamic",
                f"fix it with {_options(value, dim)}",
            )
        if dim.dim_value < 0:
            raise ModelError(
                where,
                f"dimension {axis} of input {value.name!r} is {dim.dim_value}",
                "export it with fixed sizes",
            )


def _options(value: onnx.ValueInfoProto, dim: onnx.TensorShapeProto.Dimension) -> str:
    """The options that fix a dynamic dimension."""
    by_name = f"{option('dims', '…', key=dim.dim_param)} or " if dim.dim_param else ""
    return f"{by_name}{option('shapes', shape_text(value), key=value.name)}, all in numbers"


def _check_weights(graph: onnx.GraphProto, where: str) -> None:
    """Raise ModelError for invalid weights, which onnx's checker does not get."""
    names: set[str] = set()
    for weight in graph.initializer:
        wrong = _mistake(weight, names)
        if wrong is not None:
            raise ModelError(where, wrong, "check the export with onnx.checker")
        names.add(weight.name)


def _mistake(weight: onnx.TensorProto, names: Collection[str]) -> str | None:
    """Error text for an invalid weight, else None. names: of the preceding weights."""
    if not weight.name:
        return "a weight has no name"
    if isinstance(weight.name, bytes) or isinstance(weight.doc_string, bytes):
        return f"weight {weight.name!r} has a name or a description that is no text"
    if weight.name in names:
        return f"two weights are called {weight.name!r}"
    if any(size < 0 for size in weight.dims):
        return f"weight {weight.name!r} has the shape {list(weight.dims)}"
    if weight.data_type not in _KNOWN_TYPES:
        return f"weight {weight.name!r} has data type {weight.data_type}, which ONNX has not"
    return None


def dynamic_batches(proto: onnx.ModelProto) -> frozenset[str]:
    """Names of the inputs with a dynamic first dimension."""
    shapes = {v.name: v.type.tensor_type.shape.dim for v in proto.graph.input}
    first = {name: dims[0] for name, dims in shapes.items() if dims}
    return frozenset(n for n, d in first.items() if not d.HasField("dim_value") or d.dim_value < 0)


def check_network(model: ir.Model, where: str, batches: Collection[str] = ()) -> None:
    """Check a network after constant folding. batches: see `dynamic_batches`.

    Raises ModelError, naming the node, for what neither a machine nor the host CPU can run.
    """
    _check_domains(model, where)
    for value in model.graph.initializers.values():
        stored = value.const_value  # its type may differ from the declared one
        if stored and stored.dtype == ir.DataType.STRING and (uses := [*value.uses()]):
            what = f"its operand {value.name!r} holds strings"
            raise ModelError(_place(uses[0].node, where), what, _ONLY_TENSORS)
        if (mistake := mistake_of_constant(value)) is not None:
            raise ModelError(_place(mistake[0], where), mistake[1], _CHECK)
    for node in model.graph:
        wrong = _mistake_of_results(node) or _mistake_of_node(node)
        if wrong is not None:
            raise ModelError(_place(node, where), *wrong)
    _check_machine_operators(model, where, batches)


def _check_domains(model: ir.Model, where: str) -> None:
    """Raise ModelError for operators of domains that ONNX Runtime cannot load.

    No shapes are known after such an operator. Without this check the shapes would be reported
    instead of the operator.
    """
    refuse_left_over(model, where)
    unknown = Counter(
        f"{n.domain}:{n.op_type}" for n in model.graph if n.domain not in HOST_DOMAINS
    )
    if unknown:
        named = ", ".join(f"{name} ({count})" for name, count in unknown.most_common(_NAMED))
        more = f" and {len(unknown) - _NAMED} others" if len(unknown) > _NAMED else ""
        raise ModelError(
            where,
            f"it has operators of a library that ONNX Runtime cannot load: {named}{more}",
            "export it in operators of the ONNX standard (a quantiser's as QuantizeLinear and "
            "DequantizeLinear)",
        )


def _place(node: ir.Node, where: str) -> str:
    return f"{where}: node {node.name!r} ({node.op_type})"


def _mistake_of_results(node: ir.Node) -> tuple[str, str] | None:
    """(error, help) for results that are used but are no valid tensors; None if all are valid."""
    for value in node.outputs:
        if not (value.uses() or value.is_graph_output()):
            continue
        type_, shape = value.type, value.shape
        if type_ is not None and not isinstance(type_, ir.TensorType):
            kind = type(type_).__name__.removesuffix("Type").lower()
            return f"its result {value.name!r} is a {kind}", _ONLY_TENSORS
        if value.dtype == ir.DataType.STRING:
            return f"its result {value.name!r} holds strings", _ONLY_TENSORS
        dims = () if shape is None else shape.dims
        if min([d for d in dims if isinstance(d, int)], default=0) < 0:
            text = "x".join(map(str, dims))
            help_ = "check sizes and attributes (a window larger than its map?)"
            return f"its result {value.name!r} would be {text}", help_
    return None


def _mistake_of_node(node: ir.Node) -> tuple[str, str] | None:
    """(error, help) for an operator that cannot be compiled, else None."""
    if holds_graphs(node) and (refusal := why_not(node)) is not None:
        why, help_ = refusal
        return f"control flow cannot be compiled: {why}", help_
    if _is_in_training(node):
        return IN_TRAINING, EVALUATION
    wrong = (
        _mistake_of_texts(node)
        or mistake_of_window(node)
        or mistake_of_scales(node)
        or mistake_of_numbers(node)
    )
    return None if wrong is None else (wrong, _CHECK)


def _is_in_training(node: ir.Node) -> bool:
    """Whether a BatchNormalization in training mode would ignore its trained statistics.

    Constants are excluded: exporters standardise weights by their own statistics on purpose.
    """
    training = node.attributes.get_int("training_mode", 0) == 1
    if not training or not is_standard(node, "BatchNormalization"):
        return False
    x, _, _, *parameters = [constant(operand(node, i)) for i in range(5)]
    return x is None and all(data is not None for data in parameters)


def _mistake_of_texts(node: ir.Node) -> str | None:
    """Error text for a string attribute of a standard operator that is not UTF-8, else None.

    onnx's checker looks at few of these attributes.
    """
    if node.domain in STANDARD:
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.STRING and isinstance(attribute.value, bytes):
                return f"its {attribute.name} is {attribute.value!r}, which is no text"
    return None


def _check_machine_operators(model: ir.Model, where: str, batches: Collection[str]) -> None:
    """Raise ModelError for a static batch other than 1 of a convolutional network.

    The host CPU would run all of it, although `compile --batch` can run it on a machine.
    """
    convolutions = standard_nodes(model.graph, *CONVOLUTIONS)
    weighted = any(constant(operand(n, 1)) is not None for n in convolutions)
    for value in model.graph.inputs if weighted else ():
        shape = static_shape(value)
        if shape is not None and len(shape) == 4 and shape[0] != 1:
            what = f"input {value.name!r} has batch {shape[0]}, networks are compiled for batch 1"
            help_ = (
                "export it with batch 1 or a dynamic batch, and let the program run "
                f"{shape[0]} images together with {option('batch', shape[0])}"
            )
            if value.name in batches:
                help_ = (
                    f"the file leaves it open: give no size for it (1 in {option('shapes')}), and "
                    f"let a program run several images together with {option('batch', shape[0])}"
                )
            raise ModelError(where, what, help_)
