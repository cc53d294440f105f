"""`opu_fuse.accuracy`: the float model against the machine's integers.

The integers are the golden model's, which every engine reproduces bit for bit; operators that the
machine leaves to the host are computed by ONNX Runtime here, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from opu_fuse.array_layout import ArrayLayout
from opu_fuse.bundle.accuracy import WORTHWHILE, Accuracy, Remedy, worth
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.interpret import Values, interpret
from opu_fuse.errors import ModelError
from opu_fuse.frontend.calibration import Calibration, Sample, samples
from opu_fuse.frontend.choice_names import Scales
from opu_fuse.frontend.importing.load import ModelLike
from opu_fuse.frontend.unrounded import join_inputs
from opu_fuse.fuse.norm_operators import norms_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import HwLike, load_hw
from opu_fuse.noise import Measured
from opu_fuse.options import ModelOptions, keywords_of
from opu_fuse.pipeline import (
    fuse_and_tile,
    in_layout,
    prepare_model,
    require_machine,
)
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.plan import schedule
from opu_fuse.sim.array_files import read_array
from opu_fuse.units.operator import Numeric

Progress = Callable[[str, float], None]
"""Receives a description of the current step and the share of all steps that is done."""

TRIED_ON = 8
"""Samples on which remedies are tried."""
MODEL_SHARE, SAMPLES_SHARE = 0.2, 0.6
"""Of the time, roughly: making both models, running them. The rest is for remedies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyOptions(ModelOptions):
    """Options of a measurement, besides those of the model.

    data: what to measure on, in the forms of calibration data; None: the calibration data.
    labels: integers, one a sample (or position, for maps), or a .npy file of them.
    remedies: try options that may help.
    progress: called with each step and the share of all steps that is done.
    """

    data: Calibration = None
    labels: str | Path | np.ndarray | None = None
    remedies: bool = True
    progress: Progress = lambda *_: None


@keywords_of(AccuracyOptions)
def accuracy(model: ModelLike, hw: HwLike, options: AccuracyOptions) -> Accuracy:
    """The loss by rounding to int8 on a machine.

    model: in float, as of `compile`.
    hw: the machine, or what `load_hw` takes.

    Raises UserError as `compile` does, and for data or labels that do not fit.
    """
    chosen, hw, progress = options, load_hw(hw), options.progress
    labels = options.labels
    require_machine(hw, chosen.scales)
    progress("float model", 0.0)
    floating = _float_form(model, chosen)
    calibration = chosen.calibration if options.data is None else options.data
    named = "calibration" if options.data is None else "data"
    inputs, _ = samples(floating, in_layout(calibration, chosen.layout), named)
    if calibration is None:  # random samples: calibrate on the same ones, warn once
        noise = {name: np.stack([s[name] for s in inputs]) for name in inputs[0]}
        chosen = replace(chosen, calibration=noise, layout=ArrayLayout.NCHW)
    wanted = None if labels is None else _read_labels(labels, len(inputs))
    progress("quantise", MODEL_SHARE / 2)
    machine = _Machine.of(model, hw, chosen)
    measured = Measured(machine.dfg, floating, host=machine.host)
    for n, sample in enumerate(inputs):
        share = MODEL_SHARE + SAMPLES_SHARE * n / len(inputs)
        progress(f"sample {n + 1} of {len(inputs)}", share)
        measured.add(sample, machine.run(sample), None if wanted is None else wanted[n])
    whole = Accuracy(
        model=machine.dfg.name,
        machine=hw.name,
        scales=chosen.scales,
        samples=len(inputs),
        tensors=measured.tensors(),
        outputs=measured.outputs(),
        cycles=machine.cycles,
        host_operators=len(machine.host),
    )
    if not options.remedies:
        return whole

    def worst_ratio(machine: _Machine) -> float | None:
        few = Measured(machine.dfg, floating, tensors=False)
        for sample in inputs[:TRIED_ON]:
            few.add(sample, machine.run(sample))
        return min((o.ratio for o in few.outputs()), key=worth, default=None)

    before = worst_ratio(machine)

    def tried(option: str, changed: ModelOptions, share: float) -> Remedy:
        progress(f"try {option}", share)
        other = _Machine.of(model, hw, changed)
        return Remedy(
            option=option,
            before=before,
            after=worst_ratio(other),
            cycles=other.cycles,
            host_operators=len(other.host),
        )

    changes = _changes(whole, hw, chosen)
    shares = np.linspace(MODEL_SHARE + SAMPLES_SHARE, 1.0, len(changes) + 1, endpoint=False)
    found = [tried(*change, share) for change, share in zip(changes.items(), shares, strict=False)]
    helpful = [r.option for r in found if r.gain >= WORTHWHILE and r.option in _FREE]
    if len(helpful) > 1:
        together = replace(chosen, **{k: v for o in helpful for k, v in _FREE[o].items()})
        found.append(tried(" ".join(helpful), together, shares[-1]))
    return replace(whole, remedies=tuple(sorted(found, key=lambda r: -worth(r.after))))


def _float_form(model: ModelLike, options: ModelOptions) -> ir.Model:
    """The float model, equalised if the machine's is, so that their maps are comparable."""
    plain = replace(options, keep_float=())
    if not options.equalisation:
        plain = replace(plain, calibration=None)
    prepared = prepare_model(model, plain, quantised=False)
    if prepared.prequantised:
        raise ModelError(
            f"model {prepared.canonical.graph.name!r}",
            "it is quantised already: there is no float model to compare with",
            "give the float model, or compare with ONNX Runtime by run --check",
        )
    join_inputs(prepared.canonical.graph)
    return prepared.canonical


def _read_labels(labels: str | Path | np.ndarray, count: int) -> np.ndarray:
    """[samples, ...] integers."""
    where = "labels" if isinstance(labels, np.ndarray) else str(labels)
    array = labels if isinstance(labels, np.ndarray) else read_array(Path(labels))
    if array.dtype.kind not in "iu" or array.shape[:1] != (count,):
        shape = "x".join(map(str, array.shape))
        raise ModelError(
            where,
            f"expected {count} integers, one a sample, got {array.dtype} of shape {shape}",
            "write the number of each sample's class with numpy.save",
        )
    return array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """A network as a machine computes it. host: calls that it leaves to the host CPU; cycles:
    predicted, of all groups.
    """

    dfg: Dfg
    host: frozenset[int]
    numeric: Numeric
    cycles: int

    @classmethod
    def of(cls, model: ModelLike, hw: HwSpec, options: ModelOptions) -> "_Machine":
        prepared = prepare_model(model, options, norms=norms_of(hw))
        dfg = build_dfg(prepared.canonical, quantised=True)
        fitted = fuse_and_tile(dfg, hw, options.strategy)
        host = frozenset(op.node for op in fitted.partition.host)
        plan = schedule(
            fitted.dfg,
            fitted.tiling,
            hw,
            reuse_memory=True,
            fused_stacks=FusedStackChoice.AUTO,
        )
        cycles = sum(map(round, plan.cycles.values()))
        return cls(dfg=fitted.dfg, host=host, numeric=hw.numeric, cycles=cycles)

    def run(self, sample: Sample) -> Values:
        return interpret(self.dfg, sample, self.numeric, self.host)


_FREE: Mapping[str, Mapping[str, Any]] = {
    f"--scales {Scales.FREE}": {"scales": Scales.FREE},
    "--bias-correction": {"bias_correction": True},
    "--equalisation": {"equalisation": True},
}
"""Options that move no operator to the host CPU, as the command spells them."""


def _changes(loss: Accuracy, hw: HwSpec, options: ModelOptions) -> dict[str, ModelOptions]:
    """Options that may help, by how they are spelt."""
    multiplies = options.scales == Scales.POW2 and hw.numeric.multiplier_bits
    unused = {
        f"--scales {Scales.FREE}": multiplies,
        "--bias-correction": not options.bias_correction,
        "--equalisation": not options.equalisation,
    }
    changes = {o: replace(options, **_FREE[o]) for o, useful in unused.items() if useful}
    if layer := loss.worst_layer:
        float_layers = (*options.keep_float, layer)
        changes[f"--keep-float {layer}"] = replace(options, keep_float=float_layers)
    return changes
