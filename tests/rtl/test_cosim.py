"""The machine in a bench of others: the project of `cosim init`, and what it must notice."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opu_fuse import Program
from opu_fuse.cosim import simulate
from opu_fuse.sim.compare.runs import compare

pytestmark = pytest.mark.rtl
ROOT = Path(__file__).resolve().parents[2]
BROKEN = 0
"""Offset in memory of the byte that is broken: one of the weights of the first convolution."""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder that held nothing, behind `cosim init` and `pytest`."""
    folder = tmp_path_factory.mktemp("cosim") / "bench"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for name in [name for name in environment if name.startswith("PYTEST")]:
        del environment[name]
    commands = (
        [sys.executable, "-m", "opu_fuse", "cosim", "init", str(folder)],
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp=out"],
    )
    for command, place in zip(commands, (ROOT, folder), strict=True):
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return folder


def test_the_new_project_passes_and_what_it_has_not_promised_is_noticed(project, tmp_path):
    """A broken weight is named by the value that the functional engine makes of it, too."""
    path = next(project.glob("out/*/network.opu"))
    program = Program.load(path)
    rng = np.random.default_rng(1)
    inputs = {p.name: rng.normal(size=p.shape).astype(p.dtype) for p in program.bundle.inputs}
    right = program.run(inputs, capture=True)
    constants = program.bundle.constants.copy()
    constants[BROKEN] ^= 0x40
    bundle = replace(program.bundle, constants=constants)
    wrong = Program(bundle=bundle, hw=program.hw).run(inputs, capture=True)
    first = compare(program.bundle, right, wrong).first
    assert first is not None
    group = program.bundle.groups[first.group]
    rows = [
        f"{name}{list(map(int, index))}, group {first.group} ({group.name}), instruction "
        for name in group.outputs
        for index in np.argwhere(right.tensors[name] != wrong.tensors[name])
    ]
    (tmp_path / "rows.txt").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "bench_more.py").write_text(MORE, encoding="utf-8")
    simulate(
        program.hw,
        top="soc",
        sources=[project / "soc_share.sv", project / "soc.sv"],
        module="bench_more",
        python_path=[tmp_path, project],
        folder=tmp_path,
        environment={"PROGRAM": str(path), "ROWS": str(tmp_path / "rows.txt")},
    )


MORE = f"""
import os
from dataclasses import replace
from pathlib import Path

import cocotb
import pytest
from bench_soc import WINDOW, noise, started
from cocotb.triggers import with_timeout

from opu_fuse.cosim import OpuDriver, ProgramBench
from opu_fuse.errors import RunError
from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.isa.register_map import ErrorCode
from opu_fuse.sim.rtl.machine_run import MachineStop

BROKEN = WINDOW + {BROKEN}


def break_weight(memory):
    memory.write(BROKEN, bytes([memory.read(BROKEN, 1)[0] ^ 0x40]))


def named(message):
    rows = Path(os.environ["ROWS"]).read_text().splitlines()
    return any(row in message for row in rows) and "post.run" in message


@cocotb.test()
async def a_broken_weight_is_named_by_tensor_index_group_and_instruction(dut):
    bench, _, memory = await started(dut)
    break_weight(memory)
    with pytest.raises(RunError) as error:
        await bench.run(noise(bench))
    assert named(str(error.value)), error.value
    assert "bytes of that store differ" in str(error.value), error.value
    await bench.load()
    await bench.run(noise(bench))  # the machine was stopped, and runs again


@cocotb.test()
async def without_a_look_inside_it_is_named_at_the_end(dut):
    bench, _, memory = await started(dut)
    blind = ProgramBench(bench.program, OpuDriver(bench.opu.control), memory, base=WINDOW)
    result = await blind.run(noise(bench))  # polls, since it sees no interrupt either
    assert result.trace == () and result.counters["cycles"] > 0
    break_weight(memory)
    with pytest.raises(RunError, match="bytes of the memory window differ"):
        await blind.run(noise(bench))


@cocotb.test()
async def a_machine_that_stops_says_where_and_why(dut):
    bench, _, memory = await started(dut)
    segment = bench.program.bundle.segments[0]
    at = WINDOW + segment.program_offset + 4 * 8
    memory.write(at, (0xE000_0000).to_bytes(4, "little"))  # an engine that does not exist
    with pytest.raises(RunError, match="stopped with illegal_instruction .* program word 8: group"):
        await bench.run(noise(bench))


@cocotb.test()
async def another_machine_is_refused(dut):
    bench, _, _ = await started(dut)
    other = replace(bench.program.hw, name="other", counter_bits=5)
    with pytest.raises(RunError, match="was built for spec .*, other is "):
        await bench.opu.probe(other)
    with pytest.raises(RunError, match="no machine answers; look at base address, clock and reset"):
        await OpuDriver(bench.opu.control, base=0x20).probe(other)


@cocotb.test()
async def a_program_can_be_stopped(dut):
    bench, _, _ = await started(dut)
    segment = bench.program.bundle.segments[0]
    await bench.opu.start(segment.program_offset, segment.words)
    await bench.opu.command("stop")
    stop = await with_timeout(bench.opu.wait(), 100, "us")
    assert stop == MachineStop(code=ErrorCode.STOPPED, engine=Engine.FETCH, pc=stop.pc)
"""
