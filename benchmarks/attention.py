"""How much of networks with attention runs on a machine: multiplications, host operators, segments.

    python benchmarks/attention.py [NETWORK …] [--hw opu-light] [--bytes-per-cycle 16]

Weights are random (`attention_networks.py`). A NETWORK that ends with .onnx is a file, such as
those of `attention_export.py`. The share counts the multiplications of convolutions
and matrix products; operators without views leave out Reshape and Transpose. Segments are those of
the compiled program, and cycles those predicted for its groups, without the host's: --no-segments
leaves them out, which needs no quantisation.
"""

import argparse
import logging
import subprocess
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import onnx
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.attention_builder import LAYER_NORMS
from benchmarks.attention_networks import NETWORKS, SMALL
from opu_fuse.bundle.program import HostSegment
from opu_fuse.dfg.graph import Dfg
from opu_fuse.fuse.partition import Partition
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.model.effort import multiplications
from opu_fuse.pipeline import compile_model, partition_model

_VIEWS = frozenset({"host:Reshape", "host:Transpose", "reshape"})


class Measured(Struct, frozen=True, kw_only=True):
    """One network on one machine.

    macs, share: multiplications, and percent of them in groups. host: host operators by name.
    segments: of host operators in the program, cycles: predicted, of all groups; None if not
    compiled.
    """

    macs: int
    share: float
    groups: int
    host: Counter[str]
    segments: int | None
    cycles: int | None = None

    def efficiency(self, macs: int) -> float:
        """Percent of the multiplications that an array of so many could do in these cycles."""
        return self.macs * self.share / (self.cycles or 1) / macs

    @property
    def computing(self) -> int:
        """Host operators that are no views."""
        return sum(count for op, count in self.host.items() if op not in _VIEWS)


def measure(model: onnx.ModelProto, hw: HwSpec, *, segments: bool = True) -> Measured:
    """Partition a float model, and compile it to count its segments."""
    if segments:
        compiled = compile_model(model, hw)
        return _measured(
            compiled.dfg,
            compiled.partition,
            sum(isinstance(s, HostSegment) for s in compiled.bundle.segments),
            sum(group.cycles for group in compiled.bundle.groups),
        )
    return _measured(*partition_model(model, hw), None)


def _measured(
    dfg: Dfg, partition: Partition, segments: int | None, cycles: int | None = None
) -> Measured:
    products = {
        n.index: multiplications(n.ir_node)
        for n in dfg.calls
        if n.owner is None and n.ir_node is not None
    }
    on_host = sum(products.get(op.node, 0) for op in partition.host)
    macs = sum(products.values())
    return Measured(
        macs=macs,
        share=100.0 * (macs - on_host) / macs,
        groups=len(partition.groups),
        host=Counter(dfg[op.node].op for op in partition.host),
        segments=segments,
        cycles=cycles,
    )


def _commit() -> str:
    """Abbreviated hash of the commit, with -dirty after changes."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(
        command, check=False, cwd=Path(__file__).parent, capture_output=True, text=True
    )
    return found.stdout.strip() or "no commit"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--hw", default="opu-light")
    parser.add_argument("--bytes-per-cycle", type=float, help="else as the spec says")
    parser.add_argument("--spelling", choices=LAYER_NORMS, default=LAYER_NORMS[0])
    parser.add_argument("--small", action="store_true", help="a few blocks and channels of each")
    parser.add_argument("--no-segments", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    hw = load_hw(args.hw)
    if args.bytes_per_cycle is not None:
        hw = replace(hw, dram=replace(hw.dram, bytes_per_cycle=args.bytes_per_cycle))
    title = f"{hw.name} at {_commit()}, LayerNorm as {args.spelling}"
    table = Table(title=title, title_justify="left")
    table.add_column("network")
    columns = "GMAC", "on machine", "groups", "on host", "without views", "segments", "cycles"
    for name in (*columns, "of peak"):
        table.add_column(name, justify="right")
    table.add_column("host operators")
    networks = SMALL if args.small else NETWORKS
    for name in args.networks or networks:
        is_file = name.endswith(".onnx")
        model = onnx.load(name) if is_file else networks[name](layer_norm=args.spelling)
        found = measure(model, hw, segments=not args.no_segments)
        kinds = ", ".join(
            f"{count} {op.removeprefix('host:')}" for op, count in found.host.most_common(8)
        )
        table.add_row(
            *(
                Path(name).stem,
                f"{found.macs / 1e9:.3f}",
                f"{found.share:.1f} %",
                str(found.groups),
            ),
            *(str(found.host.total()), str(found.computing)),
            "" if found.segments is None else str(found.segments),
            "" if found.cycles is None else f"{found.cycles:,}",
            "" if found.cycles is None else f"{found.efficiency(hw.macs):.1f} %",
            kinds,
        )
    Console(width=170, highlight=False).print(table)


if __name__ == "__main__":
    main()
