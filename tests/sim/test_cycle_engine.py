"""The cycle engine on whole programs: what a run gives, and what it refuses."""

import pytest

from opu_fuse import zoo
from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Program
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.ports import noise

ENGINES = ("load", "compute", "post", "store")


@pytest.fixture(scope="module")
def program() -> Program:
    return compile_program(zoo.build("tiny_residual"), load_hw("opu-tiny"))


def test_two_runs_are_equal(program):
    assert program.run(engine="cycle") == program.run(engine="cycle")


def test_cycles_of_groups_sum_to_those_of_the_run(program):
    found = program.run(engine="cycle")
    assert sum(g.cycles for g in found.groups) == found.counters["cycles"]
    assert [g.index for g in found.groups] == [g.index for g in program.bundle.groups]


def test_bytes_are_those_that_the_functional_engine_moves_and_the_program(program):
    cycle = program.run(engine="cycle").counters
    functional = program.run(noise(program.bundle)).counters
    words = sum(segment.words for segment in program.bundle.segments)
    fetched = cycle["dram_bytes_read"] - functional["dram_bytes_read"]
    assert 0 <= fetched - 4 * words < program.hw.dram.bus_bytes
    assert cycle["dram_bytes_written"] == functional["dram_bytes_written"]


def test_every_instruction_retires_once_in_its_engines_order(program):
    trace = program.run(engine="cycle").trace
    (segment,) = program.bundle.segments
    assert sorted(r.instruction for r in trace) == list(range(len(segment.groups)))
    for engine in ENGINES:
        mine = [r for r in trace if r.engine == engine]
        assert [r.instruction for r in mine] == sorted(r.instruction for r in mine)
        assert [r.end for r in mine] == sorted({r.end for r in mine})
    assert [r.end for r in trace] == sorted(r.end for r in trace)


def test_engines_are_idle_where_the_stalls_say_so(program):
    found = program.run(engine="cycle")
    open_cycles = {
        engine: {c for r in found.trace if r.engine == engine for c in range(r.start + 1, r.end)}
        for engine in ENGINES
    }
    assert {s.reason for s in found.stalls} <= {"words", *ENGINES}
    for s in found.stalls:
        assert s.start < s.end
        assert not open_cycles[s.engine] & set(range(s.start + 1, s.end))


def test_a_slower_memory_takes_longer(program):
    def cycles(**memory):
        return program.run(engine="cycle", memory=MemoryOptions(**memory)).counters["cycles"]

    own = program.hw.dram
    assert cycles() == cycles(latency=own.latency, bytes_per_cycle=own.bytes_per_cycle)
    assert cycles(latency=0) < cycles() < cycles(latency=100)
    assert cycles() < cycles(bytes_per_cycle=own.bytes_per_cycle / 2)


def test_the_cycle_engine_takes_no_data(program):
    with pytest.raises(RunError, match="no data"):
        program.run(noise(program.bundle), engine="cycle")
    with pytest.raises(RunError, match="belongs to the cycle engine"):
        program.run(noise(program.bundle), memory=MemoryOptions())
