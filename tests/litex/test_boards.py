"""Projects for boards: sources, constraints and scripts are complete. None is built here."""

import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import pytest
from litex.soc.integration.builder import Builder

from opu_fuse.errors import UserError
from opu_fuse.hw.rtlgen.rtl_files import TOP
from opu_fuse.hw.spec.load_spec import load_hw
from opu_fuse.litex import core
from rtl_sim.litex import project
from rtl_sim.litex.boards import BAUD, board_soc

ULX3S, ZYNQ, KINTEX = "radiona_ulx3s", "digilent_pynq_z1", "qmtech_xc7k325t"
PARTS = {ZYNQ: "xc7z020clg400-1", KINTEX: "xc7k325tffg676-1"}
FAMILIES = {ZYNQ: "zynq7", KINTEX: "kintex7"}
_PORT = r"^    (?:input|output|inout) +(?:wire|reg) +(?:\[\d+:0\] +)?(\w+)"
needs_liteeth = pytest.mark.skipif(
    importlib.util.find_spec("liteeth") is None and os.environ.get("CI") != "true",
    reason="needs liteeth (pip install '.[litex]')",
)
SEVEN = [ZYNQ, pytest.param(KINTEX, marks=needs_liteeth)]


def written(name: str, toolchain: str, folder: Path, spec: str = "opu-tiny") -> Any:
    """The SoC of a board, whose project is in `folder`; its ROM is empty."""
    soc = board_soc(name, load_hw(spec), folder, toolchain=toolchain)
    builder = Builder(soc, output_dir=str(folder), compile_software=False, compile_gateware=False)
    with project.written(soc, folder / "gateware"):
        builder.build(run=False)
    return soc


@pytest.fixture
def without_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Verilog is what tests of `hw rtl` look at; writing it takes half a minute."""
    monkeypatch.setattr(core, "plain_verilog", lambda *_, **__: f"module {TOP}; endmodule\n")


def modules_of(texts: list[str]) -> set[str]:
    return {name for text in texts for name in re.findall(r"^\s*module (\w+)", text, re.MULTILINE)}


@pytest.mark.parametrize("name", SEVEN)
@pytest.mark.parametrize("toolchain", ["vivado", "openxc7"])
def test_a_project_of_7_series_has_every_source_pin_and_step(
    name: str, toolchain: str, tmp_path: Path, without_machine: None
) -> None:
    soc = written(name, toolchain, tmp_path)
    gateware = tmp_path / "gateware"
    script = (gateware / f"{name}.{'tcl' if toolchain == 'vivado' else 'ys'}").read_text()
    read = re.findall(r"^read_verilog \{?([^\s{}]+)", script, re.MULTILINE)
    assert all(Path(path).is_file() for path in read)
    assert {Path(path).name for path in read} >= {f"{TOP}.v", "VexRiscv.v", f"{name}.v"}
    top = (gateware / f"{name}.v").read_text()
    assert modules_of([Path(path).read_text() for path in read]) >= {TOP, "VexRiscv", name}
    for contents in re.findall(r'\$readmemh\("([^"]+)"', top):
        assert (gateware / contents).is_file()
    pins = (gateware / f"{name}.xdc").read_text()
    for port in re.findall(_PORT, top, re.MULTILINE):
        assert re.search(rf"get_ports \{{{port}[}}\[]", pins), port
    commands = (gateware / f"build_{name}.sh").read_text()
    if toolchain == "vivado":
        assert f"-part {PARTS[name]}" in script
        assert "write_bitstream" in script
        assert f"source {name}.tcl" in commands
    else:
        assert f"synth_xilinx -flatten -abc9 -arch xc7  -top {name}" in script
        steps = re.findall(r"^(\S+) ", commands, re.MULTILINE)
        assert steps[-4:] == ["yosys", "nextpnr-xilinx", "fasm2frames", "xc7frames2bit"]
        part = PARTS[name]
        assert f"${{CHIPDB}}/{part.rpartition('-')[0]}.bin" in commands
        assert f"${{PRJXRAY_DB_DIR}}/{FAMILIES[name]}/{part}/part.yaml" in commands
        assert "/tmp" not in commands.replace(str(tmp_path), "")
    assert soc.platform.device == PARTS[name]


@needs_liteeth
def test_a_board_with_ddr3_has_the_machine_at_litedram(
    tmp_path: Path, without_machine: None
) -> None:
    soc = written(KINTEX, "vivado", tmp_path)
    assert len(soc.sdram.crossbar.masters) == 2  # the processor's L2 cache, the machine
    assert "opu" not in soc.bus.masters


def test_the_ulx3s_has_registers_at_the_pins_of_its_memory(
    tmp_path: Path, without_machine: None
) -> None:
    """Data and enable of a pin leave in the same cycle; the port can be driven from both sides."""
    soc = written(ULX3S, "", tmp_path, "opu-ulx3s")
    text = (tmp_path / "gateware" / f"{ULX3S}.v").read_text()
    assert re.search(r"inout\s+wire\s+\[15:0\] sdram_dq", text)
    registers = {
        match[2]: match[1]
        for match in re.finditer(
            r"^([IO]FS1P3BX) \w+\(\n.*?\n\t\.Q +\((\S+)\)", text, re.DOTALL | re.MULTILINE
        )
    }
    pads = re.findall(
        r"\) TRELLIS_IO\w* ?\(.*?\.I \((\S+)\).*?\.T \((\S+)\).*?\.B \(sdram_dq\[\d+\]\)",
        text,
        re.DOTALL,
    )
    assert len(pads) == 16
    assert {registers[signal] for pad in pads for signal in pad} == {"OFS1P3BX"}
    assert (
        len({signal for pad in pads for signal in pad}) == 32
    )  # each pad has registers of its own
    assert list(registers.values()).count("IFS1P3BX") == 16
    assert soc.sys_clk_freq == 1e6 * load_hw("opu-ulx3s").clock_mhz
    assert soc.bus.regions["main_ram"].size == 32 << 20


def test_the_pins_of_the_ulx3s_are_those_of_its_public_constraints(
    tmp_path: Path, without_machine: None
) -> None:
    """Pins of versions 2.x to 3.1.6, from the board's own files."""
    written(ULX3S, "", tmp_path, "opu-ulx3s")
    text = (tmp_path / "gateware" / f"{ULX3S}.lpf").read_text()
    pins = dict(re.findall(r'LOCATE COMP "(\S+)" SITE "(\w+)"', text))
    assert (pins["clk25"], pins["rst"]) == ("G2", "R1")
    assert (pins["serial_tx"], pins["serial_rx"]) == ("L4", "M1")
    assert pins["sdram_clock"] == "F19"
    data = "J16 L18 M18 N18 P18 T18 T17 U20 E19 D20 D19 C20 E18 F18 J18 J17"
    assert [pins[f"sdram_dq[{n}]"] for n in range(16)] == data.split()
    address = "M20 M19 L20 L19 K20 K19 K18 J20 J19 H20 N19 G20 G19"
    assert [pins[f"sdram_a[{n}]"] for n in range(13)] == address.split()


def test_the_serial_line_has_the_rate_of_the_host(tmp_path: Path, without_machine: None) -> None:
    """Within one part in a thousand: LiteX adds a tuning word every cycle."""
    soc = written(ULX3S, "", tmp_path, "opu-ulx3s")
    text = (tmp_path / "gateware" / f"{ULX3S}.v").read_text()
    words = re.findall(r"_([rt]x)_phase\} <= \(\w+ \+ \d+'d(\d+)\)", text)
    assert {direction for direction, _ in words} == {"rx", "tx"}
    for _, word in words:
        assert int(word) == pytest.approx(BAUD / soc.sys_clk_freq * 2**32, rel=1e-3)


def test_an_unknown_board_or_toolchain_is_refused(tmp_path: Path) -> None:
    spec = load_hw("opu-tiny")
    with pytest.raises(UserError, match=r"--board nothing: cannot be loaded.*litex-boards"):
        board_soc("nothing", spec, tmp_path)
    with pytest.raises(UserError, match=r"--toolchain nothing: radiona_ulx3s does not have it"):
        board_soc(ULX3S, spec, tmp_path, toolchain="nothing")
