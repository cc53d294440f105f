"""Tables of a machine: its sizes, its FPGA resources (`fuse/machine_operators.py` lists what
it can run).
"""

from collections.abc import Iterator
from itertools import product

from rich.table import Table

from opu_fuse.hw.area.devices import DEVICES
from opu_fuse.hw.area.estimate import Area, area, parts, share
from opu_fuse.hw.memories import Family
from opu_fuse.hw.spec.hw_spec import Array, HwSpec
from opu_fuse.units.memory import MEMORIES

_QUEUES = ("load", "compute", "post", "store")


def sizes_table(spec: HwSpec) -> Table:
    """Array, buffers, memory and numbers of a machine."""
    table = Table("what", "value", title=f"{spec.name}: {spec.description}")
    modes = ", ".join(f"{m.ic}x{m.oc}x{m.px}" for m in spec.array.modes)
    array, queues, dram = spec.array, spec.queues, spec.dram
    bits = spec.numeric.multiplier_bits
    rows: list[tuple[str, str]] = [
        ("RTL", "yes" if spec.build else "no, partitioning only"),
        ("spec hash", f"{spec.spec_hash:011x}"),
        ("clock", spec.clock),
        ("array", f"{array.units} units x {array.multipliers} = {spec.macs} MAC per cycle"),
        ("modes (ic x oc x px)", modes),
        ("resident maps", "yes" if spec.post.keep else "no"),
        ("depthwise windows", _windows(array)),
        ("feature word", f"{spec.word_channels} channels, {spec.word_bytes} bytes"),
        ("weight row", f"{array.row_bytes} bytes, {spec.row_words} words"),
        *_buffer_rows(spec),
        *((f"{n} queue", f"{getattr(queues, n)} words") for n in _QUEUES),
        ("dependency counters", f"{spec.counter_bits} bits"),
        ("memory port", f"{dram.bus_bytes} bytes, bursts of {dram.max_burst} beats"),
        ("open bursts", f"{dram.outstanding} per direction"),
        ("memory", f"{dram.capacity >> 20} MiB"),
        ("memory speed", f"{dram.bytes_per_cycle:g} bytes per cycle, latency {dram.latency}"),
        ("multipliers", f"{bits} bits" if bits else "powers of two only"),
        ("average multipliers", f"{spec.numeric.average_bits} bits"),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def area_table(spec: HwSpec) -> Table:
    """Resources that a machine's parts use on each family of FPGAs, and its share of devices."""
    by_family = {family: parts(spec, family) for family in Family}
    table = Table("part", title=f"{spec.name}: area, estimated")
    for family, kind in product(Family, ("LUT", "DSP", "BRAM")):
        table.add_column(f"{family} {kind}", justify="right")

    def add(name: str, *areas: Area) -> None:
        numbers = (n for own in areas for n in (round(own.lut), round(own.dsp), own.bram))
        table.add_row(name, *(f"{n:,}".removesuffix(".0") for n in numbers))

    for part in by_family[Family.XC7]:
        add(part, *(own[part] for own in by_family.values()))
    table.add_section()
    add("whole", *(area(spec, family) for family in Family))
    return table


def shares(spec: HwSpec) -> Iterator[str]:
    """A line for every device: how much of it the machine takes."""
    for name, device in DEVICES.items():
        part = share(area(spec, device.family), device.has)
        yield f"{name}: {part:.0%}{'' if part <= 1 else ', does not fit'}"


def _windows(array: Array) -> str:
    if not array.depthwise:
        return "no"
    side, cycles = array.window_side, array.window_cycles
    return f"up to {side} x {side}" + (f", {cycles} cycles each" if cycles > 1 else "")


def _buffer_rows(spec: HwSpec) -> Iterator[tuple[str, str]]:
    for memory in MEMORIES:
        buffer, width = spec.buffer(memory.space), spec.word_size(memory, spec.word_channels)
        if buffer is not None:
            yield (
                f"{memory.space} buffer",
                f"{buffer.banks} x {buffer.bank_words} words of {width} bytes",
            )
