"""Loss of accuracy by rounding to int8, tensor by tensor and at the outputs.

Ratios are signal to noise over all samples, in decibels; None without noise.
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from opu_fuse.extras import frame
from opu_fuse.number_text import counted
from opu_fuse.summaries import short, summary

if TYPE_CHECKING:
    import pandas as pd

WORTHWHILE = 0.5
"""Decibels; less is within what other samples would change."""


def worth(ratio: float | None) -> float:
    """A ratio to sort by."""
    return math.inf if ratio is None else ratio


def _decibels(ratio: float | None) -> str:
    return "exact" if ratio is None else f"{ratio:.1f} dB"


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

    def __repr__(self) -> str:
        own = "" if self.own is None else f"{self.own:.1f} dB by itself"
        made = f"{self.op} {short(self.layer)} ({self.place})"
        return summary(self, self.name, _decibels(self.ratio), own, made)


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

    def __repr__(self) -> str:
        same = "" if self.agreement is None else f"{self.agreement:.1%} as in float"
        right = "" if self.right is None else f"{self.right:.1%} right"
        return summary(self, self.name, _decibels(self.ratio), same, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A remedy that was tried.

    option: of the command, or several.
    before, after: ratios at the worst output, over a few samples.
    cycles: of the machine, predicted.
    host_operators: operators left to the host CPU.
    """

    option: str
    before: float | None
    after: float | None
    cycles: int
    host_operators: int

    @property
    def gain(self) -> float:
        """Decibels; infinite if the remedy removes all noise."""
        return 0.0 if self.after == self.before else worth(self.after) - worth(self.before)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Loss of accuracy of a program.

    tensors: the worst first.
    remedies: the most helpful first.
    cycles, host_operators: as in `Remedy`, without a remedy.
    """

    model: str
    machine: str
    scales: str
    samples: int
    tensors: tuple[TensorLoss, ...]
    outputs: tuple[OutputLoss, ...]
    cycles: int
    host_operators: int
    remedies: tuple[Remedy, ...] = ()

    def __repr__(self) -> str:
        worst = min(self.outputs, key=lambda o: worth(o.ratio), default=None)
        return summary(
            self,
            self.model,
            f"{self.scales} scales",
            counted(self.samples, "sample"),
            "" if worst is None else f"output {short(worst.name)} {_decibels(worst.ratio)}",
            f"{short(self.worst_layer)} loses most by itself" if self.worst_layer else "",
            machine=self.machine,
        )

    def to_frame(self) -> "pd.DataFrame":
        """A row per int8 tensor, the worst first; the columns are the fields of `TensorLoss`."""
        columns = [field.name for field in fields(TensorLoss)]
        return frame((asdict(tensor) for tensor in self.tensors), columns)

    @property
    def worst_output(self) -> OutputLoss | None:
        """The output with the lowest ratio, None for a model without outputs in floats."""
        return min(self.outputs, key=lambda o: worth(o.ratio), default=None)

    @property
    def recommended(self) -> Remedy | None:
        """The remedy to use: the largest gain of those that leave no more to the host CPU, else the
        largest gain; None where none gains WORTHWHILE.
        """
        helpful = [r for r in self.remedies if r.gain >= WORTHWHILE]
        free = [r for r in helpful if r.host_operators <= self.host_operators]
        return max(free or helpful, key=lambda r: r.gain, default=None)

    @property
    def worst_layer(self) -> str:
        """The layer on the machine that adds most noise by itself, "" when none adds any."""
        own = [t for t in self.tensors if t.place == "machine" and t.own is not None]
        return min(own, key=lambda t: worth(t.own)).layer if own else ""
