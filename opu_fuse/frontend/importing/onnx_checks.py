"""Runs onnx's checker, version converter and shape inference on a model file.

They run in child processes (`sandbox.py`), since they may abort. They get the model without its
weights, since each of them copies a model several times.
"""

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import onnx
import onnx.inliner
from msgspec import Struct

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.old_opsets import check_modes, restore_semantics
from opu_fuse.frontend.importing.recognise_norms import RMS_OPSET, spells_rms
from opu_fuse.frontend.importing.validate import TARGET_OPSET, opset_of
from opu_fuse.model.inference import LARGE, MEMORY_BYTES, Shapes, infer, patience, unpacked
from opu_fuse.process.sandbox import (
    ForeignError,
    complaints,
    first_line,
    in_child,
    in_child_concurrently,
)


class Findings(Struct, frozen=True, kw_only=True):
    """Results of onnx on one model.

    shapes: waits for shape inference and returns the types of all node results, as far as they can
    be inferred. Call it once.
    declared: types that the file declares for inner values and outputs.
    converted: the model without weights at a newer opset (`take`, `_upgraded`); None if it keeps
    its own.
    """

    shapes: Callable[[], Shapes]
    declared: Shapes
    converted: onnx.ModelProto | None


@contextmanager
def examined(proto: onnx.ModelProto, where: str, *, sized: bool = False) -> Generator[Findings]:
    """Check a model, upgrade it to TARGET_OPSET if it is older, and infer its shapes.

    Inference runs concurrently with the block. The functions of the model get its operator
    sets. sized: whether the user has set sizes (for messages). Raises ModelError if onnx rejects
    the model, crashes, or exceeds its time limit.
    """
    declared = _declared(proto.graph)
    weightless = without_weights(proto)
    limits: dict[str, Any] = {
        "seconds": patience(len(proto.graph.node)),
        "memory_bytes": MEMORY_BYTES,
    }
    onnx.defs.has("Conv")  # builds onnx's schema tables before the fork, so that no child has to
    with _about(where, sized=sized):
        upgraded = in_child(lambda: _upgraded(weightless, where), **limits)
    converted = onnx.ModelProto.FromString(upgraded) if upgraded else None
    with in_child_concurrently(lambda: infer(converted or weightless), **limits) as answer:
        _share_opsets(proto)

        def shapes() -> Shapes:
            with _about(where, sized=sized):
                return unpacked(answer())

        yield Findings(shapes=shapes, declared=declared, converted=converted)


def _declared(graph: onnx.GraphProto) -> Shapes:
    """Types that the file declares for inner values and outputs.

    An output that is also an input gets the type of the input (mutates the graph).
    """
    declared = {v.name: v.type for v in graph.value_info}
    input_types = {v.name: v.type for v in graph.input}
    for output in graph.output:
        declared[output.name] = onnx.TypeProto()
        declared[output.name].CopyFrom(output.type)
        if output.name in input_types:
            output.type.CopyFrom(input_types[output.name])
    return declared


@contextmanager
def _about(where: str, *, sized: bool) -> Generator[None]:
    """Raise a ModelError about the graph for a ForeignError inside the block."""
    what, help_ = "the graph is invalid", "check the export with onnx.checker"
    if sized:
        what = f"{what} at these sizes"
        help_ = f"give sizes that it can take (often multiples of 32), or {help_}"
    try:
        yield
    except ForeignError as error:
        raise ModelError(where, f"{what} ({error})", help_) from error


def without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model in which weights of LARGE elements or more are graph inputs."""
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
    """The serialised model at TARGET_OPSET, or at that of RMSNorms that it spells out; empty if it
    is not older.
    """
    with complaints():
        if not all(o.type.tensor_type.HasField("shape") for o in proto.graph.output):
            # The checker requires shapes of outputs, ONNX Runtime does not.
            proto = onnx.shape_inference.infer_shapes(proto)
        onnx.checker.check_model(proto)
    opset = opset_of(proto)
    has_rms = opset is not None and opset < RMS_OPSET and spells_rms(proto.graph)
    if opset is None or (opset >= TARGET_OPSET and not has_rms):
        return b""
    if proto.functions:  # the converter does not convert functions
        _share_opsets(proto)
        proto = onnx.inliner.inline_local_functions(proto)
    if opset < TARGET_OPSET:
        check_modes(proto, where, opset)
        proto = _converted(proto, where, opset)
        restore_semantics(proto, where, opset)
    return (_with_rms(proto) if has_rms else proto).SerializeToString()


def _with_rms(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model at RMS_OPSET; as it is if onnx cannot convert it."""
    try:
        return onnx.version_converter.convert_version(proto, RMS_OPSET)
    except Exception:  # noqa: BLE001  its C++ code raises exceptions of many types
        return proto


def _share_opsets(proto: onnx.ModelProto) -> None:
    """Set the opset versions of functions to those of the model (mutates it).

    The inliner requires equal versions. The checker has verified before that the operators of the
    functions are the same in both versions.
    """
    opsets = {opset.domain: opset.version for opset in proto.opset_import}
    for function in proto.functions:
        for opset in function.opset_import:
            opset.version = opsets.get(opset.domain, opset.version)


def _converted(proto: onnx.ModelProto, where: str, opset: int) -> onnx.ModelProto:
    """The model at TARGET_OPSET. Raises ModelError if onnx cannot convert it."""
    try:
        return onnx.version_converter.convert_version(proto, TARGET_OPSET)
    except Exception as error:  # its C++ code raises exceptions of many types
        raise ModelError(
            where,
            f"opset {opset} cannot be upgraded to {TARGET_OPSET} ({first_line(error)})",
            f"export it again with opset {TARGET_OPSET} or later",
        ) from error


def take(proto: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    """Replace the nodes of a model by converted ones and add the constants that these need.

    The functions are dropped, since the converted nodes have them inlined.
    """
    proto.ClearField("functions")
    graph, known = proto.graph, {w.name for w in proto.graph.initializer}
    graph.ClearField("node")
    graph.node.extend(converted.graph.node)
    graph.initializer.extend(w for w in converted.graph.initializer if w.name not in known)
    proto.ClearField("opset_import")
    proto.opset_import.extend(converted.opset_import)
    proto.ir_version = converted.ir_version
