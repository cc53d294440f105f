"""Groups, host operators and memory traffic of every network under every fusing strategy.

    python benchmarks/fusion_table.py [NETWORK ...] [--hw opu-classic opu-1024] [--image N]

One table per machine; a cell reads `groups, operators on the host, MB of DRAM traffic`. The traffic
is what the cost model predicts for the groups (the bytes of the tiles that `compile` would choose);
it is `-` where the partition is illegal or a group fits no tile. Nothing is quantised or
compiled. Networks have their usual image size without --image. Exits with 1 when a published
group count does not come out.
"""

import argparse
import sys
from dataclasses import dataclass

import onnx_ir as ir

from opu_fuse import zoo
from opu_fuse.fuse.strategies.registry import STRATEGIES
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import partition_model
from opu_fuse.timing.group_cost import NOTHING, GroupCosts

CLASSIC = "opu-classic"
PUBLISHED = {"tiny_yolo": 9, "resnet20": 22, "yolov3": 75}
"""Groups on the published machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One network under one strategy. moved: predicted DRAM bytes, None where it cannot run."""

    groups: int
    host: int
    legal: bool
    moved: int | None

    def __str__(self) -> str:
        illegal = "" if self.legal else " illegal"
        moved = "-" if self.moved is None else f"{self.moved / 1e6:.1f}"
        return f"{self.groups}{illegal}, {self.host}, {moved}"


def main() -> int:
    """0 when the published group counts come out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=zoo.names())
    parser.add_argument("--hw", nargs="+", default=[CLASSIC, "opu-1024"])
    parser.add_argument("--image", type=int)
    args = parser.parse_args()
    wrong = 0
    for machine in args.hw:
        hw = load_hw(machine)
        print(f"\n{machine}: groups, operators on the host, MB\n")
        print(f"| network | {' | '.join(STRATEGIES)} |")
        print("|---" * (len(STRATEGIES) + 1) + "|")
        for name in args.networks:
            model = zoo.build(name, image=args.image)
            cells = {strategy: _cell(model, hw, strategy) for strategy in STRATEGIES}
            print(f"| {name} | {' | '.join(map(str, cells.values()))} |", flush=True)
            if machine == CLASSIC and name in PUBLISHED:
                wrong += not _as_published(name, cells)
    return int(wrong > 0)


def _cell(model: ir.Model, hw: HwSpec, strategy: str) -> Cell:
    dfg, partition = partition_model(model, hw, strategy)
    moved = None
    if partition.legal:
        costs = GroupCosts(dfg, hw)
        total = sum((costs.of([m.node for m in g.matches]) for g in partition.groups), NOTHING)
        moved = None if total.misfits else total.dram_bytes
    return Cell(
        groups=len(partition.groups), host=len(partition.host), legal=partition.legal, moved=moved
    )


def _as_published(name: str, cells: dict[str, Cell]) -> bool:
    for strategy in ("greedy", "matched"):
        cell = cells[strategy]
        if (cell.groups, cell.host, cell.legal) != (PUBLISHED[name], 0, True):
            print(f"{name}, {strategy}: {cell}; published are {PUBLISHED[name]} groups")
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
