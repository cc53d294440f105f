"""What rounding loses: as a table, as sentences, as JSON."""

from collections.abc import Iterator
from dataclasses import asdict

from opu_fuse.bundle.accuracy import WORTHWHILE, Accuracy, OutputLoss, Remedy
from opu_fuse.number_text import counted, percent, whole
from opu_fuse.report.decibels import relative_error, scale_lines, snr_meaning
from opu_fuse.report.json_trees import SCHEMA_VERSION, Tree
from opu_fuse.report.terminal_tables import Column, FittedTable, short

SHOWN = 20
"""Rows of the table; JSON has all."""


def accuracy_table(loss: Accuracy, *, wide: bool = False) -> FittedTable:
    """The tensors that are furthest from the float model, the worst first."""
    samples = counted(loss.samples, "sample")
    more = len(loss.tensors) - SHOWN
    return FittedTable(
        title=f"{short(loss.model)} on {loss.machine}, {loss.scales} scales, {samples}",
        columns=(
            *(Column(name=name) for name in ("layer", "operator", "runs on")),
            *(Column(name=n, number=True) for n in ("SNR dB", "layer alone")),
            *(Column(name=n, number=True, leave_out=1) for n in ("scale", "clipped")),
        ),
        rows=[
            (
                *(t.layer, t.op, t.place, _ratio(t.ratio), _ratio(t.own)),
                *(f"{t.scale:.3g}", percent(t.clipped, 2)),
            )
            for t in loss.tensors[:SHOWN]
        ],
        footer=[f"{counted(more, 'more tensor')} with a smaller loss (--json)"] if more > 0 else [],
        wide=wide,
    )


def accuracy_lines(loss: Accuracy) -> Iterator[str]:
    """The outputs, the layer that loses most, what was tried at what cost, a verdict and a
    recommendation.
    """
    yield from map(_output, loss.outputs)
    if loss.worst_layer:
        yield f"largest loss in one layer: {loss.worst_layer}"
    for r in loss.remedies:
        before, after = _decibels(r.before), _decibels(r.after)
        yield f"tried {r.option}: worst output {before} -> {after}, {_cost(loss, r)}"
    yield from scale_lines()
    worst = loss.worst_output
    if worst is not None:
        yield f"verdict: {_verdict(loss, worst)}"
    if loss.remedies:
        yield f"recommended: {_recommendation(loss, loss.recommended)}"


def _verdict(loss: Accuracy, worst: OutputLoss) -> str:
    text = f"{snr_meaning(worst.ratio)}"
    if worst.ratio is not None:
        error = percent(relative_error(worst.ratio))
        text += f"; output {worst.name} has {_decibels(worst.ratio)}, an error of {error}"
    for o in loss.outputs:
        if o.right is not None and o.float_right is not None:
            lost = 100 * (o.float_right - o.right)
            text += f"; {lost:.2f} points of {percent(o.float_right, 2)} accuracy lost"
    return text


def _recommendation(loss: Accuracy, remedy: Remedy | None) -> str:
    if remedy is None:
        return f"no change: no tried option gains {WORTHWHILE:g} dB"
    gain = "removes all noise" if remedy.after is None else f"gains {remedy.gain:.1f} dB"
    return f"{remedy.option}: {gain}, {_cost(loss, remedy)}"


def _cost(loss: Accuracy, remedy: Remedy) -> str:
    """What a remedy costs: operators on the host CPU and machine cycles."""
    moved = remedy.host_operators - loss.host_operators
    parts = []
    if moved:
        operators = counted(abs(moved), "operator")
        parts.append(f"{operators} {'more' if moved > 0 else 'fewer'} on the host CPU")
    change = remedy.cycles - loss.cycles
    if change:
        share = percent(abs(change) / loss.cycles) if loss.cycles else ""
        more = "more" if change > 0 else "fewer"
        parts.append(f"{whole(abs(change))} ({share}) {more} machine cycles")
    return "; ".join(parts) or "the same cycles"


def _output(o: OutputLoss) -> str:
    text = f"output {o.name}: SNR {_decibels(o.ratio)}"
    if o.ratio is not None:
        text += f" ({snr_meaning(o.ratio)})"
    if o.agreement is not None:
        text += f", largest channel as in float {percent(o.agreement, 2)}"
    if o.right is not None and o.float_right is not None:
        text += f", right {percent(o.right, 2)} (float {percent(o.float_right, 2)})"
    return text


def accuracy_json(loss: Accuracy) -> Tree:
    """The object of `accuracy --json`; a ratio is null where there is no noise."""
    worst, remedy = loss.worst_output, loss.recommended
    return {
        "schema_version": SCHEMA_VERSION,
        **asdict(loss),
        "worst_layer": loss.worst_layer,
        "verdict": None if worst is None else snr_meaning(worst.ratio),
        "recommended": None if remedy is None else remedy.option,
    }


def _ratio(ratio: float | None) -> str:
    return "exact" if ratio is None else f"{ratio:.1f}"


def _decibels(ratio: float | None) -> str:
    return "exact" if ratio is None else f"{ratio:.1f} dB"
