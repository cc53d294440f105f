"""The ISA table: every engine, opcode and register, once.

Encoder, decoder, assembler, SystemVerilog package, documentation, schedule and simulators read
this table; semantics of the names are in `docs/machine.md`. Overlaps, gaps and overflow are
refused when the module loads (`_check`).

Word formats (32 bit)::

    U-type  [31]=0  [30:28] engine  [27:22] register  [21:0] value (two's complement where signed)
    C-type  [31]=1  [30:28] engine  [27:24] opcode    [23:16] wait   [15:8] signal   [7:0] zero

Bit e of `wait` pops one token of counter (engine e -> this engine) before the start; bit e of
`signal` pushes one token of counter (this engine -> engine e) at retirement.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TypeVar, cast

from msgspec import Struct

from opu_fuse.units import AFFINE, POST
from opu_fuse.units.base import Field, Space, Stage, Unit
from opu_fuse.units.memory import MEMORIES, MEMORY
from opu_fuse.units.params import ComputeParams, PostParams

VALUE_BITS = 22
REGISTERS_PER_ENGINE = 64
MASK_BITS = 8
DRAM_ADDRESS_BITS = 32
WATCHDOG_RESET = 0x00FF_FFFF
"""Reset value of the watchdog: cycles without a retirement before the machine faults."""
PROGRAM_ALIGNMENT = 64
"""Bytes: a program begins at a multiple of them, else the machine stops with WINDOW."""


class Engine(IntEnum):
    """Queues of the machine; the number is the encoding and the bit position in wait/signal
    masks.
    """

    FETCH = 0
    LOAD = 1
    COMPUTE = 2
    POST = 3
    STORE = 4


SYNC_ENGINES = (Engine.LOAD, Engine.COMPUTE, Engine.POST, Engine.STORE)
"""Engines that may signal and wait on each other; one counter for every ordered pair of
different ones.
"""


class Opcode(Struct, frozen=True, kw_only=True):
    """One operation of one engine."""

    engine: Engine
    name: str
    code: int
    doc: str


class Register(Struct, frozen=True, kw_only=True):
    """One parameter register. bits <= 22; a DRAM address takes `dram_lo` and `dram_hi`. stage:
    of those that every unit of the post chain has for itself, what the unit does.
    """

    engine: Engine
    name: str
    index: int
    bits: int
    signed: bool
    doc: str
    stage: Stage | None = None

    @property
    def lowest(self) -> int:
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def highest(self) -> int:
        return (1 << (self.bits - 1 if self.signed else self.bits)) - 1


def _opcodes(engine: Engine, *rows: tuple[str, str]) -> tuple[Opcode, ...]:
    return tuple(Opcode(engine=engine, name=n, code=i, doc=d) for i, (n, d) in enumerate(rows))


def _registers(
    engine: Engine, fields: Iterable[Field], units: Iterable[Unit] = ()
) -> tuple[Register, ...]:
    """Registers of an engine by index: its own, and those of the units in it."""
    rows: list[tuple[Field, Stage | None]] = [(field, None) for field in fields]
    for unit in units:
        rows += [(field, None) for field in unit.shared]
        rows += [(field, unit.stage) for field in unit.registers]
    return tuple(
        Register(
            engine=engine,
            name=f.name,
            index=f.index,
            bits=abs(f.bits),
            signed=f.bits < 0,
            doc=f.doc,
            stage=stage,
        )
        for f, stage in sorted(rows, key=lambda row: row[0].index)
    )


def _numbered(*rows: tuple[str, int, str]) -> tuple[Field, ...]:
    """Rows of (name, bits, doc) by position."""
    return tuple(Field(i, *row) for i, row in enumerate(rows))


_DRAM = (
    ("dram_lo", 22, "byte offset in the memory window, bits 21:0"),
    ("dram_hi", 10, "byte offset in the memory window, bits 31:22"),
)
_SHAPE = (
    ("run", 16, "words per contiguous run, >= 1"),
    ("rows", 16, "runs per block, >= 1"),
    ("row_pitch", 22, "DRAM words from run to run; unfold: image words from output row to row"),
    ("blocks", 16, "blocks, >= 1"),
    ("block_pitch", 22, "DRAM words from block to block"),
)

_WALK = (
    Field(0, "psum", 22, "partial sum word of tile pixel (0, 0), block 0"),
    Field(1, "psum_row_pitch", 16, "partial sum words from tile row to tile row"),
    Field(2, "psum_block_pitch", 22, "partial sum words from block to block"),
    Field(3, "in_rows", 16, "tile rows; window positions outside are absent"),
    Field(4, "in_cols", 16, "tile columns; window positions outside are absent"),
    Field(5, "origin_y", -17, "tile row of output row 0, window row 0"),
    Field(6, "origin_x", -17, "tile column of output column 0, window column 0"),
    Field(7, "stride_y", 8, "tile rows between output rows, >= 1"),
    Field(8, "stride_x", 8, "tile columns between output columns, >= 1"),
    Field(9, "win_rows", 8, "window rows (1 without pooling)"),
    Field(10, "win_cols", 8, "window columns (1 without pooling)"),
    Field(11, "out_rows", 16, "output rows"),
    Field(12, "out_cols", 16, "output columns"),
    Field(13, "blocks", 16, "channel blocks"),
    Field(15, "out", 22, "output buffer word of output pixel (0, 0), block 0"),
    Field(16, "out_row_pitch", 16, "output buffer words from row to row"),
    Field(17, "out_block_pitch", 22, "output buffer words from block to block"),
    Field(21, "order", 20, "post chain: codes of modules, four bits each, first stage lowest"),
    Field(45, "keep", 1, "1: every output word goes into the feature buffer, too"),
    Field(46, "keep_at", 22, "feature buffer word of output pixel (0, 0), block 0"),
    Field(47, "keep_row_pitch", 16, "feature words from row to row"),
    Field(48, "keep_block_pitch", 22, "feature words from block to block"),
    Field(49, "bank", 4, "unit whose registers are written from here on, among those of its stage"),
    Field(50, "order_2", 20, "post chain: sixth to tenth stage"),
    Field(51, "order_3", 20, "post chain: eleventh to fifteenth stage"),
    Field(
        56,
        "spread",
        3,
        "pixels of a word (2 or 4), each to a word of its own, plus the slot of second operands",
    ),
)
"""Registers of post that belong to no unit."""

OPCODES: tuple[Opcode, ...] = (
    *_opcodes(
        Engine.FETCH,
        ("end", "wait until all engines are idle, then raise done"),
        ("check", "stop with SPEC_MISMATCH unless hash_lo/hash_hi equal the machine's spec hash"),
    ),
    *_opcodes(
        Engine.LOAD,
        *((m.space.value, m.loads) for m in MEMORIES if m.loads and m.space is not Space.NORM),
        ("unfold", "image buffer -> feature buffer: kernel rows side by side in their columns"),
        (Space.NORM.value, str(MEMORY[Space.NORM].loads)),  # opcodes keep their numbers
    ),
    *_opcodes(
        Engine.COMPUTE,
        ("conv", "inner products of a feature tile and weight rows into partial sums"),
        ("copy", "features (padded, strided) into partial sums, sign extended"),
        ("depthwise", "windows of a feature tile and weight rows into partial sums, lane by lane"),
    ),
    *_opcodes(
        Engine.POST, ("run", "partial sums -> post chain -> output buffer (and feature buffer)")
    ),
    *_opcodes(Engine.STORE, ("store", "output buffer -> DRAM")),
)

REGISTERS: tuple[Register, ...] = (
    *_registers(
        Engine.FETCH,
        _numbered(
            ("hash_lo", 22, "bits 21:0 of the spec hash the program was compiled for"),
            ("hash_hi", 22, "bits 43:22 of the spec hash"),
        ),
    ),
    *_registers(
        Engine.LOAD,
        _numbered(
            *_DRAM,
            (
                "dst",
                22,
                "first word written in the destination buffer, the others follow it",
            ),
            *_SHAPE,
            ("image", -22, "unfold: image word of output row 0, kernel row 0 (inside or not)"),
            ("in_rows", 16, "unfold: rows of the image; rows outside read as pad_value"),
            ("origin_y", -17, "unfold: image row of output row 0, kernel row 0"),
            ("stride_y", 8, "unfold: image rows between output rows, >= 1"),
            ("kernel_rows", 8, "unfold: image rows of a column"),
            ("pad_value", -8, "unfold: int8 of rows outside the image"),
            ("zero_low", 8, "weight: bytes at the low end of every word that are loaded as 0"),
            ("zero_high", 8, "weight: bytes at the high end of every word that are loaded as 0"),
        ),
    ),
    *_registers(
        Engine.COMPUTE,
        (
            *_numbered(
                ("feature", 22, "feature buffer word of tile pixel (0, 0), block 0"),
                ("row_pitch", 16, "feature words from tile row to tile row"),
                ("block_pitch", 22, "feature words from channel block to channel block"),
                ("in_rows", 16, "rows of the tile; rows outside 0..in_rows-1 read as pad_value"),
                ("in_cols", 16, "pixels per row of the tile; columns outside read as pad_value"),
                ("origin_y", -17, "tile row read for output row 0 and kernel row 0"),
                ("origin_x", -17, "tile column read for output column 0 and kernel column 0"),
                ("stride_y", 8, "tile rows between output rows, >= 1"),
                ("stride_x", 8, "tile columns between output columns, >= 1"),
                ("dilation_y", 8, "tile rows between kernel rows, >= 1"),
                ("dilation_x", 8, "tile columns between kernel columns, >= 1"),
                ("out_rows", 16, "output rows of the tile"),
                ("out_cols", 16, "output columns of the tile"),
                ("kernel_rows", 16, "kernel rows"),
                ("kernel_cols", 16, "kernel columns"),
                (
                    "ic_steps",
                    16,
                    "input channel segments (of the mode's ic channels; copy: blocks)",
                ),
                ("oc_steps", 16, "output channel groups; depthwise: output rows at once"),
                ("mode", 4, "index into the spec's array modes"),
                ("weight", 22, "weight buffer word of the first weight row"),
                ("psum", 22, "partial sum word of output pixel (0, 0), block 0"),
                ("psum_block_pitch", 22, "partial sum words from output block to output block"),
                (
                    "accumulate",
                    1,
                    "1: add to the partial sums; 0: a lane's first iteration overwrites",
                ),
                ("pad_value", -8, "int8 read outside the tile"),
                ("slot_log2", 4, "log2 of the bytes a pixel takes in a feature word"),
                ("ic_first", 16, "first input segment"),
                ("oc_first", 16, "first output channel group"),
                ("pre", 3, "units of the pre chain that features pass"),
                (
                    "pre_param",
                    22,
                    "pre chain parameter word of block 0 (8 words a block and unit; gates: one)",
                ),
            ),
            Field(31, "bank", 4, "unit of the pre chain whose registers are written from here on"),
        ),
        (AFFINE,),
    ),
    *_registers(Engine.POST, _WALK, POST),
    *_registers(
        Engine.STORE,
        _numbered(
            *_DRAM,
            ("src", 22, "first output buffer word read; words are read contiguously"),
            *_SHAPE,
            ("word_gap", 16, "DRAM words left out between words of a run"),
            ("repeat_rows", 8, "further times every run is written, each a row_pitch on"),
            ("repeat_cols", 8, "further times every word is written, consecutively"),
            ("skip_low", 8, "bytes at the low end of every word that are not written"),
            ("skip_high", 8, "bytes at the high end of every word that are not written"),
        ),
    ),
)

HEAD, HEAD_NAME = 1, "requant"
"""Code of the requantiser, which is no module of a spec, and what it is called."""

BANK = "bank"
"""The register that selects units; instructions have the registers of all units instead of it."""

UNITS_PER_STAGE = 12
"""Units of a machine that do the same kind of stage of the post chain, at most."""
PRE_UNITS = 6
"""Modules of a machine before the array, at most."""

ORDER_REGISTERS = ("order", "order_2", "order_3")
ORDER_BITS, ORDER_CODE_BITS, ORDER_STAGES = 20, 4, 15
"""Bits of each of these registers and of a code; codes in all of them, 0 after the last stage."""


def _check() -> None:
    for engine in Engine:
        codes = [o.code for o in OPCODES if o.engine is engine]
        registers = [r for r in REGISTERS if r.engine is engine]
        names = [r.name for r in registers]
        assert codes == list(range(len(codes))), f"{engine.name}: opcode gap"
        assert 0 < len(codes) <= 16, f"{engine.name}: opcodes do not fit four bits"
        assert [r.index for r in registers] == list(range(len(registers))), (
            f"{engine.name}: register gap"
        )
        assert len(registers) <= REGISTERS_PER_ENGINE, (
            f"{engine.name}: more than {REGISTERS_PER_ENGINE} registers"
        )
        assert len(set(names)) == len(names), f"{engine.name}: a register name appears twice"
        assert all(0 < r.bits <= VALUE_BITS for r in registers), (
            f"{engine.name}: register wider than {VALUE_BITS}"
        )
    assert max(Engine) < MASK_BITS, "engine number does not fit the token masks"


_check()

OPCODE: dict[tuple[Engine, str], Opcode] = {(o.engine, o.name): o for o in OPCODES}
REGISTER: dict[tuple[Engine, str], Register] = {(r.engine, r.name): r for r in REGISTERS}
OfUnits = TypeVar("OfUnits", ComputeParams, PostParams)
_OF_UNITS = tuple(r.name for r in REGISTERS if r.stage is not None)


def registers_of(engine: Engine) -> tuple[Register, ...]:
    """The registers of one engine in index order."""
    return tuple(r for r in REGISTERS if r.engine is engine)


def parameters_of(engine: Engine) -> tuple[Register, ...]:
    """The registers of one engine that an instruction latches: all but `bank`."""
    return tuple(r for r in registers_of(engine) if r.name != BANK)


def order_of(p: PostParams) -> int:
    """The codes of all stages, first stage lowest."""
    return p["order"] | p["order_2"] << ORDER_BITS | p["order_3"] << 2 * ORDER_BITS


def order_registers(order: int) -> dict[str, int]:
    """The registers that hold the codes of an order."""
    mask = (1 << ORDER_BITS) - 1
    return {name: order >> (ORDER_BITS * i) & mask for i, name in enumerate(ORDER_REGISTERS)}


def unit_register(name: str, bank: int) -> str:
    """Name of a unit's register in the parameters of an instruction."""
    return name if bank == 0 else f"{name}@{bank}"


def unit_params(params: OfUnits, bank: int) -> OfUnits:
    """Parameters with the stage registers of one unit under their plain names."""
    if bank == 0:
        return params
    registers = cast("Mapping[str, int]", params)
    own = {n: registers.get(unit_register(n, bank), 0) for n in _OF_UNITS if n in registers}
    return cast("OfUnits", {**registers, **own})
