"""The RTL of one machine, started once for many programs; and what its results are held against."""

from collections.abc import Mapping

import numpy as np

from opu_fuse.bundle.memory_image import initial_image
from opu_fuse.bundle.program import Bundle
from opu_fuse.bundle.result import RunResult
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.sim.compare.ort_reference import Reference
from opu_fuse.sim.compare.runs import compare, is_dull
from opu_fuse.sim.compare.tensor_sources import tensor_sources
from opu_fuse.sim.cycle.run import run_cycle
from opu_fuse.sim.engine import run, run_on
from opu_fuse.sim.rtl.engine import RtlRunner
from opu_fuse.sim.rtl.process import RtlMachine
from opu_fuse.sim.rtl.segment_runs import Segments

WINDOW_BYTES = 1 << 25


class Session:
    """`run` as `sim.engine.run(engine="rtl", capture=True)`, without starting a simulator again."""

    def __init__(self, hw: HwSpec) -> None:
        self.hw = hw
        self._machine: RtlMachine | None = None

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
            self._machine = None

    def run(self, bundle: Bundle, inputs: Mapping[str, np.ndarray]) -> RunResult:
        if self._machine is None:
            self._machine = RtlMachine(self.hw, np.zeros(WINDOW_BYTES, np.uint8))
        runner = _Runner(bundle, self.hw, self._machine)
        try:
            return run_on(runner, bundle, inputs, engine="rtl", capture=True)
        except BaseException:
            self.close()  # a machine that has stopped takes no other program
            raise


class _Runner(RtlRunner):
    """A program in the memory of a machine that runs already."""

    def __init__(self, bundle: Bundle, hw: HwSpec, machine: RtlMachine) -> None:
        self._segments, self._machine = Segments(bundle, hw), machine
        image = initial_image(bundle)
        assert image.size <= machine.window.size, f"{image.size} bytes of memory are needed"
        machine.window[: image.size] = image


def hold_rtl_against_functional(bundle: Bundle, functional: RunResult, rtl: RunResult) -> None:
    """The same bits in every stored tensor (memory is not used twice: `reuse_memory=False`), with
    values that prove something.
    """
    hold_bits(bundle, functional, rtl)
    dull = dull_tensors(bundle, functional)
    assert not dull, f"{dull} have too few values, or too many saturated"


def hold_bits_and_cycles(
    session: Session, bundle: Bundle, inputs: Mapping[str, np.ndarray]
) -> None:
    """The bits of the functional engine, as of `hold_bits`, and the cycles of the cycle engine."""
    functional = run(bundle, session.hw, inputs, engine="functional", capture=True)
    simulated = session.run(bundle, inputs)
    hold_bits(bundle, functional, simulated)
    assert simulated.counters["cycles"] == run_cycle(bundle, session.hw).counters["cycles"]


def dull_tensors(bundle: Bundle, functional: RunResult) -> list[str]:
    """Tensors whose values prove little."""
    zeros = Reference(bundle).zero_points
    return [
        p.name
        for p in tensor_sources(bundle)
        if p.name in functional.tensors
        and p.qdq_name in zeros
        and is_dull(_looked_at(functional, p.name), zeros[p.qdq_name])
    ]


def hold_bits(bundle: Bundle, functional: RunResult, rtl: RunResult) -> None:
    """The same bits in every stored tensor, whatever they are."""
    found = compare(bundle, functional, rtl)
    assert found.passed, found.first
    made = {t.name for t in bundle.tensors if t.first_group >= 0}
    assert made <= rtl.tensors.keys(), "not every stored tensor was compared"


def _looked_at(result: RunResult, name: str) -> np.ndarray:
    tensor = result.tensors[name]
    return tensor[np.broadcast_to(result.masks.get(name, np.True_), tensor.shape)]
