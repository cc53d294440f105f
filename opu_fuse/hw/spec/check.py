"""Whether the values of a spec make a machine.

Rules over graph and operators are in `check_graph.py`, over sizes and encodings here; what only
the RTL cannot do is in `check_rtl.py`. Every rule is a generator of `Problem`s over a schema-valid
spec; its docstring is its row in the documentation.
"""

from collections.abc import Callable, Iterator

from opu_fuse.hw.isa.table import DRAM_ADDRESS_BITS, REGISTER, VALUE_BITS, Engine
from opu_fuse.hw.spec.check_graph import GRAPH_RULES
from opu_fuse.hw.spec.check_rtl import RTL_RULES, edges_back
from opu_fuse.hw.spec.hw_spec import Buffer, HwSpec
from opu_fuse.hw.spec.problem import Problem, bad
from opu_fuse.units import POST
from opu_fuse.units.base import Space
from opu_fuse.units.memory import MEMORIES

BUS_BYTES = (4, 8, 16, 32, 64, 128)
LARGEST_ON_CHIP = 1 << 28
"""Bytes of all buffers."""

LEAST_MULTIPLIER_BITS = 8
"""Least width of multipliers in bits: half a step in 2**8 is less than a step in the 255 that a
result may move.
"""

_LIMIT_BITS: dict[str, int] = {
    "kernel": REGISTER[Engine.COMPUTE, "kernel_rows"].bits,
    "stride": REGISTER[Engine.COMPUTE, "stride_y"].bits,
    "dilation": REGISTER[Engine.COMPUTE, "dilation_y"].bits,
    "window": REGISTER[Engine.POST, "win_rows"].bits,
    "padding": REGISTER[Engine.COMPUTE, "origin_y"].bits - 1,
}

MOST_REPEATS = 1 << REGISTER[Engine.STORE, "repeat_rows"].bits
"""Times that a store writes each row, or each pixel of it."""


def largest(limit: str) -> int:
    """The largest value of a module limit that an instruction can carry."""
    return (1 << _LIMIT_BITS[limit]) - 1


def check_spec(spec: HwSpec) -> tuple[Problem, ...]:
    """Everything wrong with a schema-valid spec; the RTL's own limits only where `build` is set."""
    result = tuple(problem for rule in RULES for problem in rule(spec))
    if not spec.build:
        return result
    # Later rules rely on these: the modules before the array and the sizes that fit the bus.
    first = tuple(edges_back(spec))
    if spec.dram.bus_bytes not in BUS_BYTES:
        return result + first
    return result + (first or tuple(problem for rule in RTL_RULES for problem in rule(spec)))


def _array(spec: HwSpec) -> Iterator[Problem]:
    """Every mode uses the whole array, and weight words are not wider than a row."""
    array = spec.array
    for index, mode in enumerate(array.modes):
        work = mode.ic * mode.oc * mode.px
        path = ("array", "modes", index)
        if work != array.macs:
            yield bad(
                path,
                f"mode {index} ({mode.ic} x {mode.oc} x {mode.px}) is {work} MAC per cycle, "
                f"the array does {array.units} x {array.multipliers} = {array.macs}",
                "make ic x oc x px equal units x multipliers",
            )
        if mode in array.modes[:index]:
            yield bad(path, f"mode {index} appears twice", "remove one")


def _param_words(spec: HwSpec) -> int:
    """Parameter words of a block in a pass through one unit of every kind."""
    return sum(unit.words for unit in POST if not unit.runs or spec.has(*unit.runs))


def _buffers(spec: HwSpec) -> Iterator[Problem]:
    """Every buffer is addressable, divides into its banks, and a bank holds the smallest legal
    tile.
    """
    block_rows = -(-(spec.word_channels**2) // spec.macs)
    of_shape = {Space.WEIGHT: block_rows * spec.row_words, Space.PARAM: _param_words(spec)}
    for memory in MEMORIES:
        name, meaning = memory.space.value, memory.least_of
        demand = of_shape.get(memory.space, memory.least)
        buffer = spec.buffer(memory.space)
        if buffer is None:
            continue
        path = ("buffers", name, "words")
        if buffer.words > 1 << VALUE_BITS:
            yield bad(
                path,
                f"encoding too narrow: {buffer.words} {name} words need "
                f"{(buffer.words - 1).bit_length()} address bits, a register has {VALUE_BITS}",
                f"use at most {1 << VALUE_BITS} words",
            )
        if buffer.words % buffer.banks:
            yield bad(
                path,
                f"{buffer.words} {name} words do not divide into {buffer.banks} banks",
                f"use a multiple of {buffer.banks}: {_multiples(buffer)}",
            )
        elif buffer.bank_words < demand:
            yield bad(
                path,
                f"{name} buffer too small for the smallest legal tile: {meaning} takes "
                f"{demand} words, a bank holds {buffer.bank_words}",
                f"use at least {demand * buffer.banks} words",
            )


def _multiples(buffer: Buffer) -> str:
    below = buffer.bank_words * buffer.banks
    return f"{below} or {below + buffer.banks}" if below else str(buffer.banks)


def _on_chip(spec: HwSpec) -> Iterator[Problem]:
    """All buffers together fit an FPGA (and the memory of who simulates them)."""
    sizes = {
        memory.space.value: buffer.words * spec.word_size(memory, spec.word_bytes)
        for memory in MEMORIES
        if (buffer := spec.buffer(memory.space)) is not None
    }
    total = sum(sizes.values())
    if total > LARGEST_ON_CHIP:
        name = max(sizes, key=lambda n: sizes[n])
        yield bad(
            ("buffers", name, "words"),
            f"the buffers take {total} bytes together, {sizes[name]} of them for {name}: no FPGA "
            f"has more than {LARGEST_ON_CHIP}",
            f"use at least {total - LARGEST_ON_CHIP} bytes less",
        )


def _encodings(spec: HwSpec) -> Iterator[Problem]:
    """Module limits, multipliers and the memory fit the instruction fields that carry them."""
    for name, module in spec.dataflow.modules.items():
        for limit, bits in _LIMIT_BITS.items():
            value = getattr(module.limits, limit)
            if value is not None and value >= 1 << bits:
                yield bad(
                    ("dataflow", "modules", name, "limits", limit),
                    f"encoding too narrow: {limit} {value} needs {value.bit_length()} bits, "
                    f"an instruction holds {bits}",
                    f"use at most {(1 << bits) - 1}",
                )
    widths = (
        ("multiplier_bits", REGISTER[Engine.POST, "res_a_mult"].bits),
        ("average_bits", REGISTER[Engine.POST, "pool_mult"].bits),
    )
    for name, bits in widths:
        value = getattr(spec.numeric, name)
        if value > bits:
            yield bad(
                ("numeric", name),
                f"encoding too narrow: {name} is {value}, an instruction holds {bits}",
                f"use at most {bits}",
            )
    if 0 < spec.numeric.multiplier_bits < LEAST_MULTIPLIER_BITS:
        yield bad(
            ("numeric", "multiplier_bits"),
            f"factors of {spec.numeric.multiplier_bits} bits put results off by more than a step",
            f"use at least {LEAST_MULTIPLIER_BITS}, or 0: powers of two only",
        )
    if spec.dram.capacity > 1 << DRAM_ADDRESS_BITS:
        yield bad(
            ("dram", "capacity"),
            f"encoding too narrow: {spec.dram.capacity} bytes of memory need more "
            f"than {DRAM_ADDRESS_BITS} address bits",
            f"use at most {1 << DRAM_ADDRESS_BITS}",
        )
    if spec.word_bytes > 64:
        yield bad(
            ("word_channels",),
            f"a word of {spec.word_channels} channels takes {spec.word_bytes} bytes, "
            "tensors are aligned to 64",
            "use at most 64 channels",
        )


def _bus(spec: HwSpec) -> Iterator[Problem]:
    """The bus is one that AXI has, and memory does not promise more than it carries."""
    dram = spec.dram
    if dram.bus_bytes not in BUS_BYTES:
        fitting = [n for n in BUS_BYTES if not spec.build or n <= spec.word_bytes]
        yield bad(
            ("dram", "bus_bytes"),
            f"bus of {dram.bus_bytes} bytes: AXI data widths are powers of two",
            f"use {', '.join(map(str, fitting[:-1]))} or {fitting[-1]}",
        )
    if dram.bytes_per_cycle > 2 * dram.bus_bytes:
        yield bad(
            ("dram", "bytes_per_cycle"),
            f"{dram.bytes_per_cycle:g} bytes per cycle exceed what reads and "
            f"writes of a {dram.bus_bytes}-byte bus carry",
            f"use at most {2 * dram.bus_bytes}",
        )


Rule = Callable[[HwSpec], Iterator[Problem]]
RULES: tuple[Rule, ...] = (
    *GRAPH_RULES,
    _array,
    _buffers,
    _on_chip,
    _encodings,
    _bus,
)
