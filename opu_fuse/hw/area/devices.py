"""FPGAs that machines are chosen for: what each has, and the board it is usually seen on."""

from collections.abc import Mapping

from msgspec import Struct

from opu_fuse.errors import UserError
from opu_fuse.hw.area.estimate import Area
from opu_fuse.hw.memories import Family
from opu_fuse.hw.spec.problem import did_you_mean


class Device(Struct, frozen=True, kw_only=True):
    """has: all resources of the device, block RAM in blocks of the family.
    clock_mhz: default clock at which machines are compared.
    memory_bytes: bandwidth of the board's memory, bytes per second.
    fill: default share of the tables that a machine may use, since no router fills a device.
    source: where the numbers are from.
    """

    family: Family
    has: Area
    clock_mhz: float
    memory_bytes: float
    fill: float
    source: str


DEVICES: Mapping[str, Device] = {
    "ecp5-85": Device(
        family=Family.ECP5,
        has=Area(lut=83_640, dsp=156, bram=208),
        clock_mhz=50,
        memory_bytes=1.6e9,
        fill=0.45,
        source="Lattice FPGA-DS-02012; DDR3-800, 16 bits",
    ),
    "xc7z020": Device(
        family=Family.XC7,
        has=Area(lut=53_200, dsp=220, bram=140),
        clock_mhz=150,
        memory_bytes=4.2e9,
        fill=0.85,
        source="Xilinx DS190; DDR3-1066, 32 bits",
    ),
    "xc7k325t": Device(
        family=Family.XC7,
        has=Area(lut=203_800, dsp=840, bram=445),
        clock_mhz=200,
        memory_bytes=12.8e9,
        fill=0.85,
        source="Xilinx DS180; DDR3-1600, 64 bits",
    ),
    "zu7ev": Device(
        family=Family.XC7,
        has=Area(lut=230_400, dsp=1_728, bram=312),
        clock_mhz=250,
        memory_bytes=19.2e9,
        fill=0.85,
        source="Xilinx DS891, without UltraRAM; DDR4-2400, 64 bits",
    ),
}
"""The UltraScale+ device is counted in cells of the 7-series: its tables and block RAM are the
same, its slices multiply 27 x 18 bits.
"""


def device(name: str) -> Device:
    """Raises UserError for a device that is not in the table."""
    if name not in DEVICES:
        raise UserError(
            name,
            "unknown device",
            f"known: {', '.join(DEVICES)}{did_you_mean(name, tuple(DEVICES))}",
        )
    return DEVICES[name]
