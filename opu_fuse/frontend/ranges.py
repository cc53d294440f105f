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
    model: onnx.ModelProto, tensors: Sequence[str], samples: Sequence[Sample]
) -> dict[str, Range]:
    """Ranges of the named float tensors (inputs and outputs of the model among them).

    Raises ModelError, naming the tensor, when the float model computes NaN or infinity.
    """
    inputs = {i.name for i in model.graph.input}
    outputs = {o.name for o in model.graph.output}
    computed = [t for t in tensors if t not in inputs]
    run = session(model, [t for t in computed if t not in outputs])
    share = max(KEPT_PER_TENSOR // max(len(samples), 1), 64)
    lows = dict.fromkeys(tensors, np.inf)
    highs = dict.fromkeys(tensors, -np.inf)
    kept: dict[str, list[np.ndarray]] = {t: [] for t in tensors}
    for sample in samples:
        values = dict(zip(computed, run.run(computed, sample), strict=True)) if computed else {}
        for name in tensors:
            flat = np.asarray(values[name] if name in values else sample[name]).reshape(-1)
            low, high = float(flat.min()), float(flat.max())
            if not np.isfinite(low) or not np.isfinite(high):
                raise ModelError(
                    f"tensor {name!r}",
                    "the float model computes NaN or infinity there",
                    "check weights and calibration data",
                )
            lows[name], highs[name] = min(lows[name], low), max(highs[name], high)
            kept[name].append(_subset(flat, share))
    return {
        name: Range(low=lows[name], high=highs[name], kept=np.concatenate(kept[name]))
        for name in tensors
    }


def _subset(flat: np.ndarray, count: int) -> np.ndarray:
    """About `count` elements at odd, hence unaligned, steps."""
    step = max(len(flat) // count, 1) | 1 if len(flat) > count else 1
    return flat[::step].astype(np.float32, copy=True)
