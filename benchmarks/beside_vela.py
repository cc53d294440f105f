"""DRAM traffic of an image compared with Vela, Arm's compiler for Ethos-U, in one run.

    pip install ethos-u-vela
    python benchmarks/beside_vela.py NETWORK:MACHINE=FILE.tflite … [--batch 8] [--sram 2048]

Ours: what the cycle engine moves, instructions included, for one image and for each of several that
run together, at the machine's own memory. Vela's: what it predicts for the same network as an int8
TFLite file on an Ethos-U85 with 1,024 MACs and so many KiB of SRAM for maps and weights. MB are
millions of bytes.
"""

import argparse
import csv
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from opu_fuse import zoo
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.sim.cycle.run import run_cycle

ACCELERATOR = (
    *("--accelerator-config", "ethos-u85-1024", "--config", "Arm/vela.ini"),
    *("--system-config", "Ethos_U85_SYS_DRAM_High", "--memory-mode", "Dedicated_Sram"),
)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="+", metavar="NETWORK:MACHINE=FILE.tflite")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sram", type=int, default=2048, help="KiB that Vela may use")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # noise for calibration moves as many bytes
    table = Table("network", "machine", "buffers, KiB", "DRAM MB", f"of {options.batch}")
    for heading in ("Vela: SRAM used, KiB", "DRAM MB", "ours / Vela", f"of {options.batch}"):
        table.add_column(heading, justify="right")
    for asked in options.networks:
        case, file = asked.split("=", 1)
        network, machine = case.split(":")
        one, several, chip = ours(network, machine, options.batch)
        used, theirs = vela(Path(file), options.sram)
        table.add_row(
            *(network, machine, f"{chip / 1024:.0f}", f"{one:.2f}", f"{several:.2f}"),
            *(f"{used:.0f}", f"{theirs:.2f}", f"{one / theirs:.2f}", f"{several / theirs:.2f}"),
        )
    Console(width=140, highlight=False).print(table)
    return 0


def ours(network: str, machine: str, batch: int) -> tuple[float, float, int]:
    """MB of an image alone, of one of several, and bytes of all on-chip buffers."""
    hw, model = load_hw(machine), zoo.build(network)
    moved = []
    for images in (1, batch):
        bundle = compile_model(model, hw, Options(batch=images)).bundle
        counters = run_cycle(bundle, hw).counters
        moved.append((counters["dram_bytes_read"] + counters["dram_bytes_written"]) / images / 1e6)
    return moved[0], moved[1], hw.on_chip_bytes


def vela(file: Path, sram: int) -> tuple[float, float]:
    """KiB of SRAM that Vela uses, MB that it predicts."""
    with tempfile.TemporaryDirectory() as folder:
        size = ("--arena-cache-size", str(sram * 1024))
        command = ("vela", *ACCELERATOR, *size, "--output-dir", folder, str(file))
        subprocess.run(command, check=True, capture_output=True)
        (summary,) = Path(folder).glob("*_summary_*.csv")
        with summary.open(newline="") as text:
            (row,) = csv.DictReader(text)
    return float(row["sram_memory_used"]), float(row["dram_total_bytes"]) / 1e6


if __name__ == "__main__":
    sys.exit(main())
