"""The native engine alone: random networks, each for machines of the package and for a random one,
leave the bytes of the functional engine. Without the judge of networks a case takes half the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opu_fuse import pipeline
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.errors import UserError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.sim import engine
from tests.fuzz import network_case
from tests.fuzz.judge_network import compiled, native_differs, options_of
from tests.fuzz.machines import machine
from tests.fuzz.network_case import NetworkCase
from tests.fuzz.pipelines import PipelineCase, Pipelines
from tests.fuzz.random_machine import NAME, draw_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Native(Pipelines):
    """The kind `native`. A verdict is a machine's."""

    name: str = "native"
    share: float = 0.1

    def draw(self, seed: int) -> PipelineCase:
        """With the network and the options of the kind `networks`."""
        network = network_case.draw(seed)
        drawn = draw_machine(seed, multipliers=not network.exact)
        return PipelineCase(machine=drawn, network=network)

    def machines(self, case: PipelineCase) -> Sequence[str]:
        return [*case.network.machines, NAME]

    def judge(self, case: PipelineCase, machine: str) -> str | None:
        """Programs without a machine segment count as refused: there is nothing to compare."""
        return _differs(case.network, _machine(case, machine))


def _machine(case: PipelineCase, name: str) -> HwSpec:
    return load_hw_text(case.machine) if name == NAME else machine(name)


def _differs(case: NetworkCase, hw: HwSpec) -> str | None:
    bundle, images = _program(case, hw)
    if not any(isinstance(s, MachineSegment) for s in bundle.segments):
        raise UserError("network", "all of it runs on the host", "draw another one")
    runner = engine.FunctionalRunner(bundle, hw)
    result = engine.run_on(runner, bundle, images, engine="functional")
    return "; ".join(native_differs(bundle, hw, images, result, runner.window)[:3]) or None


def _program(case: NetworkCase, hw: HwSpec) -> tuple[Bundle, dict[str, np.ndarray]]:
    """Program and inputs; of a case with a batch, two runs of it, the second one not full."""
    one = compiled(case, hw)
    if case.batch == 1:
        return one.bundle, case.inputs()
    options = options_of(case, batch=case.batch)
    together = pipeline.compile_prepared(one.prepared, hw, options).bundle
    return together, case.images(2 * case.batch - 1)


KIND = Native()
