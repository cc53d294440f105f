"""What rounding loses: as a table, as sentences, as JSON."""

from collections.abc import Iterator
from dataclasses import asdict

from opu_fuse.bundle.accuracy import Accuracy, OutputLoss
from opu_fuse.report.json_trees import SCHEMA_VERSION, Tree
from opu_fuse.report.terminal_tables import Column, FittedTable, short

SHOWN = 20
"""Rows of the table; JSON has all."""


def accuracy_table(found: Accuracy, *, wide: bool = False) -> FittedTable:
    """The tensors that are furthest from the float model, the worst first."""
    samples = f"{found.samples} sample{'s' * (found.samples != 1)}"
    more = len(found.tensors) - SHOWN
    return FittedTable(
        title=f"{short(found.model)} on {found.machine}, {found.scales} scales, {samples}",
        columns=(
            *(Column(name=name) for name in ("layer", "operator", "runs on")),
            *(Column(name=n, number=True) for n in ("SNR dB", "layer alone")),
            *(Column(name=n, number=True, leave_out=1) for n in ("scale", "clipped")),
        ),
        rows=[
            (
                *(t.layer, t.op, t.place, _ratio(t.ratio), _ratio(t.own)),
                *(f"{t.scale:.3g}", _share(t.clipped)),
            )
            for t in found.tensors[:SHOWN]
        ],
        footer=[f"and {more} that lose less (--json)"] if more > 0 else [],
        wide=wide,
    )


def accuracy_lines(found: Accuracy) -> Iterator[str]:
    """Of the outputs, the layer that loses most, and what was tried."""
    yield from map(_output, found.outputs)
    if found.worst_layer:
        yield f"loses most by itself: {found.worst_layer}"
    for r in found.remedies:
        yield f"tried {r.option}: worst output {_ratio(r.before)} -> {_ratio(r.after)} dB"


def _output(o: OutputLoss) -> str:
    text = f"output {o.name}: SNR {_ratio(o.ratio)} dB"
    if o.agreement is not None:
        text += f", largest channel as in float {_share(o.agreement)}"
    if o.right is not None and o.float_right is not None:
        text += f", right {_share(o.right)} (float {_share(o.float_right)})"
    return text


def accuracy_json(found: Accuracy) -> Tree:
    """The object of `accuracy --json`; a ratio is null where there is no noise."""
    return {"schema_version": SCHEMA_VERSION, **asdict(found), "worst_layer": found.worst_layer}


def _ratio(ratio: float | None) -> str:
    return "exact" if ratio is None else f"{ratio:.1f}"


def _share(share: float) -> str:
    return f"{100 * share:.2f} %"
