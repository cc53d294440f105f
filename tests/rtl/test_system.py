"""The whole machine under the fast simulation system, against the functional machine."""

import numpy as np
import pytest

from opu_fuse.hw.encoding import decode
from opu_fuse.hw.load import load_hw
from opu_fuse.sim.functional import Machine
from opu_fuse.sim.rtl_process import ProgramRun, RtlMachine
from tests.rtl.random_programs import PROGRAM_AT, random_image, random_program

pytestmark = pytest.mark.rtl
SEEDS = range(12)


@pytest.fixture(scope="module")
def spec():
    return load_hw("opu-tiny")


@pytest.fixture(scope="module")
def machine(spec):
    with RtlMachine(spec, np.zeros(0x10000, np.uint8), assertions=True) as started:
        yield started


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_leave_the_memory_that_the_functional_machine_leaves(machine, spec, seed):
    rng = np.random.default_rng(seed)
    program = random_program(rng, spec, 60)
    image, words = random_image(rng, program)
    machine.window[:] = image
    ran = machine.run(PROGRAM_AT, words, max_cycles=2_000_000)
    assert isinstance(ran, ProgramRun), ran
    Machine(spec, image).run(decode(image[PROGRAM_AT:].view("<u4")[:words]))
    wrong = np.flatnonzero(machine.window != image)
    assert wrong.size == 0, f"{wrong.size} bytes differ, first at {wrong[0]:#x}"
