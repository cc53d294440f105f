"""The whole front end: file -> canonical model, quantised on request."""

import difflib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.errors import ModelError
from opu_fuse.frontend.canonical import PASSES, canonicalise, channel_softmax
from opu_fuse.frontend.choice_names import Method, Scales
from opu_fuse.frontend.editing import SOURCE_KEY, sources_of, standard_nodes
from opu_fuse.frontend.importing.dynamic_dims import NO_SIZES, Sizes
from opu_fuse.frontend.importing.load import ModelLike, load
from opu_fuse.frontend.pass_steps import NAMES, step, step_with_result
from opu_fuse.frontend.qdq import is_dequantize, is_quantised
from opu_fuse.frontend.quantization.absorb_qdq import absorb, dequantise, ready
from opu_fuse.frontend.quantization.recover_int_weights import recover_int_weights
from opu_fuse.frontend.unrounded import may_be_unrounded
from opu_fuse.frontend.weights import release
from opu_fuse.model.names import KNOWN_KEY
from opu_fuse.passes import PassInfo
from opu_fuse.quant import (
    ASKED,
    CHOICE_KEY,
    DIVISION_KEY,
    EQUALISED_KEY,
    FLOAT_KEY,
    GROUPED_KEY,
    NORMS_KEY,
    PREQUANTISED_KEY,
    PRODUCTS_KEY,
    REWRITE_KEY,
)

if TYPE_CHECKING:
    from opu_fuse.frontend.calibration import Calibration  # quantised models need none

_log = logging.getLogger(__name__)
_AND_AFTER = ".."

ALL_PASSES = (*(PassInfo(name=name, always=True) for name in NAMES), *PASSES)
"""Front-end passes, and the registered passes of canonicalisation."""


class Prepared(Struct, frozen=True, kw_only=True):
    """Result of the front end.

    canonical: the model from which the data-flow graph is built. Do not modify it.
    qdq: the QDQ model with which ONNX Runtime computes the reference; None if not quantised.
    warnings: messages for the user. Each has been logged, too.
    source_hash: sha256 of the bytes of the input model.
    prequantised: whether the input was a QDQ model.
    rewrites: for each operator changed by a rewrite for fusion (`transforms.REWRITES`) the reason.
    """

    canonical: ir.Model
    qdq: onnx.ModelProto | None
    warnings: tuple[str, ...]
    source_hash: str
    prequantised: bool
    rewrites: Mapping[str, str] = field(default_factory=dict)


def prepare(
    model_or_path: ModelLike,
    *,
    calibration: "Calibration" = None,
    scales: str = Scales.POW2,
    method: str = Method.MSE,
    bias_correction: bool = False,
    equalisation: bool = False,
    keep_float: Sequence[str] = (),
    quantised: bool = True,
    budget: float = 1.0,
    sizes: Sizes = NO_SIZES,
    rewriting: bool = False,
    norms: Collection[str] = (),
) -> Prepared:
    """Load, clean up, quantise (unless quantised already) and canonicalise a model.

    All steps run as passes. Raises ModelError if the input cannot be compiled.

    model_or_path: an ONNX file, or a model as onnx_ir or onnx object.
    calibration: see `calibration.py`.
    scales, method: see `choice_names.py`.
    bias_correction: see `bias_correction.py`.
    equalisation: see `equalise.py`. It changes float weights as well.
    keep_float: operators, by their name in the file or in the canonical model, that remain in
    floating point and run on the host CPU; NAME.. for one and all that depend on it.
    quantised: False leaves a float model in floats, the graph without annotations. A model that is
    quantised already remains so.
    budget: factor on the usual size limits of a network (`size_limits.py`).
    sizes: sizes of dynamic dimensions (`dynamic_dims.py`).
    rewriting: apply the rewrites for fusion (`transforms.REWRITES`).
    norms: ONNX operators of `model/norms.py` that the machine runs.
    """
    loaded = load(model_or_path, budget=budget, sizes=sizes)
    model, warnings = loaded.model, list(loaded.warnings)
    if prequantised := is_quantised(model):
        if calibration is not None:
            warnings.append("the model is quantised already: the calibration data is not used")
            _log.warning(warnings[-1])
        if keep_float:
            raise ModelError(
                f"node {keep_float[0]!r}",
                "the model is quantised already, its own pairs say what is rounded",
                "leave it unrounded before that operator, or give the float model",
            )
        _require_own_choices(
            scales, method, bias_correction=bias_correction, equalisation=equalisation
        )
        from opu_fuse.frontend.quantization.insert_missing_qdq import (
            insert_missing_pairs,  # float models need none
        )
        from opu_fuse.frontend.quantization.insert_requantise import insert_requantisations

        step("requantise", model, insert_requantisations)
        model, more = step_with_result("between", model, insert_missing_pairs)
        for warning in more:
            _log.warning(warning)
        warnings += more
        qdq = ir.to_proto(model)
        step("unbake", model, recover_int_weights)
        model.graph.meta[NORMS_KEY] = frozenset(norms)
        absorb(model, rewriting=rewriting)
        canonical = model
    else:
        model.graph.meta[NORMS_KEY] = frozenset(norms)
        model.graph.meta[EQUALISED_KEY] = equalisation
        if any(is_dequantize(node) for node in model.graph):
            step("dequantise", model, dequantise)
        canonicalise(model, rewriting=rewriting)
        if "Softmax" in norms and channel_softmax.run(model):
            canonicalise(model, rewriting=rewriting)
        _keep_float(model, keep_float)
        if equalisation:
            step("equalise", model, lambda model: _equalise(model, calibration))
        if _may_be_separate(model.graph):
            step("separate", model, lambda model: _separate(model, quantised=quantised))
        qdq, canonical = None, model
        if quantised:
            canonical, (qdq, more) = step_with_result(
                "quantise",
                model,
                lambda model: _quantise(
                    model,
                    calibration,
                    scales=scales,
                    method=method,
                    bias_correction=bias_correction,
                ),
            )
            warnings += more
            canonical.graph.meta[NORMS_KEY] = frozenset(norms)
            absorb(canonical, rewriting=rewriting)
            _restore_sources(canonical, model)
    return Prepared(
        canonical=canonical,
        qdq=qdq,
        warnings=tuple(warnings),
        source_hash=loaded.source_hash,
        prequantised=prequantised,
        rewrites=_rewrites(canonical),
    )


def _require_own_choices(
    scales: str, method: str, *, bias_correction: bool, equalisation: bool
) -> None:
    """Raise ModelError if quantisation options are set for a model that is quantised already."""
    asked = {
        f"scales '{scales}'": scales != Scales.POW2,
        f"calibration method '{method}'": method != Method.MSE,
        "bias correction": bias_correction,
        "equalisation": equalisation,
    }
    for what in (what for what, is_asked in asked.items() if is_asked):
        raise ModelError(what, "the model is quantised already", "give the float model")


def _may_be_separate(graph: ir.Graph) -> bool:
    return any(map(may_be_unrounded, graph.inputs)) or bool(
        standard_nodes(graph, "Concat", "Split", "Slice", "Gather", "Transpose")
    )


def _separate(model: ir.Model, *, quantised: bool) -> None:
    from opu_fuse.frontend.quantization.quantise import separate_unrounded  # rarely needed

    separate_unrounded(model, quantised=quantised)


def _equalise(model: ir.Model, calibration: "Calibration") -> None:
    from opu_fuse.frontend.quantization.equalise import equalise  # rarely needed

    equalise(model, calibration)


def _quantise(
    model: ir.Model,
    calibration: "Calibration",
    *,
    scales: str,
    method: str,
    bias_correction: bool,
) -> tuple[ir.Model, tuple[onnx.ModelProto, tuple[str, ...]]]:
    """The QDQ model as IR and as proto, and warnings. Drops the weights of the float model."""
    from opu_fuse.frontend.quantization.quantise import quantise_with  # quantised models need none

    qdq, warnings = quantise_with(
        model, calibration, scales=scales, method=method, bias_correction=bias_correction
    )
    release(model)  # drops float weights: only the origins of nodes are still needed
    return ready(ir.from_proto(qdq)), (qdq, warnings)


def _restore_sources(canonical: ir.Model, floating: ir.Model) -> None:
    """Copy origins and marks of nodes by name, since the quantiser keeps only the names."""
    if KNOWN_KEY in floating.meta:
        canonical.meta[KNOWN_KEY] = floating.meta[KNOWN_KEY]
    canonical.meta[PREQUANTISED_KEY] = False
    known = {n.name: n.metadata_props for n in floating.graph}
    marks = (REWRITE_KEY, FLOAT_KEY, CHOICE_KEY, PRODUCTS_KEY, DIVISION_KEY, GROUPED_KEY)
    for node in canonical.graph:
        if node.name in known:
            properties = known[node.name]
            node.metadata_props[SOURCE_KEY] = properties.get(SOURCE_KEY, node.name or "")
            node.metadata_props.update({k: properties[k] for k in marks if k in properties})


def _keep_float(model: ir.Model, names: Sequence[str]) -> None:
    """Mark nodes to remain in floats. names: of nodes, or of their origins in the file; NAME.. for
    a node and all that depend on it.
    """
    called: dict[str, list[ir.Node]] = {}
    for node in model.graph:
        for name in {node.name or "", *sources_of(node)}:
            called.setdefault(name, []).append(node)
    for name in names:
        first = name if name in called else name.removesuffix(_AND_AFTER)
        if first not in called:
            near = difflib.get_close_matches(first, called, n=1) or [*called][:1]
            raise ModelError(
                f"node {first!r}",
                "the model has no such operator to keep in floats",
                f"did you mean {near[0]!r}?" if near else "it has no operators",
            )
        for node in called[first] if first == name else _and_after(called[first]):
            node.metadata_props[FLOAT_KEY] = ASKED


def _and_after(nodes: Sequence[ir.Node]) -> dict[ir.Node, None]:
    """Nodes, and all that depend on them."""
    found, waiting = dict.fromkeys(nodes), [*nodes]
    while waiting:
        readers = [reader for value in waiting.pop().outputs for reader in value.consumers()]
        waiting += [reader for reader in readers if reader not in found]
        found.update(dict.fromkeys(readers))
    return found


def _rewrites(model: ir.Model) -> dict[str, str]:
    """Reason of the rewrite for each rewritten node, by node name."""
    return {
        node.name or "": node.metadata_props[REWRITE_KEY]
        for node in model.graph
        if REWRITE_KEY in node.metadata_props
    }
