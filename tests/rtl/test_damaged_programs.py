"""Programs with changed instructions on the RTL: an error code or the end, never a hang."""

import zipfile

import numpy as np
import pytest

from opu_fuse.bundle.memory_image import initial_image
from opu_fuse.bundle.program import MachineSegment
from opu_fuse.errors import UserError
from opu_fuse.pipeline import Program
from opu_fuse.sim.rtl.machine_run import MachineStop, ProgramRun
from opu_fuse.sim.rtl.process import RtlMachine
from tests.fuzz.programs import BASES, KIND, base_members, damaged_file

pytestmark = [pytest.mark.rtl, pytest.mark.nightly]

CASES = 60
WATCHDOG = 50_000
LONGEST_CYCLES = 20_000_000


def programs(folder):
    """Damaged programs for opu-tiny that are read all the same, and whose words were changed."""
    for seed in range(1, 10_000):
        case = KIND.draw(seed)
        if BASES[case.base][0] not in ("sample", "zoo", "opu-tiny"):
            continue
        path = folder / f"{seed}.opu"
        path.write_bytes(damaged_file(case))
        try:
            program = Program.load(path)
        except UserError:
            continue
        with zipfile.ZipFile(path) as archive:
            words = archive.read("program.bin")
        if words != base_members(case.base)["program.bin"]:
            yield seed, program


def test_changed_instructions_stop_or_end(tmp_path):
    found = programs(tmp_path)
    outcomes = []
    for _ in range(CASES):
        seed, program = next(found)
        print(f"case {seed}")
        image = initial_image(program.bundle)
        segments = [s for s in program.bundle.segments if isinstance(s, MachineSegment)]
        outcomes += [outcome(program.hw, image, segment) for segment in segments]
    assert MachineStop in outcomes
    assert ProgramRun in outcomes


def outcome(hw, image: np.ndarray, segment):
    """A machine that has stopped takes no other program."""
    with RtlMachine(hw, image, watchdog=WATCHDOG) as machine:
        return type(machine.run(segment.program_offset, segment.words, max_cycles=LONGEST_CYCLES))
