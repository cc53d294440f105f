"""The whole front half: file -> canonical model, quantised on request."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from opu_fuse.frontend.absorb import absorb, absorb_in_place
from opu_fuse.frontend.editing import (
    REWRITE_KEY,
    SOURCE_KEY,
    TENSOR_KEY,
    quant_of,
    real_constant,
)
from opu_fuse.frontend.load import ModelLike, load
from opu_fuse.frontend.qdq import is_quantised
from opu_fuse.frontend.transforms import Drive, canonicalise, drive_plainly
from opu_fuse.frontend.weights import release
from opu_fuse.quant import META_KEY

if TYPE_CHECKING:
    from opu_fuse.frontend.calibration import Calibration  # quantised models need none

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """canonical: the model the data-flow graph is built from (do not change it).

    qdq: the QDQ model that ONNX Runtime computes the reference with; None when not quantised.
    warnings: what the user should know, each was logged too. source_hash: sha256 of the input
    model's bytes. rewrites: operators that a rewrite for fusing changed (`transforms.REWRITES`,
    where `drive` runs any), and why.
    """

    canonical: ir.Model
    qdq: onnx.ModelProto | None
    warnings: tuple[str, ...]
    source_hash: str
    rewrites: Mapping[str, str] = field(default_factory=dict)


def prepare(
    model_or_path: ModelLike,
    *,
    calibration: "Calibration" = None,
    scales: str = "pow2",
    quantised: bool = True,
    budget: float = 1.0,
    drive: Drive = drive_plainly,
) -> Prepared:
    """Load, clean up, quantise (unless it is quantised already) and bring into canonical form.

    model_or_path: an ONNX file, or a model as onnx_ir or onnx object. calibration: see
    `calibration.py`. scales: "pow2" or "free". quantised=False gives the same graph with float
    weights and no annotations. budget: how many times the usual size the network may have
    (`budget.py`). drive: what runs the steps of the canonical form. Raises
    ModelError when the input cannot be handled.
    """
    loaded = load(model_or_path, budget=budget)
    model, warnings = loaded.model, list(loaded.warnings)
    if is_quantised(model):
        if calibration is not None:
            warnings.append("the model is quantised already: the calibration data is not used")
            _log.warning(warnings[-1])
        qdq = ir.to_proto(model)
        absorb_in_place(model, drive)
        canonical = model
        if not quantised:
            _make_float(canonical)
    else:
        canonicalise(model, drive)
        qdq, canonical = None, model
        if quantised:
            from opu_fuse.frontend.quantise import quantise_with  # quantised models need none

            qdq, more = quantise_with(model, calibration, scales=scales)
            warnings += more
            release(model)  # its float weights: only its nodes' origins are still read
            canonical = absorb(qdq, drive)
            _restore_sources(canonical, model)
    return Prepared(
        canonical=canonical,
        qdq=qdq if quantised else None,
        warnings=tuple(warnings),
        source_hash=loaded.source_hash,
        rewrites=_rewrites(canonical),
    )


def _restore_sources(canonical: ir.Model, floating: ir.Model) -> None:
    """The quantiser keeps the names of the nodes; their origins come back by name."""
    sources = {n.name: n.metadata_props.get(SOURCE_KEY, n.name or "") for n in floating.graph}
    rewrites = _rewrites(floating)
    for node in canonical.graph:
        if node.name in sources:
            node.metadata_props[SOURCE_KEY] = sources[node.name]
        if node.name in rewrites:
            node.metadata_props[REWRITE_KEY] = rewrites[node.name]


def _rewrites(model: ir.Model) -> dict[str, str]:
    return {
        node.name or "": node.metadata_props[REWRITE_KEY]
        for node in model.graph
        if REWRITE_KEY in node.metadata_props
    }


def _make_float(model: ir.Model) -> None:
    """Remove all annotations; integer constants become the real numbers they stand for."""
    for value in model.graph.initializers.values():
        real = real_constant(value)
        if quant_of(value) is not None and real is not None:
            value.const_value = ir.tensor(real, name=value.name)
            value.dtype = ir.DataType.FLOAT
    values = [*model.graph.inputs, *model.graph.initializers.values()]
    for value in [*values, *(v for node in model.graph for v in node.outputs)]:
        value.meta.pop(META_KEY, None)
        value.meta.pop(TENSOR_KEY, None)
