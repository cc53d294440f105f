"""Results of an exploration: a table, a YAML file for each of the best machines, a CSV of all."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from opu_fuse.exploring.run import Candidate, Exploration
from opu_fuse.hw.area.devices import device
from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.sim.array_files import write_text

if TYPE_CHECKING:
    from rich.table import Table

TRIED = "tried.csv"


def best_table(exploration: Exploration, device_name: str) -> "Table":
    """The best machines next to the fastest shipped one that fits."""
    from rich.table import Table

    has = device(device_name).has
    table = Table(title=f"machines for {device_name}")
    columns = ("machine", "MAC/cycle", "lanes", "ms", "LUT", "DSP", "BRAM")
    for column in columns:
        table.add_column(column, justify="left" if column == "machine" else "right")

    def add(name: str, c: Candidate) -> None:
        shares = (c.area.lut / has.lut, c.area.dsp / has.dsp, c.area.bram / has.bram)
        table.add_row(
            name,
            f"{c.spec.macs}",
            f"{c.spec.post.lanes}",
            f"{c.latency:.3f}",
            *(f"{part:.0%}" for part in shares),
        )

    for rank, candidate in enumerate(exploration.best, 1):
        add(f"{device_name}-{rank}", candidate)
    if exploration.shipped:
        table.add_section()
        fastest = min(exploration.shipped, key=lambda c: c.latency)
        add(f"{fastest.spec.name} (shipped)", fastest)
    return table


def write_results(exploration: Exploration, device_name: str, folder: Path) -> list[Path]:
    """Specs of the best machines, by the first objective, and all that were tried."""
    written = []
    for rank, candidate in enumerate(exploration.best, 1):
        path = folder / f"{device_name}-{rank}.yaml"
        tree = candidate.spec.to_tree() | {
            "name": path.stem,
            "description": _description(candidate),
        }
        write_text(path, load_hw_text(json.dumps(tree), str(path)).to_yaml())
        written.append(path)
    write_text(folder / TRIED, _csv(exploration))
    return [*written, folder / TRIED]


def _description(candidate: Candidate) -> str:
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
