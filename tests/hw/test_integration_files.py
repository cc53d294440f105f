"""What other tools read of a machine: IP-XACT, SystemRDL, read back by libraries of theirs."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from ipyxact import ipyxact
from systemrdl.compiler import RDLCompiler
from systemrdl.node import FieldNode, RegNode

from opu_fuse.hw.isa.register_map import CONTROL_REGISTERS, AccessKind
from opu_fuse.hw.rtlgen.ip_xact import VLNV
from opu_fuse.hw.rtlgen.rtl_files import rtl_files
from opu_fuse.hw.spec.load_spec import load_hw

BUS_BYTES = {"opu-tiny": 8, "opu-1024": 64}


@pytest.fixture(params=sorted(BUS_BYTES))
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


def _component(machine: str, folder: Path, prefix: str = "") -> tuple[Any, dict[str, str]]:
    files = rtl_files(load_hw(machine), prefix)
    path = folder / "component.xml"
    path.write_text(files["component.xml"], encoding="utf-8")
    component = vars(ipyxact)["Component"]()  # made from a table when it loads
    with path.open(encoding="utf-8") as file:
        component.load(file)
    return component, files


def _left_bits(text: str) -> dict[str | None, int]:
    """Port -> its highest bit, of vectors, which ipyxact leaves out in IP-XACT of 2009."""
    root = ET.fromstring(text)
    ports = root.findall(".//{*}model/{*}ports/{*}port")
    return {
        port.findtext("{*}name"): int(left)
        for port in ports
        if (left := port.findtext("{*}wire/{*}vector/{*}left")) is not None
    }


def test_a_component_has_the_buses_of_the_machine(machine: str, tmp_path: Path) -> None:
    component, files = _component(machine, tmp_path)
    assert VLNV == "opu-fuse:user:opu:1.3"
    names = (component.vendor, component.library, component.name, component.version)
    assert ":".join(names) == VLNV
    buses = {bus.name: bus for bus in component.busInterfaces.busInterface}
    assert set(buses) == {"s_axil", "m_axi", "clk_i", "rst_ni", "irq_o"}
    ports = {port.name: port for port in component.model.ports.port}
    for name, bus in buses.items():
        for pair in bus.portMaps.portMap:
            logical, physical = pair.logicalPort.name, pair.physicalPort.name
            assert physical in ports
            if name.startswith(("s_", "m_")):
                assert physical == f"{name}_{logical.lower()}"
    mapped = {p.physicalPort.name for bus in buses.values() for p in bus.portMaps.portMap}
    assert mapped == set(ports), "every port belongs to a bus or a signal"
    left = _left_bits(files["component.xml"])
    assert left["m_axi_wdata"] == 8 * BUS_BYTES[machine] - 1
    assert (left["m_axi_awaddr"], left["s_axil_araddr"]) == (39, 11)
    assert "clk_i" not in left
    assert ports["m_axi_wdata"].wire.direction == "out"
    assert ports["m_axi_rdata"].wire.direction == "in"
    named = [file.name for file in component.fileSets.fileSet[0].file]
    assert set(named) <= files.keys()
    assert named.index("opu_pkg.sv") < named.index("opu_top.sv")


def test_a_components_registers_are_those_of_the_map(tmp_path: Path) -> None:
    component, _ = _component("opu-tiny", tmp_path)
    (block,) = component.memoryMaps.memoryMap[0].addressBlock
    found = {
        r.name: (r.addressOffset, {f.name: (f.bitOffset, f.bitWidth) for f in r.field})
        for r in block.register
    }
    assert found == {
        r.name: (r.offset, {f.name: (f.lsb, f.width) for f in r.fields}) for r in CONTROL_REGISTERS
    }
    assert block.range == 4096


def test_a_prefix_is_on_the_top_module_and_its_files(tmp_path: Path) -> None:
    component, files = _component("opu-tiny", tmp_path, "left_")
    assert "<spirit:modelName>left_opu_top</spirit:modelName>" in files["component.xml"]
    assert "left_opu_top.sv" in [file.name for file in component.fileSets.fileSet[0].file]


def test_the_register_description_compiles_to_the_same_map(tmp_path: Path) -> None:
    path = tmp_path / "opu.rdl"
    path.write_text(rtl_files(load_hw("opu-tiny"))["opu.rdl"], encoding="utf-8")
    compiler = RDLCompiler()
    compiler.compile_file(str(path))
    top = compiler.elaborate().top
    registers = {node.inst_name: node for node in top.children() if isinstance(node, RegNode)}
    assert list(registers) == [register.name for register in CONTROL_REGISTERS]
    for register in CONTROL_REGISTERS:
        node = registers[register.name]
        assert node.absolute_address == register.offset
        assert node.get_property("desc") == register.doc
        fields = {f.inst_name: f for f in node.children() if isinstance(f, FieldNode)}
        if register.fields:
            assert {n: (f.low, f.width) for n, f in fields.items()} == {
                f.name: (f.lsb, f.width) for f in register.fields
            }
        resets = {name: f.get_property("reset") for name, f in fields.items()}
        reset = sum(r << fields[name].low for name, r in resets.items() if isinstance(r, int))
        assert reset == register.reset, register.name
        writable = register.access is not AccessKind.RO
        assert all(f.is_sw_writable is writable for f in fields.values()), register.name
