"""Results of an exploration: a table, a YAML file for each of the best machines, all as CSV and as
a page.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from opu_fuse.exploring.run import Candidate, Exploration
from opu_fuse.hw.area.devices import Device, device
from opu_fuse.hw.spec.json_schema import SCHEMA_FILE, schema_line, schema_text
from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.number_text import percent, rounded, whole
from opu_fuse.report.terminal_tables import Column, FittedTable
from opu_fuse.sim.array_files import write_text

TRIED, PAGE = "tried.csv", "explore.html"


def best_table(exploration: Exploration, device_name: str) -> FittedTable:
    """The best machines next to the fastest shipped one that fits."""
    board = device(device_name)
    rows: list[Sequence[str]] = [
        _row(f"{device_name}-{rank}", candidate, board)
        for rank, candidate in enumerate(exploration.best, 1)
    ]
    fastest = min(exploration.shipped, key=lambda c: c.latency, default=None)
    heads = ("MAC/cycle", "lanes", "ms", "LUT", "DSP", "BRAM")
    return FittedTable(
        title=f"machines for {device_name}",
        columns=(Column(name="machine"), *(Column(name=name, number=True) for name in heads)),
        rows=rows,
        total=fastest and _row(f"{fastest.spec.name} (shipped)", fastest, board),
    )


def _row(name: str, candidate: Candidate, board: Device) -> tuple[str, ...]:
    own, has = candidate.area, board.has
    shares = (own.lut / has.lut, own.dsp / has.dsp, own.bram / has.bram)
    return (
        *(name, whole(candidate.spec.macs), whole(candidate.spec.post.lanes)),
        *(rounded(candidate.latency), *(percent(part, 0) for part in shares)),
    )


def write_results(
    exploration: Exploration, device_name: str, folder: Path, command: str = ""
) -> list[Path]:
    """Specs of the best machines, by the first objective, their schema for editors, and all that
    were tried, as CSV and as a page. command: that asked for it.
    """
    written = []
    for rank, candidate in enumerate(exploration.best, 1):
        path = folder / f"{device_name}-{rank}.yaml"
        tree = candidate.spec.to_tree() | {"name": path.stem, "description": _described(candidate)}
        text = load_hw_text(json.dumps(tree), str(path)).to_yaml()
        write_text(path, f"{schema_line()}\n{text}")
        written.append(path)
    write_text(folder / SCHEMA_FILE, schema_text())
    write_text(folder / TRIED, _csv(exploration))
    write_text(folder / PAGE, _page(exploration, device_name, command))
    return [*written, folder / TRIED, folder / PAGE]


def _page(exploration: Exploration, device_name: str, command: str) -> str:
    from opu_fuse.report.page.points import Figure, Layout, page

    models = list(exploration.tried[0].milliseconds)
    times = {f"ms {name}": Figure(title=f"{name}, ms") for name in models}
    layout = Layout(
        figures={
            "latency": Figure(title="time of all models, ms"),
            **(times if len(models) > 1 else {}),
            "share": Figure(title=f"share of {device_name}, %", scale=100.0),
            "mac_units": Figure(title="MAC units", form=whole),
            "lanes": Figure(title="lanes of the post chain", form=whole),
            "lut": Figure(title="LUTs", form=whole),
            "dsp": Figure(title="DSPs", form=whole),
            "bram": Figure(title="block RAMs", form=rounded),
            "dram_bytes": Figure(title="DRAM traffic, bytes", form=whole),
        },
        texts={"name": "machine", "kind": "kind"},
        series="kind",
        common_front=True,
        x="share",
        y="latency",
    )
    rows = list(_points(exploration, device_name))
    title = f"Machines for {device_name}: {', '.join(models)}"
    return page(rows, title, layout, command)


def _points(exploration: Exploration, device_name: str) -> Iterator[dict[str, Any]]:
    ranks = {id(c): rank for rank, c in enumerate(exploration.best, 1)}
    for number, candidate in enumerate(exploration.tried, 1):
        rank = ranks.get(id(candidate))
        name = f"trial {number}" if rank is None else f"{device_name}-{rank}"
        yield _point(candidate, name, "tried" if rank is None else "best")
    for candidate in exploration.shipped:
        yield _point(candidate, candidate.spec.name, "shipped")


def _point(candidate: Candidate, name: str, kind: str) -> dict[str, Any]:
    own = candidate.area
    return {
        "error": None,
        "name": name,
        "kind": kind,
        "latency": candidate.latency,
        **{f"ms {model}": ms for model, ms in candidate.milliseconds.items()},
        "share": candidate.share,
        "mac_units": candidate.spec.macs,
        "lanes": candidate.spec.post.lanes,
        "lut": own.lut,
        "dsp": own.dsp,
        "bram": own.bram,
        "dram_bytes": candidate.dram_bytes,
    }


def _described(candidate: Candidate) -> str:
    times = ", ".join(f"{name} {ms:.3f} ms" for name, ms in candidate.milliseconds.items())
    own = candidate.area
    return (
        f"{candidate.spec.macs} MAC per cycle; {times}; about {own.lut:g} LUT, {own.dsp:g} DSP, "
        f"{own.bram:g} BRAM"
    )


def _csv(exploration: Exploration) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*exploration.tried[0].figures, "spec"))
    for candidate in exploration.tried:
        spec = json.dumps(candidate.spec.to_tree())
        writer.writerow((*candidate.figures.values(), spec))
    return text.getvalue()
