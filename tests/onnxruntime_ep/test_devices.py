"""Machines behind registers: files stand for the devices of Linux, and tests for the machine."""

import gc
from pathlib import Path

import numpy as np
import pytest

from opu_fuse import zoo
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.options import Options
from opu_fuse.pipeline import compile_model
from opu_fuse.sim.engine import run
from opu_fuse.sim.functional.machine import Machine
from opu_fuse.sim.ports import noise
from tests.devices.linux_files import OFFSET, write_linux_files
from tests.devices.served import served_model
from tests.onnxruntime_ep.conftest import MACHINE, context, refusal

HW = load_hw(MACHINE)


@pytest.fixture
def linux(tmp_path, monkeypatch):
    root = write_linux_files(tmp_path / "root", HW)
    monkeypatch.setenv("OPU_ROOT", str(root))
    return root


def compute(root: Path) -> None:
    """What the machine would do with its memory: the program in its registers."""
    words = np.fromfile(root / "dev/uio0", "<u4")
    at, count, size = (
        int(words[OFFSET[name] // 4]) for name in ("PROG_BASE_LO", "PROG_WORDS", "WINDOW_SIZE_LO")
    )
    memory = np.memmap(root / "dev/udmabuf0", np.uint8, "r+")
    window = np.array(memory[:size])
    Machine(HW, window).run(decode(window[at : at + 4 * count].view("<u4")))
    memory[:size] = window


def network(name):
    """(model, inputs, outputs); the machine's outputs stay in memory while inputs are packed."""
    done = compile_model(zoo.build(name), HW, Options(reuse_memory=False))
    x = noise(done.bundle, seed=7)
    return context(done).model.SerializeToString(), x, run(done.bundle, HW, x).outputs


def right(opened, x, expected) -> bool:
    got = opened.run(None, x)
    return all(np.array_equal(a, b) for a, b in zip(got, expected.values(), strict=True))


def test_a_machine_on_linux_gets_program_constants_and_inputs(linux, session):
    model, x, expected = network("tiny_residual")
    opened = session(model, device="uio:0", timeout="5")
    assert not right(opened, x, expected), "nobody has computed anything"
    compute(linux)
    assert right(opened, x, expected)
    assert (linux / "sys/class/u-dma-buf/udmabuf0/sync_for_device").read_text() == "1"


def test_sessions_share_a_machine_and_the_last_one_closes_it(linux, session):
    networks = [network(name) for name in ("tiny_residual", "tiny_odd")]
    sessions = [session(model, device="uio:0") for model, _, _ in networks]
    for n in (0, 1, 0, 1):
        _, x, expected = networks[n]
        sessions[n].run(None, x)  # the program in memory is another one
        compute(linux)
        assert right(sessions[n], x, expected)
    assert "root/dev/udmabuf0" in Path("/proc/self/maps").read_text()
    sessions.clear()
    assert "root/dev/udmabuf0" not in Path("/proc/self/maps").read_text()


def test_devices_that_cannot_be_opened_are_one_line(linux, session):
    model, _, _ = network("tiny_residual")

    def said(**options: str) -> str:
        return refusal(lambda: session(model, **options))

    assert "option device: there is no device gpu; say native, uio:N, " in said(device="gpu")
    assert "option device: uio:x: is no name of a device; " in said(device="uio:x")
    assert "dev/uio3: No such file or directory; " in said(device="uio:3")
    assert "option timeout: is no whole number of seconds; " in said(timeout="soon")
    assert "option devcie: there is no such option; say device, " in said(devcie="uio:0")
    (linux / "sys/class/u-dma-buf/udmabuf0/size").write_text("4096\n")
    assert said(device="uio:0").endswith("give the device more memory")


def test_another_machine_is_refused(linux, session):
    words = np.fromfile(linux / "dev/uio0", "<u4")
    words[OFFSET["SPEC_HASH_LO"] // 4] ^= 1
    words.tofile(linux / "dev/uio0")
    model, _, _ = network("tiny_residual")
    said = refusal(lambda: session(model, device="uio:0"))
    assert "segment0: the machine is another one than the program was compiled for; " in said


def test_sessions_run_on_a_simulated_machine_with_the_bits_of_run(session):
    networks = [network(name) for name in ("tiny_residual", "tiny_odd")]
    with served_model(HW) as (path, _, _):
        sessions = [session(model, device=f"sim:{path}", timeout="60") for model, _, _ in networks]
        for n in (0, 1, 0):
            _, x, expected = networks[n]
            assert right(sessions[n], x, expected)
        sessions.clear()
        gc.collect()
    said = refusal(lambda: session(networks[0][0], device=f"sim:{path}"))
    assert "no simulation listens there (opu-fuse hw sim)" in said
