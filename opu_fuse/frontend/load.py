"""From a file or an object to a plain float or QDQ model.

Every mistake of the user ends here with one line. What comes out: opset >= 17, batch 1, known
shapes, all nodes named, constants as initialisers, no functions, nothing computable left over.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import external_data_helper
from onnx_ir.passes import common

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import own_tensors
from opu_fuse.frontend.fold import fold_constants
from opu_fuse.frontend.naming import name_everything
from opu_fuse.frontend.shapes import (
    add_inferred,
    fix_input_shapes,
    infer_shapes,
    without_weights,
)

OLDEST_OPSET = 7
TARGET_OPSET = 17
"""Models below are converted upwards to this; newer ones keep their opset."""

ModelLike = str | Path | ir.Model | onnx.ModelProto


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """model: our own copy, normalised; where: how messages name it.

    source_hash: sha256 of the bytes that were read (of the serialised model when it came as an
    object).
    """

    model: ir.Model
    where: str
    source_hash: str


def load_model(model: ModelLike) -> ir.Model:
    """Read and normalise a model; see `load`."""
    return load(model).model


def load(model: ModelLike) -> Loaded:
    """Read and normalise a model; the caller's object is not changed.

    Raises ModelError: missing file, not ONNX, data missing inside or beside the file, opset below 7
    or newer than the installed onnx package, invalid graph, dynamic shape other than the batch,
    batch other than 1, float64 or float16 weights.
    """
    where, data, folder = _read(model)
    proto, source_hash = _parse(where, data), hashlib.sha256(data).hexdigest()
    del data  # as large as the weights, which are in `proto` now
    _check_opset(where, proto)
    _load_external_data(where, proto, folder)
    proto = _upgrade(where, proto)
    _check_weights(proto.graph, where)
    weightless = without_weights(proto)
    _check_graph(weightless, where)
    loaded = ir.from_proto(proto)
    _own_tensors(loaded, where)
    add_inferred(loaded, weightless)
    name_everything(loaded)
    common.InlinePass()(loaded)
    common.RemoveInitializersFromInputsPass()(loaded)
    dynamic = fix_input_shapes(loaded, where)
    if dynamic or proto.functions:
        infer_shapes(loaded)
    if fold_constants(loaded):
        infer_shapes(loaded)
    name_everything(loaded)
    _check_types(loaded, where)
    return Loaded(model=loaded, where=where, source_hash=source_hash)


def _read(model: ModelLike) -> tuple[str, bytes, Path | None]:
    """How to call it, its bytes, and the folder of external data."""
    if isinstance(model, ir.Model):
        model = ir.to_proto(model)
    if isinstance(model, onnx.ModelProto):
        name = f"model {model.graph.name!r}" if model.graph.name else "model"
        return name, model.SerializeToString(deterministic=True), None
    path = Path(model)
    if not path.exists():
        raise ModelError(str(path), "there is no such file", "check the path of the ONNX model")
    if not path.is_file():
        raise ModelError(str(path), "this is not a file", "name the .onnx file itself")
    try:
        return str(path), path.read_bytes(), path.parent
    except OSError as error:
        raise ModelError(
            str(path), f"cannot be read ({error.strerror})", "check the file"
        ) from error


def _parse(where: str, data: bytes) -> onnx.ModelProto:
    try:
        proto = onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf has its own error class, and is no dependency of ours
        raise _not_onnx(where, "its bytes are no ONNX protobuf") from error
    if not proto.HasField("graph") or not proto.opset_import or not proto.graph.output:
        raise _not_onnx(where, "it holds no ONNX graph")
    return proto


def _not_onnx(where: str, reason: str) -> ModelError:
    return ModelError(where, f"this is not an ONNX model, {reason}", "export the network to ONNX")


def _check_opset(where: str, proto: onnx.ModelProto) -> None:
    newest = onnx.defs.onnx_opset_version()
    opset = next((o.version for o in proto.opset_import if o.domain in {"", "ai.onnx"}), None)
    if opset is None:
        raise _not_onnx(where, "it imports no standard operators")
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


def _load_external_data(where: str, proto: onnx.ModelProto, folder: Path | None) -> None:
    if not any(external_data_helper.uses_external_data(t) for t in proto.graph.initializer):
        return
    if folder is None:
        raise ModelError(
            where,
            "its weights are external data, and an object in memory has no folder to find them in",
            "pass the path of the .onnx file",
        )
    try:
        external_data_helper.load_external_data_for_model(proto, str(folder))
    except (onnx.checker.ValidationError, OSError, ValueError) as error:
        raise ModelError(
            where,
            f"its external data cannot be read ({_first_line(error)})",
            "keep the data file beside the .onnx file",
        ) from error


def _upgrade(where: str, proto: onnx.ModelProto) -> onnx.ModelProto:
    opset = next(o.version for o in proto.opset_import if o.domain in {"", "ai.onnx"})
    if opset >= TARGET_OPSET:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, TARGET_OPSET)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise ModelError(
            where,
            f"opset {opset} cannot be upgraded to {TARGET_OPSET} ({_first_line(error)})",
            f"export it again with opset {TARGET_OPSET} or later",
        ) from error


def _check_weights(graph: onnx.GraphProto, where: str) -> None:
    """What the checker would say of weights if it saw them (`without_weights`)."""
    if graph.sparse_initializer:
        name = graph.sparse_initializer[0].values.name
        raise ModelError(where, f"weight {name!r} is sparse", "export dense weights")
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
    if weight.name in names:
        return f"two weights are called {weight.name!r}"
    if any(size < 0 for size in weight.dims):
        return f"weight {weight.name!r} has the shape {list(weight.dims)}"
    if weight.data_type not in _KNOWN_TYPES:
        return f"weight {weight.name!r} has data type {weight.data_type}, which ONNX has not"
    return None


_KNOWN_TYPES = frozenset(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


def _check_graph(proto: onnx.ModelProto, where: str) -> None:
    try:
        onnx.checker.check_model(proto)
    except Exception as error:  # the checker raises more than its own class
        raise ModelError(
            where,
            f"the graph is invalid ({_first_line(error)})",
            "check the export with onnx.checker",
        ) from error


def _own_tensors(model: ir.Model, where: str) -> None:
    try:
        own_tensors(model)
    except ValueError as error:
        raise ModelError(
            where,
            f"data are missing or too many ({_first_line(error)})",
            "copy or export the file again",
        ) from error


_WIDE = {
    ir.DataType.DOUBLE: "float64",
    ir.DataType.FLOAT16: "float16",
    ir.DataType.BFLOAT16: "bfloat16",
}


def _check_types(model: ir.Model, where: str) -> None:
    graph = model.graph
    for kind, values in (("weight", graph.initializers.values()), ("input", graph.inputs)):
        for value in values:
            if value.dtype is not None and value.dtype in _WIDE:
                raise ModelError(
                    where,
                    f"{kind} {value.name!r} is {_WIDE[value.dtype]}, only float32 is supported",
                    "cast the model to float32 before the export",
                )


def _first_line(error: BaseException) -> str:
    """What a library complained about, without the place in its own sources."""
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    return line.rsplit("failed: ", 1)[-1]
