"""What values occur: one pass over the calibration samples with every float tensor shown.

The extremes are exact; a regular subset of each tensor is kept, from which the error of any scale
can be estimated afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from opu_fuse.errors import ModelError
from opu_fuse.frontend.calibration import Sample
from opu_fuse.frontend.reference import session
from opu_fuse.frontend.weights import Weights, weights_as_inputs

KEPT_PER_TENSOR = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """low, high: extremes over all samples; kept: float32 vector, a regular subset of the
    values."""

    low: float
    high: float
    kept: np.ndarray

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))


def collect(
    model: onnx.ModelProto,
    tensors: Sequence[str],
    samples: Sequence[Sample],
    weights: Weights | None = None,
) -> dict[str, Range]:
    """Ranges of the named float tensors (inputs and outputs of the model among them).

    weights: those for which the model holds a stand-in (`weights.py`); they are read where they
    are. Raises ModelError, naming the tensor, when the float model computes NaN or infinity.
    """
    weights = weights or {}
    inputs = {i.name for i in model.graph.input}
    outputs = {o.name for o in model.graph.output}
    computed = [t for t in tensors if t not in inputs]
    run = session(weights_as_inputs(model, weights), [t for t in computed if t not in outputs])
    share = max(KEPT_PER_TENSOR // max(len(samples), 1), 64)
    found: dict[str, list[Range]] = {t: [] for t in tensors}
    for sample in samples:
        values = run.run(computed, sample | weights) if computed else []
        arrays = sample | dict(zip(computed, values, strict=True))
        for name in tensors:
            found[name].append(_range(name, np.asarray(arrays[name]).reshape(-1), share))
        del values, arrays  # before the next run makes as much again
    return {name: _joined(found.pop(name)) for name in tensors}


def _range(name: str, flat: np.ndarray, share: int) -> Range:
    """Of one sample."""
    low, high = float(flat.min()), float(flat.max())
    if not np.isfinite(low) or not np.isfinite(high):
        raise ModelError(
            f"tensor {name!r}",
            "the float model computes NaN or infinity there",
            "check weights and calibration data",
        )
    return Range(low=low, high=high, kept=_subset(flat, share))


def _joined(parts: Sequence[Range]) -> Range:
    return Range(
        low=min(p.low for p in parts),
        high=max(p.high for p in parts),
        kept=np.concatenate([p.kept for p in parts]),
    )


def _subset(flat: np.ndarray, count: int) -> np.ndarray:
    """About `count` elements at odd, hence unaligned, steps."""
    step = max(len(flat) // count, 1) | 1 if len(flat) > count else 1
    return flat[::step].astype(np.float32, copy=True)
