"""The control registers in SystemRDL 2.0, for tools that make headers, documentation and models of
registers from it (PeakRDL).
"""

import json
from collections.abc import Iterator

from opu_fuse.hw.isa.register_map import (
    CONTROL_REGISTERS,
    AccessKind,
    BitField,
    ControlRegister,
)

_SOFTWARE = {
    AccessKind.RO: "sw = r; hw = w;",
    AccessKind.RW: "sw = rw; hw = r;",
    AccessKind.WO: "sw = w; hw = r; singlepulse;",
    AccessKind.W1C: "sw = rw; onwrite = woclr; hw = w;",
}


def system_rdl() -> str:
    """Text of `opu.rdl`; the same for every machine."""
    lines = [
        "// Generated; the table is opu_fuse/hw/isa/register_map.py.",
        "addrmap opu {",
        '    name = "opu control registers";',
        "    default regwidth = 32;",
        "    default accesswidth = 32;",
        *(line for register in CONTROL_REGISTERS for line in _register(register)),
        "};",
    ]
    return "\n".join(lines) + "\n"


def _register(register: ControlRegister) -> Iterator[str]:
    yield "    reg {"
    yield f"        desc = {json.dumps(register.doc, ensure_ascii=False)};"
    whole = BitField(name="value", lsb=0, width=32, doc=register.doc)
    for field in register.fields or (whole,):
        doc = json.dumps(field.doc, ensure_ascii=False)
        high = field.lsb + field.width - 1
        reset = register.reset >> field.lsb & ((1 << field.width) - 1)
        yield f"        field {{ desc = {doc}; {_SOFTWARE[register.access]} }}"
        yield f"            {field.name}[{high}:{field.lsb}] = {field.width}'h{reset:x};"
    yield f"    }} {register.name} @ 0x{register.offset:03x};"
