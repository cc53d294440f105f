"""The area model compared with Yosys, and its fit.

    python benchmarks/area.py                    # errors of the fit, and of one to the others
    python benchmarks/area.py --collect xc7      # synthesise what area.csv lacks
    python benchmarks/area.py --fit              # write opu_fuse/hw/area/coefficients.py

`area.csv` holds what Yosys counted: family, the machine as
`exploring.design` writes it (or a shipped one by its name), part, tables, multipliers, block RAM.
`area_machines.txt` has a line a machine; after ` | ` the parts to collect of it, if not all.
Exits with 1 when an error of a fit that has not seen the machine exceeds its bar.
"""

import argparse
import csv
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls

from opu_fuse.exploring.design import Design
from opu_fuse.hw.area.estimate import Area, Costs, memory_area, multiplies, priced, terms_of
from opu_fuse.hw.memories import Family
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.array_files import write_text

HERE = Path(__file__).parent
CORPUS = HERE / "area.csv"
MACHINES = HERE / "area_machines.txt"
FITTED = HERE.parent / "opu_fuse" / "hw" / "area" / "coefficients.py"
BARS = {"lut": 0.10, "dsp": 0.05, "bram": 0.05}
DAMPING = 1e-5
"""Price of a cost, added to the errors: where the corpus cannot distinguish two terms, the
smallest costs are the answer. Without it that would be the processor's choice.
"""
LEAST = 1e-6
SAME_HARDWARE = {"prelu": "activate"}
"""Part that no machine of the corpus has -> the part that consists of the same modules."""
KINDS = ("lut", "dsp")

Parts = dict[str, Area]


def machine(text: str) -> HwSpec:
    """A shipped machine by its name, or a design."""
    spec = Design.parse(text).spec() if " " in text else load_hw(text)
    assert spec is not None, f"no machine: {text}"
    return spec


def measured(path: Path = CORPUS) -> dict[Family, dict[str, Parts]]:
    """Family -> machine -> its parts, as Yosys counted them."""
    corpora: dict[Family, dict[str, Parts]] = {family: {} for family in Family}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            own = Area(lut=float(row["lut"]), dsp=float(row["dsp"]), bram=float(row["bram"]))
            corpora[Family(row["family"])].setdefault(row["machine"], {})[row["part"]] = own
    return corpora


def whole(corpus: Mapping[str, Parts]) -> dict[str, Parts]:
    """The machines of which all parts were synthesised."""
    return {name: parts for name, parts in corpus.items() if "array" in parts}


def fit(corpus: Mapping[str, Parts], family: Family) -> Costs:
    """Costs of the terms, none negative, that make the squares of the errors least; those of wide
    machines count by the lane.
    """
    rows = [
        (terms_of(machine(name), family), machine(name), parts) for name, parts in corpus.items()
    ]
    costs: dict[str, dict[str, dict[str, float]]] = {}
    for part in rows[0][0]:
        every = list(dict.fromkeys(name for terms, _, _ in rows for name in terms[part]))
        costs[part] = {}
        for kind in KINDS:
            names = [n for n in every if kind != "dsp" or multiplies(part, n)]
            matrix, wanted = [], []
            for terms, spec, parts in rows:
                if part not in parts and "array" not in parts:
                    continue
                weight = 1 / spec.word_channels
                counted = getattr(memory_area(spec, part, family), kind)
                synthesised = getattr(parts.get(part, Area()), kind)
                matrix.append([weight * terms[part].get(name, 0) for name in names])
                wanted.append(weight * (synthesised - counted))
            damped = np.vstack([matrix, DAMPING * np.eye(len(names))])
            solved, _ = nnls(damped, np.array([*wanted, *[0.0] * len(names)]))
            if not any(any(row) for row in matrix) and part in SAME_HARDWARE:
                costs[part][kind] = costs[SAME_HARDWARE[part]][kind]
                continue
            costs[part][kind] = {
                name: float(f"{cost:.4g}")
                for name, cost in zip(names, solved, strict=True)
                if cost > LEAST
            }
    return costs


Errors = tuple[Area, Area, Area]
"""As Yosys counts a machine, as the fit says, as a fit to the other machines says."""


def errors(corpus: Mapping[str, Parts], family: Family) -> dict[str, Errors]:
    """Machine -> its figures."""
    fitted, figures = fit(corpus, family), {}
    for name, parts in whole(corpus).items():
        spec, others = machine(name), {other: of for other, of in corpus.items() if other != name}
        figures[name] = (
            sum(parts.values(), Area()),
            sum(priced(spec, family, fitted).values(), Area()),
            sum(priced(spec, family, fit(others, family)).values(), Area()),
        )
    return figures


def show(family: Family, figures: Mapping[str, Errors], out: Console) -> dict[str, float]:
    """Prints a line a machine; the largest error of each kind, of a fit that has not seen it."""
    table = Table(title=f"{family}: Yosys, error of the fit, error of a fit to the other machines")
    for column in ("machine", "LUT", "", "", "DSP", "", "", "BRAM", "", ""):
        table.add_column(column, justify="left" if column == "machine" else "right")
    worst: dict[str, float] = defaultdict(float)
    for name, areas in figures.items():
        cells = []
        for kind in BARS:
            real, said, blind = (getattr(own, kind) for own in areas)
            worst[kind] = max(worst[kind], abs(blind / real - 1))
            cells += [f"{real:g}", f"{said / real - 1:+.1%}", f"{blind / real - 1:+.1%}"]
        table.add_row(name if " " not in name else _short(name), *cells)
    out.print(table)
    return worst


def _short(name: str) -> str:
    design = Design.parse(name)
    flags = (("depthwise", design.depthwise), ("shifts", design.shifts))
    array = f"{design.word} lanes, {design.units}x{design.multipliers}x{design.pixels}"
    tables = [f"{design.tables} in tables"] if design.tables else []
    return ", ".join((array, *tables, *(flag for flag, on in flags if on), *design.without))


def collect(family: Family) -> None:
    """Appends what is missing, machine by machine."""
    from rtl_sim.parts import parts

    known = measured()[family] if CORPUS.is_file() else {}
    for line in MACHINES.read_text(encoding="utf-8").splitlines():
        name, _, some = line.partition(" | ")
        if name in known:
            continue
        spec = machine(name)
        without = terms_of(spec, family).keys() - set(some.split()) if some else ()
        areas = parts(spec, family, without=without)
        new = not CORPUS.is_file()
        with CORPUS.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(("family", "machine", "part", "lut", "dsp", "bram"))
            for part, own in sorted(areas.items()):
                writer.writerow((family, name, part, own.lut, own.dsp, f"{own.bram:g}"))
        print(family, name, flush=True)


def main() -> int:
    """1 when an error exceeds its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collect", type=Family, choices=list(Family))
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
        return 0
    corpora = {family: corpus for family, corpus in measured().items() if corpus}
    if options.fit:
        fitted = {str(family): fit(corpus, family) for family, corpus in corpora.items()}
        # As `ruff format` writes a literal.
        literal = re.sub(r"([^\s{])\n(?= *})", r"\1,\n", json.dumps(fitted, indent=4))
        text = (
            '"""What the terms of `area.py` cost: written by `benchmarks/area.py --fit`."""\n\n'
            f"FITTED: dict[str, dict[str, dict[str, dict[str, float]]]] = {literal}\n"
        )
        write_text(FITTED, text)
        return 0
    out = Console(width=120, highlight=False)
    failed = False
    for family, corpus in corpora.items():
        worst = show(family, errors(corpus, family), out)
        out.print(", ".join(f"{kind} {error:.1%}" for kind, error in worst.items()))
        failed |= any(worst[kind] > bar for kind, bar in BARS.items())
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
