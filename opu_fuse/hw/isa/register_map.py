"""The AXI4-Lite control registers and the machine's error codes, once.

SystemVerilog package, C header, documentation and the simulation drivers read these tables. All
registers are 32 bit at multiples of four; 64-bit values take a LO and a HI register. Overlaps are
refused when the module loads (`_check`).
"""

from enum import IntEnum, StrEnum

from msgspec import Struct

from opu_fuse.hw.isa.table import WATCHDOG_RESET, Engine
from opu_fuse.units import POST
from opu_fuse.units.memory import MEMORIES, Memory

ADDRESS_BITS = 12
ID_VALUE = 0x4F50_5546  # "OPUF"
VERSION_VALUE = 0x0001_0003  # register map version, major << 16 | minor


class AccessKind(StrEnum):
    """RO: read only. RW: read and write. WO: a written one acts once, reads give 0. W1C: a written
    one clears the bit.
    """

    RO = "ro"
    RW = "rw"
    WO = "wo"
    W1C = "w1c"


class ErrorCode(IntEnum):
    """Why the machine stopped. The name in lower case is what reports show."""

    NONE = 0
    ILLEGAL_INSTRUCTION = 1
    SPEC_MISMATCH = 2
    WINDOW = 3
    AXI_READ = 4
    AXI_WRITE = 5
    WATCHDOG = 6
    BUFFER = 7
    PROGRAM_END = 8
    STOPPED = 9
    PARAMETER = 10
    WRITERS = 11


ERROR_DOC: dict[ErrorCode, str] = {
    ErrorCode.NONE: "no error",
    ErrorCode.ILLEGAL_INSTRUCTION: "unknown opcode or register, non-zero reserved bits, "
    "value out of range, zero count, misaligned address, a module that the machine has not, "
    "or a wait on or signal to itself or an absent engine",
    ErrorCode.SPEC_MISMATCH: "`check` read another spec hash than the machine's: "
    "the program was compiled for another machine",
    ErrorCode.WINDOW: "an access outside the memory window",
    ErrorCode.AXI_READ: "the memory answered a read with SLVERR or DECERR",
    ErrorCode.AXI_WRITE: "the memory answered a write with SLVERR or DECERR",
    ErrorCode.WATCHDOG: "no engine retired an instruction for WATCHDOG cycles",
    ErrorCode.BUFFER: "an on-chip address beyond the end of its buffer",
    ErrorCode.PROGRAM_END: "PROG_WORDS words were fetched and none was `end`, "
    "or PROG_WORDS is larger than its largest value",
    ErrorCode.STOPPED: "stopped by CTRL.stop",
    ErrorCode.PARAMETER: "a parameter record with a shift or multiplier "
    "that the machine cannot compute with",
    ErrorCode.WRITERS: "a load and a post with `keep` wrote the feature buffer in the same cycle",
}


class BitField(Struct, frozen=True, kw_only=True):
    """Bits lsb .. lsb + width - 1 of a control register."""

    name: str
    lsb: int
    width: int
    doc: str

    @property
    def mask(self) -> int:
        return ((1 << self.width) - 1) << self.lsb


class ControlRegister(Struct, frozen=True, kw_only=True):
    """One 32-bit register. offset: byte address. fields: empty when the register is one number."""

    name: str
    offset: int
    access: AccessKind
    reset: int
    doc: str
    fields: tuple[BitField, ...] = ()


_RO, _RW, _WO, _W1C = AccessKind.RO, AccessKind.RW, AccessKind.WO, AccessKind.W1C


def _fields(*rows: tuple[str, int, int, str]) -> tuple[BitField, ...]:
    result = (BitField(name=n, lsb=lsb, width=w, doc=d) for n, lsb, w, d in rows)
    return tuple(sorted(result, key=lambda f: f.lsb))


_Row = tuple[str, AccessKind, int, str, tuple[BitField, ...]]
"""(name, access, value at reset, doc, fields)."""

_DONE_ERROR = _fields(
    ("done", 0, 1, "the program reached `end`"),
    ("error", 1, 1, "the machine stopped with an error"),
)

_CONSTANT = "(a constant of the build)"


def _words_of(memory: Memory) -> _Row:
    return f"CAP_{memory.space.name}_WORDS", _RO, 0, f"{memory.answer} {_CONSTANT}", ()


_CAPABILITIES = [
    (unit.stage.name.lower(), unit.capability.bit, 1, unit.capability.doc)
    for unit in POST
    if unit.stage is not None and unit.capability is not None
]

_ROWS: tuple[_Row, ...] = (
    ("ID", _RO, ID_VALUE, 'the letters "OPUF"', ()),
    ("VERSION", _RO, VERSION_VALUE, "version of this register map, major << 16 | minor", ()),
    ("SPEC_HASH_LO", _RO, 0, f"bits 31:0 of the machine's spec hash {_CONSTANT}", ()),
    ("SPEC_HASH_HI", _RO, 0, f"bits 43:32 of the machine's spec hash {_CONSTANT}", ()),
    (
        "CTRL",
        _WO,
        0,
        "commands",
        _fields(
            (
                "start",
                0,
                1,
                "run the program, from a clean state; ignored while busy",
            ),
            (
                "stop",
                1,
                1,
                "stop with error code STOPPED once no bus transaction is open; ignored while idle",
            ),
            ("irq_clear", 2, 1, "clear every bit of IRQ_STATUS"),
            (
                "queue",
                3,
                1,
                "run the program of PROG_* in the window of WINDOW_* as soon as the one that runs "
                + "is done; at once while idle. Both may be written while a program runs, which "
                + "keeps its own, until the next one is queued; an error or a stop drops it",
            ),
            (
                "abort",
                4,
                1,
                "end with error code STOPPED (or the error that was met before) without waiting "
                + "for open bus transactions, and take back what the bus has not taken; the "
                + "interconnect must be reset before the next start; ignored while idle",
            ),
        ),
    ),
    (
        "STATUS",
        _RO,
        0x1F00,
        "state",
        _fields(
            ("busy", 0, 1, "a program runs"),
            ("done", 1, 1, "the last program reached `end`"),
            ("error", 2, 1, "the last program stopped with an error, see ERROR; the bus is quiet"),
            ("queued", 3, 1, "a program waits for the end of the one that runs"),
            *(
                (
                    f"idle_{e.name.lower()}",
                    8 + e,
                    1,
                    f"the {e.name.lower()} engine is idle and its queue empty",
                )
                for e in Engine
            ),
        ),
    ),
    ("IRQ_ENABLE", _RW, 0, "which bits of IRQ_STATUS raise the interrupt line", _DONE_ERROR),
    ("IRQ_STATUS", _W1C, 0, "pending interrupts", _DONE_ERROR),
    (
        "ERROR",
        _RO,
        0,
        "first error since start; valid from then on, also while open transactions are awaited",
        _fields(
            ("code", 0, 8, "error code"),
            ("engine", 8, 3, "engine that met it (numbers of the ISA); stop and watchdog: 0"),
        ),
    ),
    (
        "ERROR_PC",
        _RO,
        0,
        "word index of the offending instruction (watchdog: of the next word fetched; PARAMETER, "
        + "WRITERS, BUFFER of compute and post: of the instruction that the engine started last)",
        (),
    ),
    (
        "PROG_BASE_LO",
        _RW,
        0,
        "bits 31:0 of the program's byte offset in the memory window, a multiple of 64; any other "
        + "stops with WINDOW",
        (),
    ),
    (
        "PROG_BASE_HI",
        _RW,
        0,
        "bits 63:32 of that offset; the window is at most 4 GiB, so 0; any other stops with WINDOW",
        (),
    ),
    ("PROG_WORDS", _RW, 0, "32-bit words of the program, at most 16777215", ()),
    (
        "WINDOW_BASE_LO",
        _RW,
        0,
        "bits 31:0 of the bus address of the memory window, a multiple of 4096; with any other "
        + "the window is empty",
        (),
    ),
    (
        "WINDOW_BASE_HI",
        _RW,
        0,
        "bits 63:32 of that address; a window that ends above 2^40 is empty",
        (),
    ),
    ("WINDOW_SIZE_LO", _RW, 0, "bits 31:0 of the bytes of the memory window", ()),
    (
        "WINDOW_SIZE_HI",
        _RW,
        0,
        "bit 32 of the bytes of the memory window; one of more than 4 GiB is empty",
        (),
    ),
    (
        "WATCHDOG",
        _RW,
        WATCHDOG_RESET,
        "cycles without a retirement after which the machine stops; 0 switches it off",
        (),
    ),
    ("CYCLES_LO", _RO, 0, "bits 31:0 of the cycles from start to done or error", ()),
    ("CYCLES_HI", _RO, 0, "bits 63:32 of those cycles, when CYCLES_LO was read last", ()),
    *(
        (
            f"BUSY_{e.name}",
            _RO,
            0,
            f"cycles in which the {e.name.lower()} engine executed an instruction",
            (),
        )
        for e in Engine
    ),
    *(
        (
            f"STALL_{e.name}",
            _RO,
            0,
            f"cycles in which the {e.name.lower()} engine held an instruction that had to wait",
            (),
        )
        for e in Engine
    ),
    ("AXI_READ_BEATS", _RO, 0, "data beats read from memory", ()),
    ("AXI_WRITE_BEATS", _RO, 0, "data beats written to memory", ()),
    ("MULTIPLYING", _RO, 0, "cycles in which the array multiplied", ()),
    (
        "MEMORY_WAIT",
        _RO,
        0,
        "cycles in which reads were open and no data came, or data to be written were not taken",
        (),
    ),
    ("PROGRAMS", _RO, 0, "programs that came to an end since reset, with or without error", ()),
    (
        "CAP_ARRAY",
        _RO,
        0,
        f"the array {_CONSTANT}",
        _fields(("units", 0, 16, "adder trees"), ("multipliers", 16, 16, "of each tree")),
    ),
    (
        "CAP_LANES",
        _RO,
        0,
        f"channels side by side {_CONSTANT}",
        _fields(("word", 0, 16, "of a feature word"), ("post", 16, 16, "of the post chain")),
    ),
    (
        "CAP_BUS",
        _RO,
        0,
        f"the memory bus {_CONSTANT}",
        _fields(("bytes", 0, 16, "of a beat"), ("burst", 16, 16, "beats of the longest burst")),
    ),
    *(_words_of(memory) for memory in MEMORIES if not memory.late),
    (
        "CAP_MODULES",
        _RO,
        0,
        f"what the machine has {_CONSTANT}",
        _fields(
            *_CAPABILITIES,
            ("product", 3, 1, "a residual product"),
            ("pre", 6, 1, "constants before the array"),
            ("depthwise", 7, 1, "windows over single channels"),
            ("upsample", 8, 1, "stores that repeat pixels"),
            ("keep", 9, 1, "results written to the feature buffer"),
            ("gates", 10, 1, "gates before the array"),
            ("map_norm", 12, 1, "norms of whole maps"),
            ("zeroes", 13, 1, "loads that set lanes of weights to zero"),
        ),
    ),
    *(_words_of(memory) for memory in MEMORIES if memory.late),
)

CONTROL_REGISTERS: tuple[ControlRegister, ...] = tuple(
    ControlRegister(name=name, offset=4 * i, access=access, reset=reset, doc=doc, fields=fields)
    for i, (name, access, reset, doc, fields) in enumerate(_ROWS)
)

OFFSET: dict[str, int] = {r.name: r.offset for r in CONTROL_REGISTERS}
"""Byte offset of every control register, by name."""
FIELD: dict[tuple[str, str], BitField] = {
    (r.name, f.name): f for r in CONTROL_REGISTERS for f in r.fields
}
"""Names of register and field -> the field."""


def _check() -> None:
    assert len(OFFSET) == len(CONTROL_REGISTERS), "a control register appears twice"
    assert max(OFFSET.values()) < 1 << ADDRESS_BITS, "control registers exceed the address bits"
    assert set(ERROR_DOC) == set(ErrorCode), "an error code has no description"
    for register in CONTROL_REGISTERS:
        used = 0
        for field in register.fields:
            assert not used & field.mask, f"{register.name}.{field.name} overlaps another field"
            used |= field.mask
        assert max(used, register.reset) < 1 << 32, f"{register.name} exceeds 32 bits"


_check()
