"""Cycles that the cost model predicts, against the cycle engine, for every network of the zoo.

    python -m benchmarks.predicted [NETWORK[@IMAGE]:MACHINE …]

The prediction is what `compile` prints before anything has run (`timing/segment_cycles.py`), batch
1 and the machines' own memory. Exits with 1 when a network is off by more than 3 %.
"""

import argparse
import logging
import sys
import warnings

from rich.console import Console
from rich.table import Table

from benchmarks.efficiency import BARS, measure

OTHERS = (
    "densenet_small:opu-1024",
    "unet:opu-1024",
    "yolov3_tiny:opu-1024",
    "mobilenet_v1_025:opu-light",
    "shufflenet_v2:opu-light",
    "efficientnet_b0:opu-light",
    "tiny_residual:opu-tiny",
    "tiny_odd:opu-tiny",
    "tiny_tiles:opu-tiny",
    "resnet20@16:opu-tiny",
    "squeezenet@48:opu-micro",
    "mobilenet_v1_025@64:opu-micro",
)
BAR = 0.03

out = Console(width=130, highlight=False)


def main() -> int:
    """0 when every network is as close as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=[*BARS, *OTHERS])
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    table = Table(title="predicted cycles", title_justify="left")
    for name in ("network", "machine", "cycle engine", "predicted", "off", "groups", "worst group"):
        table.add_column(name, justify="left" if name in ("network", "machine") else "right")
    failed = 0
    for case in parser.parse_args().cases:
        measured = measure(case)
        groups = measured.compiled.bundle.groups
        gaps = [
            g.cycles - timed.cycles for g, timed in zip(groups, measured.run.groups, strict=True)
        ]
        worst = max(range(len(gaps)), key=lambda i: abs(gaps[i]))
        off = measured.predicted / measured.cycles - 1
        failed += abs(off) > BAR
        table.add_row(
            *case.split(":"),
            f"{measured.cycles:,}",
            f"{measured.predicted:,}",
            f"{off:+.2%}",
            f"{sum(map(abs, gaps)) / measured.cycles:.2%}",
            f"{gaps[worst]:+,} of {measured.run.groups[worst].cycles:,}",
        )
        out.print(case, style="dim")
    out.print(table)
    out.print("groups: sum of what every group is off, of all cycles")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
