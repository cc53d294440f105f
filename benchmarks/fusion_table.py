"""Groups, host operators and memory traffic of every network under every fusing strategy.

    python benchmarks/fusion_table.py [NETWORK ...] [--hw opu-1024] [--image N] [--groups-only]

For `--hw`: groups, operators on the host, and the MB that the groups of the compiled program move
between DRAM and machine (n/a where the partition is illegal or no program results). For
opu-classic, the published machine, which is partitioned for but not built: groups and host
operators. `illegal` marks partitions that break a rule. Networks at their usual image size unless
--image is given. Ends with the published group counts; exits with 1 when one differs.
"""

import argparse
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from opu_fuse import zoo
from opu_fuse.codegen.bundle import Origin, build_bundle
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import UserError
from opu_fuse.frontend import prepare
from opu_fuse.fuse.strategies import STRATEGIES, partition
from opu_fuse.hw.load import load_hw
from opu_fuse.hw.spec import HwSpec
from opu_fuse.pipeline import fuse_and_tile
from opu_fuse.schedule.plan import schedule

CLASSIC = "opu-classic"
PUBLISHED = {"tiny_yolo": 9, "resnet20": 22, "yolov3": 75}
"""Groups on the published machine."""

out = Console(width=150, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network under one strategy. moved: DRAM bytes of the program, None without one."""

    groups: int
    host: int
    legal: bool
    moved: int | None = None


def main() -> int:
    """0 when the published group counts come out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=zoo.names())
    parser.add_argument("--hw", default="opu-1024")
    parser.add_argument("--image", type=int)
    parser.add_argument("--groups-only", action="store_true", help="compile nothing")
    args = parser.parse_args()
    hw, classic = load_hw(args.hw), load_hw(CLASSIC)
    table = _table(hw)
    found: dict[tuple[str, str], Row] = {}
    for name in args.networks:
        dfg = build_dfg(
            prepare(zoo.build(name, image=args.image), quantised=not args.groups_only).canonical
        )
        for strategy in STRATEGIES:
            row = _row(dfg, hw, strategy, compiled=not args.groups_only)
            found[name, strategy] = _row(dfg, classic, strategy, compiled=False)
            first = strategy == next(iter(STRATEGIES))
            table.add_row(
                name if first else "", strategy, *_cells(row), *_cells(found[name, strategy])[:2]
            )
        table.add_section()
        out.print(f"{name} done", style="dim")
    out.print(table)
    return _published(found)


def _row(dfg: Dfg, hw: HwSpec, strategy: str, *, compiled: bool) -> Row:
    """The partition that is compiled: with what does not fit cut again, where it is compiled."""
    plain = partition(dfg, hw, strategy)
    if not compiled or not plain.legal:
        return Row(groups=len(plain.groups), host=len(plain.host), legal=plain.legal)
    try:
        fitting, tiling = fuse_and_tile(dfg, hw, strategy)
        plan = schedule(dfg, tiling, hw)
    except UserError as error:
        out.print(f"{dfg.name}, {strategy}: {error}")
        return Row(groups=len(plain.groups), host=len(plain.host), legal=True)
    origin = Origin(model=dfg.name, model_hash="", tool_version="", qdq=None, dtypes=_dtypes(dfg))
    bundle = build_bundle(dfg, fitting, plan, hw, origin)
    return Row(
        groups=len(bundle.groups),
        host=len(fitting.host),
        legal=True,
        moved=sum(g.dram_bytes for g in bundle.groups),
    )


def _dtypes(dfg: Dfg) -> dict[str, str]:
    return {dfg[i].value: "float32" for i in (*dfg.inputs, *dfg.outputs)}


def _table(hw: HwSpec) -> Table:
    table = Table(title="fusing strategies")
    table.add_column("network")
    table.add_column("strategy")
    for text in (f"groups {hw.name}", "host", "DRAM MB", f"groups {CLASSIC}", "host"):
        table.add_column(text, justify="right")
    return table


def _cells(row: Row) -> tuple[str, str, str]:
    groups = f"{row.groups}" if row.legal else f"{row.groups} illegal"
    moved = "n/a" if row.moved is None else f"{row.moved / 1e6:.2f}"
    return groups, str(row.host), moved


def _published(found: dict[tuple[str, str], Row]) -> int:
    wrong = 0
    for name, count in PUBLISHED.items():
        for strategy in ("greedy", "matched"):
            row = found.get((name, strategy))
            if row is None:
                continue
            right = row.groups == count and row.legal and row.host == 0
            wrong += not right
            out.print(
                f"{CLASSIC} {name} {strategy}: {row.groups} groups, published {count}: "
                f"{'as published' if right else 'DIFFERENT'}"
            )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
