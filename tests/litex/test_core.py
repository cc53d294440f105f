"""The machine as a LiteX module: every port is connected, at every width of its bus."""

import re
from pathlib import Path
from typing import Any

import pytest
from litex.build.generic_platform import Pins
from litex.build.sim import SimPlatform
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc_core import SoCCore
from migen.genlib.io import CRG

from opu_fuse.hw.rtlgen.rtl_files import TOP, rtl_files
from opu_fuse.hw.rtlgen.top_ports import top_ports
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.litex import core
from rtl_sim.litex.boards import board_soc
from rtl_sim.litex.simulate import SimulatedSoC

MEMORY_BYTES = 1 << 20


@pytest.fixture(params=["opu-micro", "opu-tiny", "opu-1024"])
def built(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A SoC and the Verilog around the machine; the machine's own is what `hw rtl` tests."""
    monkeypatch.setattr(core, "plain_verilog", lambda *_, **__: "")
    spec = load_hw(request.param)
    soc = SimulatedSoC(spec, tmp_path, MEMORY_BYTES)
    builder = Builder(soc, output_dir=str(tmp_path), compile_software=False, compile_gateware=False)
    builder.build(run=False)
    return spec, soc, tmp_path


def test_every_port_of_the_machine_is_connected(built: Any) -> None:
    spec, _, folder = built
    (text,) = re.findall(rf"\n{TOP} \w+ ?\((.*?)\);", (folder / "gateware/sim.v").read_text(), re.S)
    connected = re.findall(r"\.(\w+)\s*\(", text)
    ports = top_ports(rtl_files(spec)[f"{TOP}.sv"], spec)
    assert sorted(connected) == sorted(port.name for port in ports)


def test_software_finds_registers_interrupt_and_spec(built: Any) -> None:
    spec, soc, folder = built
    headers = folder / "software/include/generated"
    assert "#define OPU_BASE 0xb0000000L" in (headers / "mem.h").read_text()
    constants = (headers / "soc.h").read_text()
    assert f"#define OPU_MACHINE_LO {spec.spec_hash & 0xFFFFFFFF}" in constants
    assert f"#define OPU_MACHINE_HI {spec.spec_hash >> 32}" in constants
    assert "#define OPU_INTERRUPT" in constants
    assert soc.bus.regions["opu"].size == 4096


def test_a_board_with_sdram_has_the_machine_at_litedram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ULX3S of litex-boards: the machine's memory port is one of the crossbar's."""
    monkeypatch.setattr(core, "plain_verilog", lambda *_, **__: "")
    soc = board_soc("radiona_ulx3s", load_hw("opu-tiny"), tmp_path)
    builder = Builder(soc, output_dir=str(tmp_path), compile_software=False, compile_gateware=False)
    builder.build(run=False)
    text = (tmp_path / "gateware" / "radiona_ulx3s.v").read_text()
    assert re.search(rf"\n{TOP} \w+ ?\(", text)
    assert "opu" not in soc.bus.masters  # as in a SoC without SDRAM
    masters = {port.data_width for port in soc.sdram.crossbar.masters}
    assert len(soc.sdram.crossbar.masters) == 2, masters  # the processor's L2 cache, the machine


def test_the_example_of_the_page_adds_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/litex.md, "In your SoC": in a SoC that has no machine."""
    monkeypatch.setattr(core, "plain_verilog", lambda *_, **__: "")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).resolve().parents[2] / "docs" / "litex.md").read_text("utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    platform = SimPlatform("SIM", [("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1))])
    soc = SoCCore(
        platform,
        1_000_000,
        cpu_type="vexriscv",
        uart_name="stub",
        integrated_rom_size=1 << 17,
        integrated_main_ram_size=MEMORY_BYTES,
    )
    soc.crg = CRG(platform.request("sys_clk"))
    exec(example, {"soc": soc, "__name__": "example"})
    builder = Builder(soc, output_dir="soc", compile_software=False, compile_gateware=False)
    builder.build(run=False)
    assert re.search(rf"\n{TOP} \w+ ?\(", Path("soc/gateware/sim.v").read_text())
    region = soc.bus.regions["opu"]
    assert (region.origin, region.size) == (0xB000_0000, 4096)
    assert "#define OPU_INTERRUPT" in Path("soc/software/include/generated/soc.h").read_text()
