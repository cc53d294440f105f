"""Explorations compared with random search and the machines that come with opu-fuse.

    python benchmarks/explore.py [NETWORK[@IMAGE]:DEVICE …] [--trials 40] [--seeds 0 1] [--jobs 1]

Both searches time the same number of machines that fit; all machines have the clock and the memory
of the device. Rows are stored in out/explore, so that a second run costs little. Exits with 1 when
a search is not 1.3 times as fast as the best shipped machine, or slower than random search.
"""

import argparse
import sys

from rich.console import Console
from rich.table import Table

from opu_fuse.exploring.run import Candidate, Exploration, explore

CASES = ("mobilenet_v2@96:ecp5-85", "resnet18:xc7k325t")
BAR = 1.3
FOLDER = "out/explore"

out = Console(width=140, highlight=False)


def main() -> int:
    """1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args()
    table = Table("network", "device", "machine", "ms", "x", "what it is")
    missed = False
    for case in options.cases:
        network, _, device = case.partition(":")
        name, _, image = network.partition("@")
        model = {"model": name, "image": int(image) if image else None}
        explorations: dict[tuple[str, int], Exploration] = {}
        for seed in options.seeds:
            for sampler in ("random", "tpe"):
                explorations[sampler, seed] = explore(
                    [model],
                    device,
                    objectives=("latency",),
                    trials=options.trials,
                    seed=seed,
                    sampler=sampler,
                    folder=f"{FOLDER}/{network}-{device}",
                    jobs=options.jobs,
                    progress=lambda done, of, left: print(done, "of", of, f"{left:.0f} s left"),
                )
        shipped = min(next(iter(explorations.values())).shipped, key=lambda c: c.latency)
        table.add_row(
            network, device, shipped.spec.name, f"{shipped.latency:.2f}", "1", what(shipped)
        )
        best = {}
        for (sampler, seed), of in explorations.items():
            best[sampler, seed] = of.best[0].latency
            times = shipped.latency / of.best[0].latency
            said = f"{sampler}, seed {seed}"
            table.add_row(
                "", "", said, f"{of.best[0].latency:.2f}", f"{times:.2f}", what(of.best[0])
            )
        for seed in options.seeds:
            missed |= (
                shipped.latency < BAR * best["tpe", seed]
                or best["tpe", seed] > best["random", seed]
            )
    out.print(table)
    return int(missed)


def what(candidate: Candidate) -> str:
    """The array and what the machine takes."""
    array, own = candidate.spec.array, candidate.area
    tables = f" ({array.table_terms} in tables)" if array.table_terms else ""
    kind = ", depthwise" if array.depthwise else ""
    shifts = "" if candidate.spec.numeric.multiplier_bits else ", shifts"
    return (
        f"{array.units} x {array.multipliers}{tables}{kind}{shifts}, "
        f"{candidate.spec.post.lanes} lanes of {candidate.spec.word_channels}, "
        f"{own.lut:,} LUT, {own.dsp} DSP, {own.bram:g} BRAM"
    )


if __name__ == "__main__":
    sys.exit(main())
