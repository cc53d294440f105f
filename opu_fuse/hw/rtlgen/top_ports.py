"""The ports of `opu_top`, read from its text."""

import re
from collections.abc import Mapping

from msgspec import Struct

from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.register_map import ADDRESS_BITS
from opu_fuse.hw.spec.hw_spec import HwSpec

BUS_ADDRESS_BITS = 40
"""Default of the parameter ADDRESS_BITS."""

_PORT = re.compile(r"^\s+(input|output) +logic +(?:\[(.+?)-1:0\] |\[(\d+):0\] )? *(\w+),?$", re.M)


class Port(Struct, frozen=True, kw_only=True):
    """A port. width: bits."""

    name: str
    output: bool
    width: int


def top_ports(text: str, spec: HwSpec) -> tuple[Port, ...]:
    """Ports in the order of the text of `opu_top.sv`, with their widths on this machine."""
    names = {
        "CSR_ADDR_BITS": ADDRESS_BITS,
        "BUS_BYTES": spec.dram.bus_bytes,
        "ADDRESS_BITS": BUS_ADDRESS_BITS,
    }
    declarations = text[: text.index(");")]
    return tuple(
        Port(name=name, output=way == "output", width=_width(size, top, names))
        for way, size, top, name in _PORT.findall(declarations)
    )


def _width(size: str, top: str, names: Mapping[str, int]) -> int:
    """`BUS_BYTES*8` or the number of the highest bit -> bits."""
    if not size:
        return int(top) + 1 if top else 1
    result = 1
    for factor in size.split("*"):
        if not factor.isdigit() and factor not in names:
            raise InternalError("opu_top", f"the width {size} of a port is not known")
        result *= int(factor) if factor.isdigit() else names[factor]
    return result
