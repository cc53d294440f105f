"""Random machines, each with a random network: what every strategy groups legally compiles, runs
along the machine's graph, and has the bits of ONNX Runtime.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from opu_fuse.dfg.build import build_dfg
from opu_fuse.errors import DoesNotFit, PartitionError, UserError
from opu_fuse.fuse.names import StrategyName
from opu_fuse.hw.load import load_hw_text
from opu_fuse.hw.spec import HwSpec
from opu_fuse.pipeline import fuse_and_tile
from opu_fuse.schedule.plan import schedule
from tests.fuzz import network_case, smaller_machine
from tests.fuzz.chains import CHAINS
from tests.fuzz.judge_network import judge, prepared
from tests.fuzz.mutations import one_of, rng_of
from tests.fuzz.network_case import NetworkCase
from tests.fuzz.networks import BUILDING, Networks
from tests.fuzz.orders import order_mistake
from tests.fuzz.random_machine import NAME, draw_machine, dumped
from tests.fuzz.random_network import STEPS
from tests.fuzz.worker import SECONDS_PER_CASE

STRATEGIES = tuple(str(name) for name in StrategyName)
JUDGED = (*STRATEGIES, "matched", "optimal", "dominator")
"""What is judged; `greedy` is illegal nearly always."""
_MARK = 0x91BE
_NETWORKS = Networks()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCase:
    """machine: YAML. network: judged on it with its strategy; the others only compile it."""

    machine: str
    network: NetworkCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """The kinds `pipelines` and, where the machine is built and runs as RTL, `pipelines-rtl`."""

    name: str = "pipelines"
    share: float = 0.3
    rtl: bool = False

    def draw(self, seed: int) -> PipelineCase:
        rng = rng_of(seed, _MARK)
        network = network_case.draw(seed, CHAINS if rng.random() < 0.8 else STEPS)
        network = replace(
            network, machines=(NAME,), strategy=str(one_of(rng, JUDGED)), rtl=self.rtl
        )
        return PipelineCase(
            machine=draw_machine(seed, multipliers=not network.exact), network=network
        )

    def machines(self, case: PipelineCase) -> Sequence[str]:
        return [NAME]

    def judge(self, case: PipelineCase, machine: str) -> str | None:
        hw = load_hw_text(case.machine)
        try:
            wrong, refused = judge(case.network, hw), None
        except UserError as error:
            wrong, refused = None, error
        wrong = wrong or _strategies_wrong(case.network, hw)
        if wrong is None and refused is not None:
            raise refused
        return wrong

    def seconds(self, case: PipelineCase) -> float:
        return BUILDING if self.rtl else SECONDS_PER_CASE

    def smaller(self, case: PipelineCase, machine: str) -> Iterator[PipelineCase]:
        for network in _NETWORKS.smaller(case.network, machine):
            yield replace(case, network=network)
        for tree in smaller_machine.smaller(yaml.safe_load(case.machine)):
            yield replace(case, machine=dumped(tree))

    def write(self, case: PipelineCase, folder: Path) -> None:
        (folder / "machine.yaml").write_text(case.machine, encoding="utf-8")
        _NETWORKS.write(case.network, folder)


def _strategies_wrong(case: NetworkCase, hw: HwSpec) -> str | None:
    """Which strategy has groups that do not compile (`greedy` may: it knows neither rules nor
    sizes) or leave the machine's graph.
    """
    dfg = build_dfg(prepared(case, hw).canonical, quantised=True)
    seen = set()
    for strategy in STRATEGIES:
        try:
            fitted = fuse_and_tile(dfg, hw, strategy)
        except (PartitionError, DoesNotFit) as error:
            if strategy == StrategyName.GREEDY:
                continue
            return f"{strategy} does not compile: {error}"
        if fitted.partition.groups in seen:
            continue
        seen.add(fitted.partition.groups)
        plan = schedule(fitted.dfg, fitted.tiling, hw, reuse_memory=case.reuse_memory)
        wrong = order_mistake(fitted.dfg, fitted.partition, plan, hw)
        if wrong is not None:
            return f"{strategy}: {wrong}"
    return None


KIND = Pipelines()
RTL = Pipelines(name="pipelines-rtl", share=0.003, rtl=True)
