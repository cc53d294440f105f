"""`python -m rtl_sim.coverage FOLDER`: what the simulations of a folder covered of the RTL, as a
table of modules. `make coverage` runs the RTL tier before it.

Simulators that are built while `OPU_FUSE_COVERAGE` names a folder write one file a run there
(`build.py`, `cocotb_run.py`). A point is a line (a branch of the code), a bit of a signal that
rises and falls (toggle), or a cover property; it counts where a machine of any run reaches it.
"""

import argparse
import os
import re
import sys
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from opu_fuse.generated_files import markdown_table
from opu_fuse.number_text import percent
from rtl_sim.build import COVERAGE

HERE = Path(__file__).resolve().parent
KINDS = ("line", "toggle", "user")
HEADER = ("module", "lines", "toggles", "cover properties")
_HOLES = ("module", "line: branch")
_OF_KIND = {"v_line": "line", "v_branch": "line", "v_toggle": "toggle", "v_user": "user"}
_MODULES = {path.stem for path in (HERE / "rtl").rglob("*.sv")}
"""No benches, no generated packages."""
_POINT = re.compile(r"C '(?P<keys>.*)' (?P<count>\d+)$")
_KEY = re.compile("\x01(?P<key>[^\x02]*)\x02(?P<value>[^\x01]*)")


class Point(Struct, frozen=True, kw_only=True):
    """kind: of `KINDS`; module: the file's stem; line, column: in it; what: branch, signal or
    property.
    """

    kind: str
    module: str
    line: int
    column: int
    what: str


def coverage_arguments() -> list[str]:
    """Arguments of a simulator: a file of its own in the folder of `OPU_FUSE_COVERAGE`, if set."""
    folder = os.environ.get(COVERAGE)
    if not folder:
        return []
    path = Path(folder).resolve()
    path.mkdir(parents=True, exist_ok=True)
    return [f"+verilator+coverage+file+{path / uuid.uuid4().hex}.dat"]


def points_of(lines: Iterable[str]) -> Iterator[tuple[Point, bool]]:
    """Points of a file that Verilator wrote, and whether each was reached.

    The format is Verilator's `verilated_cov.cpp`: pairs of key and value between two control
    characters, then the count.
    """
    for text in lines:
        match = _POINT.match(text)
        if match is None:
            continue
        keys = dict(_KEY.findall(match["keys"]))
        kind = _OF_KIND.get(keys.get("page", "").partition("/")[0])
        path = Path(keys.get("f", ""))
        if kind is None or path.stem not in _MODULES:
            continue
        yield (
            Point(
                kind=kind,
                module=path.stem,
                line=int(keys.get("l", 0)),
                column=int(keys.get("n", 0)),
                what=keys.get("o", ""),
            ),
            int(match["count"]) > 0,
        )


class Coverage(Struct, frozen=True):
    """Points of all runs -> whether any of them reached it."""

    reached: dict[Point, bool]

    @classmethod
    def of(cls, files: Iterable[Path]) -> "Coverage":
        """The union of some files."""
        reached: dict[Point, bool] = {}
        for path in files:
            with path.open(encoding="utf-8") as lines:
                for point, hit in points_of(lines):
                    reached[point] = reached.get(point, False) or hit
        return cls(reached)

    def modules(self) -> list[str]:
        return sorted({point.module for point in self.reached})

    def share(self, kind: str, module: str | None = None) -> tuple[int, int]:
        """Reached points and all points of a kind, in one module or all."""
        hits = [
            hit
            for point, hit in self.reached.items()
            if point.kind == kind and module in (None, point.module)
        ]
        return sum(hits), len(hits)

    def holes(self, kind: str) -> dict[str, list[Point]]:
        """Module -> points of a kind that nothing reached, in the order of the text."""
        found: dict[str, list[Point]] = defaultdict(list)
        for point in sorted(self.reached, key=lambda p: (p.module, p.line, p.column, p.what)):
            if point.kind == kind and not self.reached[point]:
                found[point.module].append(point)
        return found


def rows(coverage: Coverage) -> Iterator[tuple[str, ...]]:
    """Of the table: a module and its shares, the total last."""
    for module in (*coverage.modules(), None):
        shares = (coverage.share(kind, module) for kind in KINDS)
        yield module or "all", *(_share(*share) for share in shares)


def page(coverage: Coverage, runs: int) -> str:
    """The table and the lines that nothing reached, as Markdown."""
    holes = (
        (module, ", ".join(f"{point.line}: {point.what}" for point in points))
        for module, points in coverage.holes("line").items()
    )
    said = f"From {runs:,} simulations. Lines and branches that none of them reached:\n"
    parts = markdown_table(HEADER, rows(coverage)), said, markdown_table(_HOLES, holes)
    return "\n".join(parts)


def _share(hits: int, points: int) -> str:
    return f"{percent(hits / points)} of {points:,}" if points else "–"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the simulations wrote")
    parser.add_argument("--page", type=Path, help="also write the table and the holes as Markdown")
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.dat"))
    if not files:
        print(f"error: {options.folder}: no simulation wrote a file there", file=sys.stderr)
        return 2
    coverage = Coverage.of(files)
    table = Table(*HEADER)
    for row in rows(coverage):
        table.add_row(*row)
    Console().print(table)
    if options.page is not None:
        options.page.write_text(page(coverage, len(files)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
