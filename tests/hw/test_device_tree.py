"""`opu.dtsi` of `hw rtl` compiles in a device tree, and says what the machine is."""

import subprocess
from pathlib import Path

import pytest

from opu_fuse.hw.isa.register_map import ADDRESS_BITS, VERSION_VALUE
from opu_fuse.hw.rtlgen.rtl_files import rtl_files
from opu_fuse.hw.spec.load_spec import load_hw
from tests.tools import require_tools

TREE = """\
/dts-v1/;
/ {
    #address-cells = <2>;
    #size-cells = <2>;
    gic: interrupt-controller@f9010000 {
        compatible = "arm,gic-400";
        #address-cells = <0>;
        #interrupt-cells = <3>;
        interrupt-controller;
        reg = <0x0 0xf9010000 0x0 0x10000>;
    };
};
/include/ "opu.dtsi"
"""
"""The tree of a board with a 64-bit Arm, as far as the machine needs it."""
MACHINE, BUFFER = "/opu@a0000000", "/udmabuf0"


@pytest.fixture(scope="module")
def blob(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled tree."""
    require_tools("dtc", "fdtget")
    folder = tmp_path_factory.mktemp("tree")
    (folder / "opu.dtsi").write_text(rtl_files(load_hw("opu-tiny"))["opu.dtsi"], encoding="utf-8")
    (folder / "board.dts").write_text(TREE, encoding="utf-8")
    said = _said(["dtc", "-I", "dts", "-O", "dtb", "-o", "board.dtb", "board.dts"], folder)
    assert said == "", "dtc warns"
    return folder / "board.dtb"


def _said(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def _property(blob: Path, node: str, name: str, kind: str) -> str:
    return _said(["fdtget", "-t", kind, blob.name, node, name], blob.parent).strip()


def _numbers(blob: Path, node: str, name: str) -> list[int]:
    return [int(word) for word in _property(blob, node, name, "u").split()]


def test_registers_are_as_large_as_the_map(blob: Path) -> None:
    assert _numbers(blob, MACHINE, "reg") == [0, 0xA000_0000, 0, 1 << ADDRESS_BITS]


def test_the_interrupt_is_a_level_at_the_interrupt_controller(blob: Path) -> None:
    """Three cells of a GIC: shared interrupt, number, level that is active when high (irq_o)."""
    shared, number, trigger = _numbers(blob, MACHINE, "interrupts")
    assert (shared, trigger) == (0, 4)
    assert number >= 0
    controller = "/interrupt-controller@f9010000"
    assert _numbers(blob, MACHINE, "interrupt-parent") == _numbers(blob, controller, "phandle")


def test_linux_finds_the_drivers(blob: Path) -> None:
    """UIO for the registers, under the version of their map, and u-dma-buf for memory."""
    version = f"{VERSION_VALUE >> 16}.{VERSION_VALUE & 0xFFFF}"
    names = _property(blob, MACHINE, "compatible", "s")
    assert names.split() == [f"opu-fuse,opu-{version}", "generic-uio"]
    assert _property(blob, BUFFER, "compatible", "s") == "ikwzm,u-dma-buf"


def test_the_buffer_has_the_name_that_open_device_takes(blob: Path) -> None:
    assert _property(blob, BUFFER, "device-name", "s") == "udmabuf0"
    high, low = _numbers(blob, BUFFER, "size")
    assert (high, low % 4096) == (0, 0)
    assert low > 0
