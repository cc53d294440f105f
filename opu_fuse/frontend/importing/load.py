"""Loads a file or object as a normalised float or QDQ model.

Every user error is reported here as a one-line ModelError. The normalised model has opset >= 17,
batch 1, static shapes, names for all nodes, constants as initialisers, no functions, and all
constants folded.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
from msgspec import Struct
from onnx import external_data_helper
from onnx_ir.passes import common

from opu_fuse.errors import ModelError
from opu_fuse.frontend.editing import own_tensors
from opu_fuse.frontend.importing import recognise_masks, recognise_norms, recognise_rotations
from opu_fuse.frontend.importing.decompose.contrib import own_domain
from opu_fuse.frontend.importing.decompose.standard import needs_decomposition, to_standard
from opu_fuse.frontend.importing.default_attributes import add_default_attributes
from opu_fuse.frontend.importing.dynamic_dims import NO_SIZES, Sizes
from opu_fuse.frontend.importing.float_widths import is_of_other_width, to_float32
from opu_fuse.frontend.importing.fold_constants import fold_constants, lift_constants
from opu_fuse.frontend.importing.node_names import name_everything
from opu_fuse.frontend.importing.onnx_checks import Findings, examined, take
from opu_fuse.frontend.importing.qoperator import convert_to_qdq, has_integer_operators
from opu_fuse.frontend.importing.runtime_shapes import measure_shapes
from opu_fuse.frontend.importing.shapes import (
    adopt_declared,
    contradictions,
    count_unknown,
    infer_shapes,
    set_inferred,
)
from opu_fuse.frontend.importing.size_limits import CONSTANT_ELEMENTS, check_budget
from opu_fuse.frontend.importing.tflite import is_tflite, to_onnx
from opu_fuse.frontend.importing.toposort import sort_nodes
from opu_fuse.frontend.importing.validate import (
    check_file,
    check_network,
    dynamic_batches,
    not_onnx,
)
from opu_fuse.frontend.pass_steps import nothing, step, step_with_result
from opu_fuse.model.names import KNOWN_KEY, names_of
from opu_fuse.model.opsets import IR_VERSION, runnable_opsets
from opu_fuse.process.sandbox import ForeignError, complaints, first_line

ModelLike = str | Path | ir.Model | onnx.ModelProto
_log = logging.getLogger(__name__)


class Loaded(Struct, frozen=True, kw_only=True):
    """A loaded model.

    model: normalised copy of the input.
    where: its name in messages.
    warnings: messages for the user. Each has been logged, too.
    source_hash: sha256 of the bytes of the file, or of the serialised object.
    """

    model: ir.Model
    where: str
    warnings: tuple[str, ...]
    source_hash: str


def load_model(model: ModelLike) -> ir.Model:
    """Read and normalise a model; see `load`."""
    return load(model).model


def load(model: ModelLike, *, budget: float = 1.0, sizes: Sizes = NO_SIZES) -> Loaded:
    """Read and normalise a model; the caller's object is not changed.

    budget: factor on the usual size limits (`size_limits.py`). sizes: of dynamic dimensions
    (`dynamic_dims.py`). Raises ModelError if the file cannot be read, is not valid ONNX, or has
    operators that neither a machine nor the host CPU can run (docs/models.md has the list).
    """
    return step_with_result("load", nothing(), lambda _: _load(model, budget, sizes))[1]


def _load(source: ModelLike, budget: float, sizes: Sizes) -> tuple[ir.Model, Loaded]:
    """The steps of `load`, in their order."""
    where, data, folder = _read(source)
    source_hash = hashlib.sha256(data).hexdigest()
    proto = parse_model(data, where)
    del data  # as large as the weights, which are in `proto` now
    batches = dynamic_batches(proto)  # before `check_file` fixes their sizes
    check_file(proto, where, sizes, budget=budget)
    _load_external_data(where, proto, folder)
    sort_nodes(proto.graph)  # onnx reports cycles later
    known = names_of(proto.graph)
    add_default_attributes(proto.graph)
    own_domain(proto)
    with examined(proto, where, sized=sizes != NO_SIZES) as findings:
        model = _from_proto(proto, where)
        if findings.converted is not None:
            take(proto, findings.converted)
            model = step("upgrade", model, lambda _: _from_proto(proto, where))
        shapes = findings.shapes()
    _own(model, where)
    set_inferred(model, shapes)
    name_everything(model)
    model.meta[KNOWN_KEY] = known
    common.RemoveInitializersFromInputsPass()(model)
    if proto.functions:
        step("inline", model, lambda model: _changed(model, common.InlinePass(), where))
    lift_constants(model)  # the next step reads scales and zero points
    if needs_decomposition(model) or has_integer_operators(model):
        step("spell out", model, lambda model: _convert(model, where))
    check_budget(model, where, budget)  # before anything is computed
    _, more_known = step_with_result(
        "constants", model, lambda model: (model, _fold(model, where, budget, findings))
    )
    if is_of_other_width(model):
        step("float32", model, lambda model: _changed(model, to_float32, where))
    if recognise_norms.may_be_norms(model):
        step("norms", model, lambda model: _changed(model, recognise_norms.recognise, where))
    if recognise_masks.may_be_masks(model):
        step("masks", model, lambda model: _changed(model, recognise_masks.recognise, where))
    if recognise_rotations.may_be_rotations(model):
        find = recognise_rotations.recognise
        step("rotations", model, lambda model: _changed(model, find, where))
    _stamp(model)
    check_network(model, where, batches)
    if more_known:
        check_budget(model, where, budget)
    warnings = contradictions(findings.declared, shapes)
    for warning in warnings:
        _log.warning("%s: %s", where, warning)
    loaded = Loaded(model=model, where=where, warnings=warnings, source_hash=source_hash)
    return model, loaded


def _changed(model: ir.Model, change: Callable[[ir.Model], object], where: str) -> None:
    """Apply a change to a model, then name its new nodes and infer their shapes."""
    change(model)
    name_everything(model)
    infer_shapes(model, where)


def _convert(model: ir.Model, where: str) -> None:
    """Decompose operators of other domains, then convert integer operators."""
    changed = to_standard(model)
    if has_integer_operators(model):
        convert_to_qdq(model)
        changed = True
    if changed:
        name_everything(model)
        infer_shapes(model, where)


def _stamp(model: ir.Model) -> None:
    """Lower opset and IR version to those that ONNX Runtime supports (mutates the model)."""
    opsets = runnable_opsets(model.graph, model.opset_imports)
    model.opset_imports.clear()
    model.opset_imports.update(opsets)
    model.ir_version = min(model.ir_version, IR_VERSION)


def _read(model: ModelLike) -> tuple[str, bytes, Path | None]:
    """Name for messages, bytes, and folder of external data of a model."""
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


def parse_model(data: bytes, where: str) -> onnx.ModelProto:
    """Parse the bytes of an ONNX or TFLite file. where: name for messages. Raises ModelError."""
    if is_tflite(data):
        data = to_onnx(data, where)
    try:
        return onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf has its own error class, and is no dependency of ours
        raise not_onnx(where, "its bytes are no ONNX protobuf") from error


def _load_external_data(where: str, proto: onnx.ModelProto, folder: Path | None) -> None:
    """Read weights from external files into the model. Raises ModelError if they cannot be read."""
    if not any(external_data_helper.uses_external_data(t) for t in proto.graph.initializer):
        return
    if folder is None:
        raise ModelError(
            where,
            "its weights are external data, and an object in memory has no folder to find them in",
            "pass the path of the .onnx file",
        )
    try:
        with complaints():
            external_data_helper.load_external_data_for_model(proto, str(folder))
    except ForeignError as error:
        raise ModelError(
            where,
            f"its external data cannot be read ({error})",
            "keep the data file in the folder of the .onnx file",
        ) from error


def _from_proto(proto: onnx.ModelProto, where: str) -> ir.Model:
    try:
        with complaints():
            return ir.from_proto(proto)
    except ForeignError as error:
        raise ModelError(
            where, f"the graph is invalid ({error})", "check the export with onnx.checker"
        ) from error


def _own(model: ir.Model, where: str) -> None:
    """Decode all initialisers to arrays. Raises ModelError if their data have a wrong size."""
    try:
        own_tensors(model)
    except ValueError as error:
        raise ModelError(
            where,
            f"data are missing or too many ({first_line(error)})",
            "copy or export the file again",
        ) from error


def _fold(model: ir.Model, where: str, budget: float, findings: Findings) -> bool:
    """Fold constants and infer shapes until a fixed point. Return whether sizes may have changed.

    The shapes that the file declares, and then runs of ONNX Runtime, are the fallback for shapes
    that cannot be inferred.
    """
    changed = False
    while True:
        unknown = count_unknown(model)
        if decomposed := to_standard(model):
            name_everything(model)
            infer_shapes(model, where)
        try:
            folded = fold_constants(model, largest=int(budget * CONSTANT_ELEMENTS))
        except ForeignError as error:
            raise ModelError(
                where, f"its constants cannot be computed ({error})", "check the export"
            ) from error
        remaining = count_unknown(model)
        if folded:
            name_everything(model)
            if remaining:
                infer_shapes(model, where)
                remaining = count_unknown(model)
        changed |= decomposed or folded
        if decomposed or (folded and remaining < unknown):
            continue
        if not remaining or not (adopt_declared(model, findings.declared) or measure_shapes(model)):
            return changed
        changed = True
        infer_shapes(model, where)
