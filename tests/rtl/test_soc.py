"""A processor runs the driver, compiled for it, against the machine: rtl_sim/soc."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.bundle.program import MachineSegment
from opu_fuse.errors import RunError
from opu_fuse.hw.isa.register_map import ERROR_DOC, ErrorCode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import compile as compile_program
from opu_fuse.resources import rtl_dir
from opu_fuse.sim.cycle.run import MemoryOptions
from opu_fuse.sim.engine import FunctionalRunner, run_on
from opu_fuse.sim.ports import noise
from rtl_sim.build import Design, executable
from rtl_sim.cocotb_run import run_tests
from rtl_sim.soc.firmware import COMPILER, firmware, processor

pytestmark = pytest.mark.rtl
ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
PAGE, LATENCY = 4096, 20


class Recorder(FunctionalRunner):
    """Keeps the memory window as it was before the one machine segment."""

    def run(self, number, segment, sample):
        self.before = self.window.copy()
        return super().run(number, segment, sample)


def programs(hw):
    images = np.load(DIGITS / "heldout.npz")["images"][:1]
    model, known = DIGITS / "digits.onnx", DIGITS / "calibration.npz"
    digits = compile_program(model, hw, calibration=known, reuse_memory=False)
    yield digits, {digits.bundle.inputs[0].name: images}
    other = compile_program(zoo.build("tiny_residual"), hw, reuse_memory=False)
    yield other, noise(other.bundle)


@pytest.mark.skipif(
    shutil.which(COMPILER) is None and os.environ.get("CI") != "true",
    reason=f"needs {COMPILER} (apt-get install gcc-riscv64-unknown-elf)",
)
def test_a_processor_runs_two_programs_and_finds_every_fault(tmp_path):
    hw = load_hw("opu-tiny")
    memory, wanted, rows = b"", b"", []
    for program, inputs in programs(hw):
        recorder = Recorder(program.bundle, hw)
        run_on(recorder, program.bundle, inputs, engine="functional")
        (segment,) = (s for s in program.bundle.segments if isinstance(s, MachineSegment))
        timed = program.run(engine="cycle", memory=MemoryOptions(latency=LATENCY))
        room = -(-recorder.window.size // PAGE) * PAGE
        place = (len(memory), room, segment.program_offset, segment.words)
        rows.append((*place, timed.counters["cycles"]))
        memory += recorder.before.tobytes().ljust(room, b"\0")
        wanted += recorder.window.tobytes().ljust(room, b"\0")
    image = tmp_path / "dram.bin"
    image.write_bytes(memory)
    table = ", ".join("{" + ", ".join(f"{n}u" for n in row) + "}" for row in rows)
    cases = f"#define SPEC_HASH {hw.spec_hash:#x}ull\n#define PROGRAMS {{{table}}}\n"
    console = simulated(hw, tmp_path, image, firmware(tmp_path, cases))
    for code in (2, 3, 4, 6, 8, 9):  # the firmware met all of them, and ended after that
        assert f"{ERROR_DOC[ErrorCode(code)]} {code}" in console.splitlines(), console
    found = np.frombuffer(image.read_bytes(), np.uint8)
    wrong = np.flatnonzero(found != np.frombuffer(wanted, np.uint8))
    assert wrong.size == 0, f"{wrong.size} bytes differ, first at {wrong[0]:#x}"


def simulated(hw, folder, image, code):
    """What the firmware says; fails when it ends with another exit code than 0."""
    tb = rtl_dir() / "tb"
    machine = tuple(
        tb / name
        for name in ("opu_image.cpp", "opu_ddr.cpp", "opu_axi_memory.sv", "opu_machine.sv")
    )
    sources = (processor(), *machine, rtl_dir() / "soc" / "soc.sv")
    design = Design(top="soc", spec=hw, sources=sources)
    console = folder / "console.txt"
    tests, failed = run_tests(
        executable(design),
        "rtl_sim.soc.bench",
        folder,
        seed=1,
        log_file=console,
        extra_env={"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        plusargs=[f"+image={image}", f"+firmware={code}", f"+latency={LATENCY}"],
    )
    text = console.read_text(encoding="utf-8", errors="replace")
    assert tests == 1, text[-4000:]
    assert not failed, text[-4000:]
    return text


def test_a_missing_compiler_is_told_with_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match=r"gcc is not on the PATH.* gcc-riscv64-unknown-elf"):
        firmware(tmp_path, "")
