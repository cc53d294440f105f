"""A machine as IP for Vivado's block designs: IP-XACT (IEEE 1685-2009, which the IP integrator
reads), and a script that adds it to a design.
"""

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence

from opu_fuse.hw.isa.register_map import (
    ADDRESS_BITS,
    CONTROL_REGISTERS,
    VERSION_VALUE,
    AccessKind,
    ControlRegister,
)
from opu_fuse.hw.rtlgen.top_ports import BUS_ADDRESS_BITS, Port
from opu_fuse.hw.spec.hw_spec import HwSpec

VERSION = f"{VERSION_VALUE >> 16}.{VERSION_VALUE & 0xFFFF}"
VLNV = f"opu-fuse:user:opu:{VERSION}"
"""Vendor, library, name and version of every machine: they differ in parameters, not in use. The
version is that of the register map.
"""

_SPIRIT = "http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009"
_ACCESS = {
    AccessKind.RO: "read-only",
    AccessKind.RW: "read-write",
    AccessKind.WO: "write-only",
    AccessKind.W1C: "read-write",
}
_SYNTHESIS = "xilinx_anylanguagesynthesis"
_FILES = "sources"


def component(spec: HwSpec, top: str, ports: Sequence[Port], files: Sequence[str]) -> str:
    """Text of `component.xml`. files: SystemVerilog in the order of compiling, headers first."""
    ET.register_namespace("spirit", _SPIRIT)
    root = ET.Element(_tag("component"))
    for tag, text in zip(("vendor", "library", "name", "version"), VLNV.split(":"), strict=True):
        _text(root, tag, text)
    _bus_interfaces(_sub(root, "busInterfaces"), ports)
    space = _sub(_sub(root, "addressSpaces"), "addressSpace")
    _texts(space, name="m_axi", range=1 << BUS_ADDRESS_BITS, width=8 * spec.dram.bus_bytes)
    _memory_map(_sub(_sub(root, "memoryMaps"), "memoryMap"))
    model = _sub(root, "model")
    view = _sub(_sub(model, "views"), "view")
    _texts(view, name=_SYNTHESIS, envIdentifier=":vivado.xilinx.com:synthesis")
    _texts(view, language="SystemVerilog", modelName=top)
    _text(_sub(view, "fileSetRef"), "localName", _FILES)
    _ports(_sub(model, "ports"), ports)
    _file_set(_sub(_sub(root, "fileSets"), "fileSet"), files)
    _text(root, "description", f"OPU-style CNN overlay, machine {spec.name}: {spec.description}")
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def block_design(spec: HwSpec) -> str:
    """Text of `opu_bd.tcl`: a cell of the machine in the open block design."""
    return f"""\
# Adds machine {spec.name} to the open block design of Vivado as the cell opu_0:
#   source DIR/opu_bd.tcl
# Connect s_axil to a general-purpose master, m_axi to a port of the memory, irq_o to the
# interrupt controller. The clock of this spec is {spec.clock_mhz} MHz.
set folder [file dirname [file normalize [info script]]]
set project [current_project]
set_property ip_repo_paths [concat [get_property ip_repo_paths $project] $folder] $project
update_ip_catalog
create_bd_cell -type ip -vlnv {VLNV} opu_0
"""


def device_tree() -> str:
    """Text of `opu.dtsi`: the machine for Linux, driven from user space."""
    return f"""\
/* The machine in a device tree, for the driver `generic-uio`
 * (bootargs: uio_pdrv_genirq.of_id=generic-uio). Replace the address of s_axil and the interrupt
 * of irq_o by those of your design. The memory is a buffer of u-dma-buf. */
/ {{
    opu@a0000000 {{
        compatible = "opu-fuse,opu-{VERSION}", "generic-uio";
        reg = <0x0 0xa0000000 0x0 0x{1 << ADDRESS_BITS:x}>;
        interrupt-parent = <&gic>;
        interrupts = <0 89 4>; /* level, active high */
    }};
    udmabuf0 {{
        compatible = "ikwzm,u-dma-buf";
        device-name = "udmabuf0";
        size = <0x0 0x4000000>;
    }};
}};
"""


def _bus_interfaces(parent: ET.Element, ports: Sequence[Port]) -> None:
    for name, kind, reference in (
        ("s_axil", "slave", "memoryMapRef"),
        ("m_axi", "master", "addressSpaceRef"),
    ):
        wires = {p.name.removeprefix(f"{name}_").upper(): p.name for p in ports if name in p.name}
        bus = _interface(parent, name, "interface:aximm", kind, wires)
        side = bus.find(_tag(kind))
        assert side is not None
        _sub(side, reference).set(_tag(reference), name)
    _interface(
        parent,
        "clk_i",
        "signal:clock",
        "slave",
        {"CLK": "clk_i"},
        ASSOCIATED_BUSIF="s_axil:m_axi",
        ASSOCIATED_RESET="rst_ni",
    )
    _interface(parent, "rst_ni", "signal:reset", "slave", {"RST": "rst_ni"}, POLARITY="ACTIVE_LOW")
    irq = {"INTERRUPT": "irq_o"}
    _interface(parent, "irq_o", "signal:interrupt", "master", irq, SENSITIVITY="LEVEL_HIGH")


def _interface(
    parent: ET.Element, name: str, kind: str, side: str, wires: Mapping[str, str], **values: str
) -> ET.Element:
    """A bus or a signal of Xilinx' library. wires: logical -> physical port."""
    library, _, of = kind.partition(":")
    bus = _sub(parent, "busInterface")
    _text(bus, "name", name)
    for tag, type_name in (("busType", of), ("abstractionType", f"{of}_rtl")):
        own = _sub(bus, tag)
        parts = {"vendor": "xilinx.com", "library": library, "name": type_name, "version": "1.0"}
        for key, value in parts.items():
            own.set(_tag(key), value)
    _sub(bus, side)
    maps = _sub(bus, "portMaps")
    for logical, physical in wires.items():
        pair = _sub(maps, "portMap")
        _text(_sub(pair, "logicalPort"), "name", logical)
        _text(_sub(pair, "physicalPort"), "name", physical)
    if values:
        parameters = _sub(bus, "parameters")
        for key, value in values.items():
            parameter = _sub(parameters, "parameter")
            _text(parameter, "name", key)
            own = _text(parameter, "value", value)
            own.set(_tag("id"), f"BUSIFPARAM_VALUE.{name.upper()}.{key}")
    return bus


def _memory_map(parent: ET.Element) -> None:
    _text(parent, "name", "s_axil")
    block = _sub(parent, "addressBlock")
    _texts(block, name="reg0", baseAddress="0x0", range=1 << ADDRESS_BITS, width=32)
    _text(block, "usage", "register")
    for register in CONTROL_REGISTERS:
        _register(_sub(block, "register"), register)


def _register(parent: ET.Element, register: ControlRegister) -> None:
    _texts(parent, name=register.name, description=register.doc)
    _texts(parent, addressOffset=f"0x{register.offset:x}", size=32)
    _text(parent, "access", _ACCESS[register.access])
    reset = _sub(parent, "reset")
    _text(reset, "value", f"0x{register.reset:x}")
    for field in register.fields:
        own = _sub(parent, "field")
        _texts(own, name=field.name, description=field.doc, bitOffset=field.lsb)
        _text(own, "bitWidth", field.width)
        if register.access is AccessKind.W1C:
            _text(own, "modifiedWriteValue", "oneToClear")


def _ports(parent: ET.Element, ports: Sequence[Port]) -> None:
    for port in ports:
        own = _sub(parent, "port")
        _text(own, "name", port.name)
        wire = _sub(own, "wire")
        _text(wire, "direction", "out" if port.output else "in")
        if port.width > 1:
            _texts(_sub(wire, "vector"), left=port.width - 1, right=0)


def _file_set(parent: ET.Element, files: Sequence[str]) -> None:
    _text(parent, "name", _FILES)
    for file in files:
        own = _sub(parent, "file")
        _texts(own, name=file, fileType="systemVerilogSource")
        if file.endswith(".svh"):
            _text(own, "isIncludeFile", "true")


def _tag(name: str) -> str:
    return f"{{{_SPIRIT}}}{name}"


def _sub(parent: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(parent, _tag(name))


def _text(parent: ET.Element, name: str, text: object) -> ET.Element:
    own = _sub(parent, name)
    own.text = str(text)
    return own


def _texts(parent: ET.Element, **texts: object) -> None:
    for name, text in texts.items():
        _text(parent, name, text)
