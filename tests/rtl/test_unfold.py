"""Programs that unfold images, to the cycle: the RTL, the cycle engine and their counters."""

from collections import Counter

import numpy as np
import pytest

from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.table import SYNC_ENGINES, Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.cycle.counters import engine_counters
from opu_fuse.sim.cycle.instruction_costs import steps_of
from opu_fuse.sim.cycle.machine import CycleMachine
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.sim.rtl.process import RtlMachine
from tests.rtl.machines import write_machine
from tests.rtl.random_programs import PROGRAM_AT, WINDOW_BYTES, image_program, random_image
from tests.tiers import by_night

pytestmark = pytest.mark.rtl

MEMORIES = ((0, 0.5), (40, 1.0))
"""(latency, share of the bus's bandwidth)."""
PROGRAMS = 8


@pytest.mark.parametrize(("latency", "share"), MEMORIES)
@pytest.mark.parametrize("name", by_night(["images", "wide-images"], ["wide-images"]))
def test_loads_unfolds_and_what_reads_them_take_their_cycles(tmp_path, name, latency, share):
    """Memory as the functional machine leaves it; starts, ends and counters of the cycle engine."""
    hw = load_hw(write_machine(name, tmp_path))
    speed, counted = share * hw.dram.bus_bytes, Counter()
    window = np.zeros(WINDOW_BYTES, np.uint8)
    with RtlMachine(hw, window, latency=latency, bytes_per_cycle=speed) as machine:
        for seed in range(PROGRAMS):
            rng = np.random.default_rng(seed)
            image, words = random_image(rng, image_program(rng, hw, 40))
            machine.window[:] = image
            ran = machine.run(PROGRAM_AT, words, max_cycles=2_000_000)
            program = image[PROGRAM_AT:].view("<u4")[:words].copy()
            counted.update(x.opcode for x in decode(program))
            check_cycles(hw, program, ran, latency, speed)
            Machine(hw, image).run(decode(program))
            wrong = np.flatnonzero(machine.window != image)
            assert wrong.size == 0, f"seed {seed}: {wrong.size} bytes differ, first {wrong[0]:#x}"
    assert min(counted[name] for name in ("image", "unfold", "feature", "conv")) > 20, counted


def check_cycles(hw, program, ran, latency, speed):
    _, steps = steps_of(program, hw, WINDOW_BYTES)
    cycle = CycleMachine(steps, hw, base=PROGRAM_AT, latency=latency, bytes_per_cycle=speed)
    cycles = cycle.run()
    for engine in SYNC_ENGINES:
        issue = cycle.issues[engine]
        times = zip((s.pc for s in issue.steps), issue.starts, issue.ends, strict=True)
        assert list(times) == [(r.pc, r.start, r.end) for r in ran.retired if r.engine is engine]
    counters = engine_counters(cycle, cycles)
    assert cycles == ran.cycles
    assert cycle.read_beats == ran.read_beats
    assert cycle.write_beats == ran.write_beats
    for engine in (Engine.FETCH, *SYNC_ENGINES):
        name = engine.name.lower()
        assert counters[f"busy_{name}"] == ran.busy[engine]
        assert counters[f"stall_{name}"] == ran.stall[engine]
