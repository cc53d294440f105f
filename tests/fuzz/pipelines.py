"""Random machines, each with a random network: what every strategy groups legally compiles, runs
along the machine's graph, and has the bits of ONNX Runtime. A verdict is a strategy's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from opu_fuse.errors import DoesNotFit, PartitionError
from opu_fuse.fuse.strategies.strategy_names import StrategyName
from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.pipeline import Compilation
from opu_fuse.schedule.plan import MachineProgram
from tests.fuzz import network_case, smaller_machine
from tests.fuzz.chains import CHAINS
from tests.fuzz.judge_network import compiled, judge_compiled
from tests.fuzz.mutations import one_of, rng_of
from tests.fuzz.network_case import NetworkCase
from tests.fuzz.networks import BUILDING, Networks
from tests.fuzz.orders import order_mistake
from tests.fuzz.random_machine import NAME, draw_machine, dumped
from tests.fuzz.random_network import STEPS
from tests.fuzz.worker import SECONDS_PER_CASE

STRATEGIES = tuple(str(name) for name in StrategyName)
JUDGED = ("none", "matched", "matched", "optimal", "optimal", "dominator", "dominator")
"""Which strategy's program runs in every way; `greedy` compiles seldom."""
_PLAINLY = {"shuffle": None, "cycle": False, "file": False, "canonical": False}
_MARK = 0x91BE
_NETWORKS = Networks()


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCase:
    """machine: YAML. network: runs on it in all ways that it asks for with its own strategy, and
    plainly with the others.
    """

    machine: str
    network: NetworkCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelines:
    """The kinds `pipelines` and, where the machine is built and runs as RTL, `pipelines-rtl`.
    one: judged with the network's own strategy alone.
    """

    name: str = "pipelines"
    share: float = 0.3
    one: bool = False
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
        """Strategies, the network's own first."""
        own = case.network.strategy
        return [own] if self.one else [own, *(s for s in STRATEGIES if s != own)]

    def judge(self, case: PipelineCase, machine: str) -> str | None:
        """A strategy's program; one that is another's was judged with that."""
        hw = load_hw_text(case.machine)
        network = case.network
        if machine != network.strategy:
            network = replace(network, strategy=machine, **_PLAINLY)
        try:
            made = compiled(network, hw)
        except (PartitionError, DoesNotFit) as error:
            if machine == StrategyName.GREEDY:  # it knows neither rules nor sizes
                raise
            return f"does not compile: {error}"
        key = (case.machine, network.model, _instructions(made))
        wrong = order_mistake(made.dfg, made.partition, made.plan, hw)
        if wrong is None and key not in _right:
            wrong = judge_compiled(network, hw, made)
        if wrong is None:
            _right[:] = [*(k for k in _right if k[:2] == key[:2]), key]
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


_right: list[tuple[str, bytes, bytes]] = []
"""Machine, network and instructions of what was right, of the last case."""


def _instructions(made: Compilation) -> bytes:
    return b"".join(s.words.tobytes() for s in made.plan.segments if isinstance(s, MachineProgram))


KIND = Pipelines()
RTL = Pipelines(name="pipelines-rtl", share=0.003, one=True, rtl=True)
