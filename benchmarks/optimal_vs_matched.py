"""Cycles of whole networks under `matched` and under `optimal`, on the cycle engine.

    python benchmarks/optimal_vs_matched.py [NETWORK[@IMAGE]:MACHINE …]

Default: every network on the larger machines, small ones on the smallest. The predicted column
is what `optimal` says it gains. Exits with 1 when `optimal` takes more cycles anywhere, or fewer
nowhere.
"""

import argparse
import logging
import sys
import time
import warnings

import opu_fuse
from opu_fuse import zoo
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.pipeline import STAGES, Compilation, Options, compile_model
from opu_fuse.sim.cycle.run import run_cycle

MACHINES = ("opu-1024", "opu-light")
SMALL = (
    *("tiny_residual", "tiny_odd", "tiny_tiles", "resnet20"),
    *("resnet18@64", "googlenet@64", "shufflenet_v2@64"),
)
CASES = (
    *(f"{network}:{machine}" for machine in MACHINES for network in zoo.names()),
    *(f"{network}:opu-tiny" for network in SMALL),
)


def main() -> int:
    """0 when `optimal` is nowhere slower and somewhere faster."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=CASES, metavar="NETWORK[@IMAGE]:MACHINE")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print("| network | machine | groups | matched | optimal | change | predicted | fuse, s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    changes = [_row(case) for case in args.cases]
    return int(max(changes) > 0 or min(changes) == 0)


def _row(case: str) -> int:
    """Prints a network's line; cycles that `optimal` adds."""
    network, machine = case.split(":")
    name, _, image = network.partition("@")
    hw = opu_fuse.load_hw(machine)
    model = zoo.build(name, image=int(image) if image else None)
    cycles: list[int] = []
    groups: list[str] = []
    predicted, seconds = 0.0, 0.0
    for strategy in (StrategyName.MATCHED, StrategyName.OPTIMAL):
        fusing = _Stopwatch(STAGES["partition"])
        compiled = compile_model(model, hw, Options(strategy=strategy), fusing.stage)
        cycles.append(run_cycle(compiled.bundle, hw).counters["cycles"])
        groups.append(str(len(compiled.partition.groups)))
        predicted, seconds = _predicted(compiled), fusing.seconds
    change = 100 * (cycles[1] / cycles[0] - 1)
    print(
        f"| {network} | {machine} | {' → '.join(dict.fromkeys(groups))} | {cycles[0]:,} | "
        f"{cycles[1]:,} | {change:+.2f} % | {predicted:+.2f} % | {seconds:.2f} |",
        flush=True,
    )
    return cycles[1] - cycles[0]


def _predicted(compiled: Compilation) -> float:
    timed = compiled.partition.search and compiled.partition.search.timed
    return 100 * (timed.best / timed.before - 1) if timed else 0.0


class _Stopwatch:
    """Seconds of CPU that one stage of `compile_model` takes."""

    def __init__(self, wanted: str) -> None:
        self.seconds = 0.0
        self._wanted = wanted
        self._since: float | None = None

    def stage(self, name: str) -> None:
        """Told the name of every stage as it begins."""
        if self._since is not None:
            self.seconds += time.process_time() - self._since
        self._since = time.process_time() if name == self._wanted else None


if __name__ == "__main__":
    sys.exit(main())
