"""The whole machine under the fast simulation system, against the functional machine."""

import numpy as np
import pytest
from msgspec.structs import replace

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.sim.rtl.machine_run import MachineStop, ProgramRun
from opu_fuse.sim.rtl.process import RtlMachine
from tests.rtl.machines import write_machine
from tests.rtl.random_programs import (
    PROGRAM_AT,
    WINDOW_BYTES,
    copy,
    framed,
    load,
    program_image,
    random_image,
    random_program,
)
from tests.tiers import by_night

pytestmark = pytest.mark.rtl
SEEDS = range(12)


@pytest.fixture(scope="module")
def spec():
    return load_hw("opu-tiny")


@pytest.fixture(scope="module")
def machine(spec):
    with RtlMachine(spec, np.zeros(WINDOW_BYTES, np.uint8)) as started:
        yield started


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_leave_the_memory_that_the_functional_machine_leaves(machine, spec, seed):
    check_random_program(machine, spec, seed)


def check_random_program(machine, spec, seed):
    rng = np.random.default_rng(seed)
    program = random_program(rng, spec, 60)
    image, words = random_image(rng, program)
    machine.window[:] = image
    ran = machine.run(PROGRAM_AT, words, max_cycles=2_000_000)
    assert isinstance(ran, ProgramRun), ran
    Machine(spec, image).run(decode(image[PROGRAM_AT:].view("<u4")[:words]))
    wrong = np.flatnonzero(machine.window != image)
    assert wrong.size == 0, f"{wrong.size} bytes differ, first at {wrong[0]:#x}"


def test_a_memory_may_take_data_before_their_address(spec, caplog):
    caplog.set_level("INFO")
    for orders in (1, 2, 3):
        with RtlMachine(spec, np.zeros(WINDOW_BYTES, np.uint8), orders=orders) as machine:
            for seed in range(20 * orders, 20 * orders + 6):
                check_random_program(machine, spec, seed)
        assert "taken before their address" in caplog.text  # whole once the simulator has ended
        caplog.clear()


@pytest.mark.parametrize(
    "name", by_night(["every-module", "few-modules", "paired-windows"], ["few-modules"])
)
def test_random_programs_on_machines_with_more_and_fewer_modules(name, tmp_path):
    other = load_hw(write_machine(name, tmp_path))
    with RtlMachine(other, np.zeros(WINDOW_BYTES, np.uint8)) as machine:
        for seed in SEEDS:
            check_random_program(machine, other, seed)


def run(machine, program):
    machine.window[:], words = program_image(program)
    return machine.run(PROGRAM_AT, words, max_cycles=100_000)


def test_an_error_names_engine_and_word_and_the_next_run_is_not_disturbed(machine, spec):
    found = run(machine, framed([load("feature", WINDOW_BYTES, 1)], spec))
    assert isinstance(found, MachineStop)
    assert (found.code, found.engine) == (ErrorCode.WINDOW, Engine.LOAD)
    word = int(machine.window[PROGRAM_AT:].view("<u4")[found.pc])
    assert word >> 31, "not the word that starts the engine"
    assert word >> 28 & 7 == Engine.LOAD
    check_random_program(machine, spec, seed=100)


def test_reset_keeps_the_window_and_the_machine_works_on(machine, spec):
    machine.window[:] = 7
    machine.reset()
    assert (machine.window == 7).all()
    check_random_program(machine, spec, seed=101)


def test_every_instruction_retires_once_and_in_order(machine, spec):
    program = random_program(np.random.default_rng(5), spec, 40)
    ran = run(machine, program)
    words = machine.window[PROGRAM_AT:].view("<u4")
    for engine in Engine:
        retired = [r for r in ran.retired if r.engine is engine]
        expected = [
            n for n, w in enumerate(words[:5000].tolist()) if w >> 31 and w >> 28 & 7 == engine
        ]
        assert [r.pc for r in retired] == expected[: len(retired)]
        assert len(retired) == sum(x.engine is engine for x in program)
        assert all(r.start <= r.end <= ran.cycles for r in retired)
        assert [r.end for r in retired] == sorted(r.end for r in retired)


def test_the_same_run_takes_the_same_cycles(machine, spec):
    program = random_program(np.random.default_rng(6), spec, 20)
    one, two = run(machine, program), run(machine, program)
    assert replace(one, seconds=0.0) == replace(two, seconds=0.0)


def test_a_deadlock_is_stopped_by_the_watchdog_and_told_with_its_code(spec):
    waiting = replace(copy(1, 1, spec), waits=(Engine.LOAD,))
    image, words = program_image(framed([waiting], spec))
    with RtlMachine(spec, image, watchdog=1000) as short:
        found = short.run(PROGRAM_AT, words)
    assert isinstance(found, MachineStop)
    assert found.code is ErrorCode.WATCHDOG


def test_a_run_that_does_not_end_is_given_up(spec):
    waiting = replace(copy(1, 1, spec), waits=(Engine.LOAD,))
    image, words = program_image(framed([waiting], spec))
    patient = RtlMachine(spec, image, watchdog=0)
    with patient, pytest.raises(RunError, match="not done after 5000 cycles"):
        patient.run(PROGRAM_AT, words, max_cycles=5000)


def test_bandwidth_and_latency_are_what_they_are_set_to(spec):
    program = framed([load("feature", 0, 256)], spec)
    image, words = program_image(program)
    cycles = {}
    for latency, rate in ((2, 8.0), (2, 2.0), (2, 0.5), (200, 8.0)):
        options = {"latency": latency, "bytes_per_cycle": rate}
        with RtlMachine(spec, image, **options) as machine:
            ran = machine.run(PROGRAM_AT, words)
        assert isinstance(ran, ProgramRun)
        cycles[latency, rate] = ran.cycles
    moved = 256 * spec.word_bytes + 4 * words
    saved = spec.dram.bus_bytes  # one beat's budget is there from the start
    for rate in (8.0, 2.0, 0.5):
        assert (moved - saved) / rate <= cycles[2, rate] <= moved / rate + 60
    # One latency to fetch the program; bursts of the load run ahead, OUTSTANDING at a time.
    bursts = 256 * spec.word_bytes / spec.dram.bus_bytes / spec.dram.max_burst
    waits = 1 + bursts / spec.dram.outstanding
    assert cycles[200, 8.0] >= 200 * waits
    assert cycles[200, 8.0] <= cycles[2, 8.0] + 200 * (waits + 1)


@pytest.mark.nightly
def test_waves_are_a_whole_fst_file(spec, tmp_path):
    image, words = program_image(framed([load("feature", 0, 4)], spec))
    path = tmp_path / "waves.fst"
    with RtlMachine(spec, image, waves=path) as machine:
        assert isinstance(machine.run(PROGRAM_AT, words), ProgramRun)
    data, at, kinds = path.read_bytes(), 0, []
    while at < len(data):  # blocks: one byte of type, eight of length without the type
        kinds.append(data[at])
        at += 1 + int.from_bytes(data[at + 1 : at + 9], "big")
    assert at == len(data), "the last block is cut"
    header, geometry, hierarchy = 0, 3, 6
    assert {header, geometry, hierarchy} <= set(kinds), kinds
    assert len(kinds) >= 4, "no value changes"
