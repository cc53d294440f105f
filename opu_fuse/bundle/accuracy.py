"""Loss of accuracy by rounding to int8, tensor by tensor and at the outputs.

Ratios are signal to noise over all samples, in decibels; None without noise.
"""

import math
from dataclasses import dataclass


def worth(ratio: float | None) -> float:
    """A ratio to sort by."""
    return math.inf if ratio is None else ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLoss:
    """One int8 tensor against the float model's.

    layer, op: the operator that computes it, before a Relu, Clip or MaxPool
    place: "machine", "host" or "input"
    own: ratio of what the layer itself adds, on the int8 operands that it had
    clipped: share of values beyond what its integers hold
    """

    name: str
    layer: str
    op: str
    place: str
    ratio: float | None
    own: float | None
    scale: float
    clipped: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLoss:
    """One output of the model.

    agreement: share of samples (of positions, in maps) at which the largest channel is that of the
    float model; None without channels. right, float_right: shares that agree with the labels, None
    without labels that fit this output.
    """

    name: str
    ratio: float | None
    agreement: float | None
    right: float | None = None
    float_right: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something that was tried. option: of the command; before, after: ratios at the worst output,
    over a few samples.
    """

    option: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """tensors: the worst first. remedies: the most helpful first."""

    model: str
    machine: str
    scales: str
    samples: int
    tensors: tuple[TensorLoss, ...]
    outputs: tuple[OutputLoss, ...]
    remedies: tuple[Remedy, ...] = ()

    @property
    def worst_layer(self) -> str:
        """The layer on the machine that adds most noise by itself, "" when none adds any."""
        own = [t for t in self.tensors if t.place == "machine" and t.own is not None]
        return min(own, key=lambda t: worth(t.own)).layer if own else ""
