"""What a model must be before anything else reads it; every rule is one line for the user.

`check_file` looks at the message as it was read: operators' version, inputs, weights. onnx's own
checker and its inference come next (`onnx_checks.py`). `check_network` looks at what is left when
constants are computed: kinds of values, shapes, attributes of windows. `budget.py`: sizes.
"""

from collections import Counter
from collections.abc import Collection
from typing import Any

import onnx
import onnx_ir as ir

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
"""Models below are converted upwards to this; newer ones keep their opset."""

_KNOWN_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}
_ONLY_TENSORS = "only tensors of numbers can be compiled"
_CHECK = "check the export with onnx.checker"
_NAMED = 3
_LAYOUT_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")

IN_TRAINING = "it is in training mode: each image would be normalised by statistics of its own"
EVALUATION = "export the network in evaluation mode (model.eval() in PyTorch)"


def check_file(
    proto: onnx.ModelProto, where: str, sizes: Sizes = NO_SIZES, *, budget: float = 1.0
) -> None:
    """Raises ModelError for what onnx need not look at any more. Dynamic dimensions get the sizes
    that are given, a dynamic batch becomes 1, sparse weights become dense (up to `budget` times the
    usual size).
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
            where, f"output {name!r} stands {times} times among its outputs", "list it once"
        )
    _check_weights(proto.graph, where)


def not_onnx(where: str, reason: str) -> ModelError:
    """The file is something else."""
    return ModelError(where, f"this is not an ONNX model, {reason}", "export the network to ONNX")


def _check_texts(message: Any, where: str) -> None:
    """All names of a message are UTF-8: what is not is read as bytes, and can never be written.

    Looks at no weights, which it would copy.
    """
    for field, value in message.ListFields():
        if type(value) is str:
            continue
        kind = field.type
        if kind == field.TYPE_STRING:
            for one in (value,) if type(value) is bytes else value:
                if type(one) is bytes:
                    raise not_onnx(where, f"{one!r} in it is no text")
        elif kind == field.TYPE_MESSAGE and field.name != "initializer":
            for one in (value,) if hasattr(value, "ListFields") else value:
                _check_texts(one, where)


def opset_of(proto: onnx.ModelProto) -> int | None:
    """The version of the standard operators."""
    return next((o.version for o in proto.opset_import if o.domain in STANDARD), None)


def _check_opset(proto: onnx.ModelProto, where: str) -> None:
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
    """Operators that ONNX Runtime's optimiser writes for one kind of processor: their weights are
    packed for its vectors.
    """
    found = Counter(n.op_type for n in graph.node if n.domain in _LAYOUT_DOMAINS)
    if found:
        domain = next(n.domain for n in graph.node if n.domain in _LAYOUT_DOMAINS)
        named = ", ".join(f"{name} ({count})" for name, count in found.most_common(_NAMED))
        raise ModelError(
            where,
            f"ONNX Runtime's optimiser has packed it for one kind of processor ({domain}: {named})",
            "save it with graph_optimization_level=ORT_ENABLE_BASIC (or ORT_ENABLE_EXTENDED) "
            "instead of ORT_ENABLE_ALL, or give the model that it was made from",
        )


def _fix_input(value: onnx.ValueInfoProto, where: str) -> None:
    kind = value.type.WhichOneof("value")
    tensor = value.type.tensor_type
    if kind != "tensor_type" or tensor.elem_type == onnx.TensorProto.STRING:
        what = "string tensor" if kind == "tensor_type" else str(kind).removesuffix("_type")
        raise ModelError(
            where, f"input {value.name!r} is a {what}", "only tensors of numbers can be compiled"
        )
    if not tensor.HasField("shape"):
        raise ModelError(
            where, f"input {value.name!r} has no shape", f"give one with --shape {value.name}=1,…"
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
    """What fixes a dynamic dimension."""
    by_name = f"--dim {dim.dim_param}=… or " if dim.dim_param else ""
    return f"{by_name}--shape {value.name}={shape_text(value)}, all in numbers"


def _check_weights(graph: onnx.GraphProto, where: str) -> None:
    """What the checker would say of weights if it saw them."""
    names: set[str] = set()
    for weight in graph.initializer:
        wrong = _mistake(weight, names)
        if wrong is not None:
            raise ModelError(where, wrong, "check the export with onnx.checker")
        names.add(weight.name)


def _mistake(weight: onnx.TensorProto, names: Collection[str]) -> str | None:
    """names: of the weights before."""
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
    """Inputs whose first size the file leaves open."""
    shapes = {v.name: v.type.tensor_type.shape.dim for v in proto.graph.input}
    first = {name: dims[0] for name, dims in shapes.items() if dims}
    return frozenset(n for n, d in first.items() if not d.HasField("dim_value") or d.dim_value < 0)


def check_network(model: ir.Model, where: str, batches: Collection[str] = ()) -> None:
    """Raises ModelError, naming the node, for what neither a machine nor the host can run. batches:
    see `dynamic_batches`.
    """
    _check_domains(model, where)
    for value in model.graph.initializers.values():
        stored = value.const_value  # which need not be what the file declares
        if stored and stored.dtype == ir.DataType.STRING and (uses := [*value.uses()]):
            what = f"its operand {value.name!r} holds strings"
            raise ModelError(_place(uses[0].node, where), what, _ONLY_TENSORS)
        if (found := mistake_of_constant(value)) is not None:
            raise ModelError(_place(found[0], where), found[1], _CHECK)
    for node in model.graph:
        wrong = _mistake_of_results(node) or _mistake_of_node(node)
        if wrong is not None:
            raise ModelError(_place(node, where), *wrong)
    _check_machine_operators(model, where, batches)


def _check_domains(model: ir.Model, where: str) -> None:
    """Operators that ONNX Runtime cannot load run nowhere, and nothing is known of what they make:
    what comes next would blame that.
    """
    refuse_left_over(model, where)
    foreign = Counter(
        f"{n.domain}:{n.op_type}" for n in model.graph if n.domain not in HOST_DOMAINS
    )
    if foreign:
        named = ", ".join(f"{name} ({count})" for name, count in foreign.most_common(_NAMED))
        more = f" and {len(foreign) - _NAMED} others" if len(foreign) > _NAMED else ""
        raise ModelError(
            where,
            f"it has operators of a library that ONNX Runtime cannot load: {named}{more}",
            "export it in operators of the ONNX standard (a quantiser's as QuantizeLinear and "
            "DequantizeLinear)",
        )


def _place(node: ir.Node, where: str) -> str:
    return f"{where}: node {node.name!r} ({node.op_type})"


def _mistake_of_results(node: ir.Node) -> tuple[str, str] | None:
    """What is wrong with results that are used, and what would help."""
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
    if holds_graphs(node) and (found := why_not(node)) is not None:
        why, help_ = found
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
    """Whether the statistics that training has found are there, and would go unused. (Constants are
    normalised by their own on purpose.)
    """
    training = node.attributes.get_int("training_mode", 0) == 1
    if not training or not is_standard(node, "BatchNormalization"):
        return False
    x, _, _, *found = [constant(operand(node, i)) for i in range(5)]
    return x is None and all(data is not None for data in found)


def _mistake_of_texts(node: ir.Node) -> str | None:
    """Standard operators have texts only; onnx's checker looks at few of them."""
    if node.domain in STANDARD:
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.STRING and isinstance(attribute.value, bytes):
                return f"its {attribute.name} is {attribute.value!r}, which is no text"
    return None


def _check_machine_operators(model: ir.Model, where: str, batches: Collection[str]) -> None:
    """A network of convolutions that would run on the host alone, and need not, is refused."""
    convolutions = standard_nodes(model.graph, *CONVOLUTIONS)
    weighted = any(constant(operand(n, 1)) is not None for n in convolutions)
    for value in model.graph.inputs if weighted else ():
        shape = static_shape(value)
        if shape is not None and len(shape) == 4 and shape[0] != 1:
            what = f"input {value.name!r} has batch {shape[0]}, networks are compiled for batch 1"
            help_ = (
                "export it with batch 1 or a dynamic batch, and let the program run "
                f"{shape[0]} images together with compile --batch {shape[0]}"
            )
            if value.name in batches:
                help_ = (
                    "the file leaves it open: give no size for it (1 in --shape), and let a "
                    f"program run several images together with compile --batch {shape[0]}"
                )
            raise ModelError(where, what, help_)
