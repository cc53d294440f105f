"""Devices of Linux, on a folder in the place of /dev and /sys."""

import socket
from pathlib import Path

import numpy as np
import pytest

import opu_fuse
from opu_fuse.devices import linux
from opu_fuse.devices.linux import DmaBuffer, PhysicalMemory, UioInterrupt, UioPage
from opu_fuse.errors import RunError
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.pipeline import Options, compile_model
from opu_fuse.program import Program
from opu_fuse.zoo.builder import Net
from tests.devices.pynq_shim import install_pynq
from tests.devices.register_model import MachineModel, noise

SIZE = 1 << 16


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A register page of zeros and a buffer at 0x70000000."""
    monkeypatch.setattr(linux, "DEVICES", tmp_path)
    monkeypatch.setattr(linux, "BUFFERS", tmp_path / "class")
    (tmp_path / "uio0").write_bytes(bytes(4096))
    (tmp_path / "udmabuf0").write_bytes(bytes(SIZE))
    own = tmp_path / "class" / "udmabuf0"
    own.mkdir(parents=True)
    (own / "phys_addr").write_text("0x0000000070000000\n")
    (own / "size").write_text(f"{SIZE}\n")
    return tmp_path


def test_registers_are_words_of_the_mapped_page(devices: Path) -> None:
    page = UioPage(0)
    page.registers.write(0x34, 0x7000_0000)
    assert page.registers.read(0x34) == 0x7000_0000
    assert (devices / "uio0").read_bytes()[0x34:0x38] == bytes.fromhex("00000070")
    page.close()


def test_a_buffer_has_the_kernels_address_and_maintains_caches(devices: Path) -> None:
    buffer, own = DmaBuffer("udmabuf0"), devices / "class" / "udmabuf0"
    assert (buffer.address, buffer.bytes.size) == (0x7000_0000, SIZE)
    buffer.bytes[5] = 7
    assert (devices / "udmabuf0").read_bytes()[5] == 7
    assert (own / "sync_size").read_text() == str(SIZE)
    buffer.to_device()
    assert (own / "sync_for_device").read_text() == "1"
    assert not (own / "sync_for_cpu").exists()
    buffer.to_processor()
    assert (own / "sync_for_cpu").read_text() == "1"


def test_an_interrupt_is_armed_then_taken() -> None:
    ours, kernel = socket.socketpair()
    with ours, kernel:
        interrupt = UioInterrupt(ours.fileno())
        assert not interrupt.wait(0.01)
        assert kernel.recv(4) == b"\1\0\0\0"
        kernel.send((41).to_bytes(4, "little"))
        assert interrupt.wait(1.0)
        assert not interrupt.wait(0.01), "one interrupt is one"


def test_what_is_missing_is_named_with_the_way_to_it(devices: Path) -> None:
    with pytest.raises(RunError, match=r"uio7: cannot be opened \(No such file.*\); load its"):
        opu_fuse.open_device("uio:7")
    with pytest.raises(RunError, match=r"udmabuf3: there is no such buffer .* modprobe u-dma-buf"):
        opu_fuse.open_device("uio:0,udmabuf3")
    (devices / "mem").write_bytes(bytes(8192))
    with pytest.raises(RunError, match=r"4,096 bytes at 0x11 cannot be mapped"):
        PhysicalMemory.registers(0x11)


@pytest.mark.parametrize("name", ["", "uio", "uio:x", "sim:cycle", "mem:1,2", "serial:0"])
def test_a_name_that_is_no_device_lists_those_that_are(name: str) -> None:
    with pytest.raises(RunError, match="names no device; use sim:functional, sim:native, sim:rtl"):
        opu_fuse.open_device(name)


def _program() -> Program:
    net, hw = Net("one", seed=1), load_hw("opu-tiny")
    model = net.finish(net.conv(net.input("x", (1, 3, 4, 4)), "conv", out=4, kernel=1))
    return Program(bundle=compile_model(model, hw, Options()).bundle, hw=hw)


def test_an_engine_is_a_device_too() -> None:
    program = _program()
    inputs = noise(program.bundle)
    with opu_fuse.open_device("sim:functional") as device:
        outputs = device.run(program, inputs).outputs
    assert np.array_equal(outputs["output"], program.run(inputs).outputs["output"])


def test_a_pynq_overlay_runs_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _program()
    pynq = install_pynq(monkeypatch, MachineModel(program.hw))
    model = pynq.model
    from opu_fuse.devices import pynq_driver

    ip = pynq_driver.OpuDriver({"fullpath": "opu_0"})
    inputs = noise(program.bundle)
    result = ip.run(program, inputs)
    assert result.engine == "opu_0"
    assert np.array_equal(result.outputs["output"], program.run(inputs).outputs["output"])
    assert model.synced == ["device", "processor"]
    assert not pynq.freed
