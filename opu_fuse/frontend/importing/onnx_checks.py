"""What onnx finds out of a file: whether it is valid, the same at a later opset, all shapes.

All in child processes (`sandbox.py`), which see the model without its weights: the checker, the
version converter and inference copy what they look at several times, and may abort.
"""

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import onnx
import onnx.inliner
from msgspec import Struct

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.old_opsets import check_modes, mend
from opu_fuse.frontend.importing.validate import TARGET_OPSET, opset_of
from opu_fuse.model.inference import LARGE, MEMORY_BYTES, Shapes, infer, patience, unpacked
from opu_fuse.process.sandbox import ForeignError, beside, complaints, first_line, in_child


class Findings(Struct, frozen=True, kw_only=True):
    """shapes: waits for the types of all that nodes write, as far as they can be inferred (once).
    declared: what the file says of inner values and outputs. converted: the model without weights
    at TARGET_OPSET, where it was older (`take`).
    """

    shapes: Callable[[], Shapes]
    declared: Shapes
    converted: onnx.ModelProto | None


@contextmanager
def examined(proto: onnx.ModelProto, where: str, *, sized: bool = False) -> Generator[Findings]:
    """Check a model, convert it to TARGET_OPSET if it is older, and infer its shapes while the
    block goes on. Its functions get its operator sets, in place.

    sized: the user has given sizes. Raises ModelError where onnx finds the model wrong, crashes, or
    comes to no end.
    """
    declared = _declared(proto.graph)
    weightless = without_weights(proto)
    limits: dict[str, Any] = {
        "seconds": patience(len(proto.graph.node)),
        "memory_bytes": MEMORY_BYTES,
    }
    onnx.defs.has("Conv")  # makes its tables of operators, once, which each child would make again
    with _about(where, sized=sized):
        upgraded = in_child(lambda: _upgraded(weightless, where), **limits)
    converted = onnx.ModelProto.FromString(upgraded) if upgraded else None
    with beside(lambda: infer(converted or weightless), **limits) as answer:
        _share_opsets(proto)

        def shapes() -> Shapes:
            with _about(where, sized=sized):
                return unpacked(answer())

        yield Findings(shapes=shapes, declared=declared, converted=converted)


def _declared(graph: onnx.GraphProto) -> Shapes:
    """What the file says of inner values and outputs; an output that is an input has the input's
    type from here on, whatever the file says.
    """
    declared = {v.name: v.type for v in graph.value_info}
    given = {v.name: v.type for v in graph.input}
    for output in graph.output:
        declared[output.name] = onnx.TypeProto()
        declared[output.name].CopyFrom(output.type)
        if output.name in given:
            output.type.CopyFrom(given[output.name])
    return declared


@contextmanager
def _about(where: str, *, sized: bool) -> Generator[None]:
    what, help_ = "the graph is invalid", "check the export with onnx.checker"
    if sized:
        what = f"{what} at the sizes given"
        help_ = f"give sizes that it can take (often multiples of 32), or {help_}"
    try:
        yield
    except ForeignError as error:
        raise ModelError(where, f"{what} ({error})", help_) from error


def without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all but small weights as inputs."""
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
            initializer=[w for w in graph.initializer if math.prod(w.dims) < LARGE],
        ),
    )


def _upgraded(proto: onnx.ModelProto, where: str) -> bytes:
    """The model at TARGET_OPSET where it was older; nothing where it can stay."""
    with complaints():
        if not all(o.type.tensor_type.HasField("shape") for o in proto.graph.output):
            proto = onnx.shape_inference.infer_shapes(proto)  # ONNX Runtime asks for none either
        onnx.checker.check_model(proto)
    opset = opset_of(proto)
    if opset is None or opset >= TARGET_OPSET:
        return b""
    if proto.functions:  # conversion would leave them as they are
        _share_opsets(proto)
        proto = onnx.inliner.inline_local_functions(proto)
    check_modes(proto, where, opset)
    proto = _converted(proto, where, opset)
    mend(proto, where, opset)
    return proto.SerializeToString()


def _share_opsets(proto: onnx.ModelProto) -> None:
    """Give functions the operator sets of a model in which the checker has found their operators
    to be the same: inlining wants equal numbers.
    """
    opsets = {opset.domain: opset.version for opset in proto.opset_import}
    for function in proto.functions:
        for opset in function.opset_import:
            opset.version = opsets.get(opset.domain, opset.version)


def _converted(proto: onnx.ModelProto, where: str, opset: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(proto, TARGET_OPSET)
    except Exception as error:  # its C++ raises what it likes
        raise ModelError(
            where,
            f"opset {opset} cannot be upgraded to {TARGET_OPSET} ({first_line(error)})",
            f"export it again with opset {TARGET_OPSET} or later",
        ) from error


def take(proto: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    """Put the converted nodes, and constants that they need, in place of the old ones; these have
    no functions.
    """
    proto.ClearField("functions")
    graph, known = proto.graph, {w.name for w in proto.graph.initializer}
    graph.ClearField("node")
    graph.node.extend(converted.graph.node)
    graph.initializer.extend(w for w in converted.graph.initializer if w.name not in known)
    proto.ClearField("opset_import")
    proto.opset_import.extend(converted.opset_import)
    proto.ir_version = converted.ir_version
