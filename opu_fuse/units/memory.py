"""The on-chip memories, and units that move values: reading and writing memory, padding."""

from collections.abc import Mapping
from enum import Enum, auto

from msgspec import Struct

from opu_fuse.model.operator_record import Pattern
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import KNOWN, ModuleKind, Space, Unit
from opu_fuse.units.norm_pass import EXPONENTIALS
from opu_fuse.units.table import TABLE_WORDS


class Word(Enum):
    """Kind of a memory's words."""

    BYTES = auto()
    """A byte for each lane."""
    SUMS = auto()
    """An int32 for each lane."""
    ROWS = auto()
    """Bytes of weight rows, `buffers.weight.width` of them."""


class Memory(Struct, frozen=True, kw_only=True):
    """An on-chip memory: what the spec calls `buffers.<space>`.

    doc: what its words are
    answer: what CAP_<SPACE>_WORDS counts
    bases: engine -> register that moves all its accesses but the writes of a load (`dst`)
    word: how many bytes its words have
    signed: whether they are numbers
    least: words that a bank holds at least
    least_of: what these words are (`hw/spec/check.py` knows more of weights and parameters)
    loads: what `load.<space>` does, None where no load writes it
    needs: what a machine has with it, None where every machine has it
    late: the capability register follows CAP_MODULES (offsets of others never change)
    """

    space: Space
    doc: str
    answer: str
    bases: Mapping[str, str]
    word: Word = Word.BYTES
    signed: bool = True
    least: int = 1
    least_of: str = "one pixel"
    loads: str | None = None
    needs: str | None = None
    late: bool = False


MEMORIES: tuple[Memory, ...] = (
    Memory(
        space=Space.FEATURE,
        doc="words of W int8",
        answer="words of the feature buffer",
        bases={"compute": "feature", "post": "keep_at"},
        loads="DRAM -> feature buffer",
    ),
    Memory(
        space=Space.WEIGHT,
        doc="words of WEIGHT_WIDTH bytes",
        answer="words of the weight buffer",
        bases={"compute": "weight"},
        word=Word.ROWS,
        least_of="one kernel position of one channel block",
        loads="DRAM -> weight buffer",
    ),
    Memory(
        space=Space.PARAM,
        doc="words of W bytes",
        answer="words of the param buffer",
        bases={"post": "param"},
        signed=False,
        least_of="one channel block",
        loads="DRAM -> parameter buffer",
    ),
    Memory(
        space=Space.RESIDUAL,
        doc="words of W int8",
        answer="words of the residual buffer",
        bases={"post": "res"},
        loads="DRAM -> residual buffer",
    ),
    Memory(
        space=Space.PSUM,
        doc="words of W int32, both banks",
        answer="words of the psum buffer",
        bases={"compute": "psum", "post": "psum"},
        word=Word.SUMS,
    ),
    Memory(
        space=Space.OUTPUT,
        doc="words of W int8",
        answer="words of the output buffer",
        bases={"post": "out", "store": "src"},
    ),
    Memory(
        space=Space.PRE,
        doc="words of W bytes",
        answer="words of the pre chain's parameters, 0 without",
        bases={"compute": "pre_param"},
        signed=False,
        least=PARAM_WORDS,
        least_of="one channel block",
        loads="DRAM -> parameter buffer of the pre chain",
        needs="a pre chain",
    ),
    Memory(
        space=Space.TABLE,
        doc="words of W int8",
        answer="words of the table memory, 0 without",
        bases={"post": "table"},
        least=TABLE_WORDS,
        least_of="one function",
        loads="DRAM -> table memory",
        needs="tables",
    ),
    Memory(
        space=Space.IMAGE,
        doc="words of W int8",
        answer="words of the image buffer, 0 where load has no im2row",
        bases={"load": "image"},
        least_of="four pixels",
        loads="DRAM -> image buffer",
        needs="an image buffer",
        late=True,
    ),
    Memory(
        space=Space.NORM,
        doc="words of W bytes, of which the low three are an exponential",
        answer="words of the norm memory, 0 without",
        bases={"post": "norm_table"},
        signed=False,
        least=EXPONENTIALS,
        least_of="the exponentials of one softmax",
        loads="DRAM -> norm memory",
        needs="a norm",
        late=True,
    ),
)
MEMORY: Mapping[Space, Memory] = {memory.space: memory for memory in MEMORIES}

LOAD = Unit(
    module="opu_load",
    doc="maps from memory; joining and splitting them aliases memory",
    runs={ModuleKind.MEM_RD: ("concat", "split")},
    pattern=Pattern.INJECTIVE,
    forms={
        "Concat": KNOWN,
        "Split": f"{KNOWN}, along channels",
        "Reshape": f"{KNOWN}, each pixel retaining its channels and its number, or all in one row",
    },
)
PAD = Unit(
    module="opu_compute",
    doc="rows and columns around a map, added by its reader",
    runs={ModuleKind.PAD: ("pad",)},
    pattern=Pattern.INJECTIVE,
    forms={
        "Pad": "mode constant, four dimensions, constant pads that add something, batch left alone"
    },
)
STORE = Unit(
    module="opu_store",
    doc="maps to memory, pixels repeated to upsample or permuted",
    runs={ModuleKind.UPSAMPLE: ("upsample",), ModuleKind.MEM_WR: ("upsample", "permute")},
    pattern=Pattern.INJECTIVE,
    forms={
        "Resize": "mode nearest, whole factors for rows and columns, and coordinates and rounding "
        "by which each pixel is repeated that many times, or to a whole part of them, each of the "
        "same pixels at as many times its position",
    },
    options={ModuleKind.UPSAMPLE: "upsample"},
)
