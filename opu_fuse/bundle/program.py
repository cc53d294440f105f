"""The program file's model: everything the engines need, nothing of the compiler.

`Bundle` is what `name.opu` holds (see `docs/program-file.md`). Memory window of one program,
offsets in bytes::

    0 ..                constants: weights and parameters (`dram.bin`)
    ..                  feature maps, reused when dead
    program_offset ..   program words of all machine segments (`program.bin`), to the end
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opu_fuse.hw.dram_layout import Layout, Pieces
from opu_fuse.io_layout import AxisPermutation, ByteTable
from opu_fuse.number_text import counted
from opu_fuse.summaries import summary

OLDEST_SCHEMA, SCHEMA_VERSION = 2, 5
"""Schema versions that this opu-fuse reads. A file has the oldest one that can express it.

3: ports that permute axes. 4: several images in a run. 5: subtraction of maps, ports with byte
tables, inputs that are read rounded and unrounded.
"""
UNKNOWN = -1
"""Size in an output's shape that depends on the data: known after the host has run."""
KERNEL_SUFFIX = ".kernel.json"
"""Suffix of host pieces that are kernels; the others are models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A feature map in the memory window.

    name: value name in the canonical model
    qdq_name: int8 tensor of the QDQ model ("" if none)
    shape: of the model value, e.g. (1, c, h, w) or (1, n) (then rows = cols = 1 of an image)
    layout: of all images of a batch, below each other
    offset: bytes
    home: base allocation: the tensor in whose bytes it is stored (a zero-copy concatenation, or
        the tensor itself)
    scale, zero_point: of the int8
    first_group, last_group: groups between which the bytes are valid (-1: written by the host
        before the first group)
    """

    name: str
    qdq_name: str
    shape: tuple[int, ...]
    layout: Layout
    offset: int
    home: str
    scale: float
    zero_point: int
    first_group: int
    last_group: int

    def __repr__(self) -> str:
        shape = f"int8{list(self.shape)}"
        where = f"{self.layout.size_bytes:,} bytes at {self.offset:#x}"
        return summary(self, self.name, shape, where, f"scale {self.scale:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operator of a group; module is None for virtual operators."""

    name: str
    op: str
    module: str | None

    def __repr__(self) -> str:
        return summary(self, self.name, self.op, f"module {self.module}" if self.module else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTensor:
    """A quantised tensor that the post chain makes in stage number `stage` (0 = first of `order`).

    pooled: the value is in output coordinates (after POOL) instead of tile coordinates
    stored: it is the group's output and a `Tensor`
    rows: of one image
    pieces: lanes of the channels
    px: neighbouring pixels in a word
    """

    stage: int
    name: str
    qdq_name: str
    pooled: bool
    stored: bool
    channels: int
    rows: int
    cols: int
    pieces: Pieces
    px: int

    def __repr__(self) -> str:
        size = f"int8[{self.channels}, {self.rows}, {self.cols}]"
        return summary(self, self.name, size, f"stage {self.stage}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionRange:
    """Consecutive instructions of one group.

    segment: index in `Bundle.segments`
    first, last: C-type numbers in it
    first_word, last_word: words in it, the U-types before them included
    """

    segment: int
    first: int
    last: int
    first_word: int
    last_word: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """One group. macs, cycles and dram_bytes are for all images of a batch.

    inputs, outputs: tensor names; an output that is no `Tensor` is resident, for later groups
    macs: of the model's Conv and Gemm in it, without pixels that a pool after them leaves out
    cycles: predicted
    dram_bytes: moved by its loads and stores
    instructions: ranges of the program, several when groups interleave
    """

    index: int
    name: str
    ops: tuple[Op, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    macs: int
    cycles: int
    dram_bytes: int
    stages: tuple[StageTensor, ...] = ()
    instructions: tuple[InstructionRange, ...] = ()

    def __repr__(self) -> str:
        work = f"{self.macs:,} MACs", f"{self.cycles:,} cycles predicted"
        operators = f"operators {', '.join(op.op for op in self.ops)}"
        return summary(self, f"{self.index} {self.name}", *work, operators)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSegment:
    """A program of the machine: `words` 32-bit words at byte offset `program_offset` of the window.

    groups: group index of every C-type in program order (-1: prologue, end). tiles: for every
    `post.run` in program order (tile row, tile col, output row, output col, channel block) of its
    tile's first element in the group's tensors, rows counted through all images of a batch.
    """

    program_offset: int
    words: int
    groups: tuple[int, ...]
    tiles: tuple[tuple[int, int, int, int, int], ...]

    def __repr__(self) -> str:
        sizes = counted(self.words, "word"), counted(len(self.groups), "instruction")
        return summary(self, "", *sizes, counted(len(self.tiles), "tile"))


class PieceOp(NamedTuple):
    """An operator in a piece. reason: why it is in no kernel; "" in kernels."""

    name: str
    reason: str


class HostedOp(NamedTuple):
    """An operator of a host segment. reason: why the machine does not run it."""

    name: str
    op: str
    reason: str


class Cut(NamedTuple):
    """A producer and its consumer that a rule does not fuse."""

    producer: str
    consumer: str
    reason: str


class Boundary(NamedTuple):
    """An edge between groups. reason: why its ends are not in one group."""

    source: str
    target: str
    reason: str


class DerivedNodes(NamedTuple):
    """What a node of the user's model became. group: the last one that runs it, -1 on the host."""

    names: tuple[str, ...]
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPiece:
    """Part of a host segment: a fused kernel (`member` ends with `.kernel.json`) or a model for
    ONNX Runtime (`.onnx`).

    inputs, outputs: names in the segment. ops: an operator that is computed in several steps may be
    in several pieces.
    """

    member: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    ops: tuple[PieceOp, ...]

    def __repr__(self) -> str:
        return summary(self, self.member, *(op.name for op in self.ops))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSegment:
    """Operators of the host, as pieces in running order.

    inputs / outputs: (name in the segment, value name). They are int8 arrays where the value is a
    `Tensor` or another quantised value, floats elsewhere. cuts: fusions that a rule forbids.
    rounded: (value name, int8 tensor of the QDQ model) of every result that it rounds; those are
    called `<value name>:int8` in the segment.
    """

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    ops: tuple[HostedOp, ...]
    pieces: tuple[HostPiece, ...]
    cuts: tuple[Cut, ...] = ()
    rounded: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return summary(self, "", *(f"{op.name} ({op.op})" for op in self.ops))

    @property
    def results(self) -> dict[str, str]:
        """Name in the segment -> value name, of all that the segment shows."""
        return dict(self.outputs) | {f"{value}:int8": value for value, _ in self.rounded}


Segment = MachineSegment | HostSegment


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output of the user's model, for one image.

    shape: with UNKNOWN sizes only where the host makes an output. value: value name; when scale is
    set, the value is int8 inside and the port is quantised on entry / dequantised on exit
    (`quantised` ports of int8 models pass through). turn: permutation of the value's elements in
    the user's array, None for the same order. table: of an input of bytes, the int8 that each is
    inside; None where scale and zero point say so. unrounded: name of the value that is the user's
    array as it is, "" where an input is read rounded alone.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    value: str
    scale: float | None
    zero_point: int
    turn: AxisPermutation | None = None
    table: ByteTable | None = None
    unrounded: str = ""

    def __repr__(self) -> str:
        inside = "" if self.scale is None else f"int8 inside, scale {self.scale:g}"
        return summary(self, self.name, f"{self.dtype}{list(self.shape)}", inside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The program file in memory.

    constants: `dram.bin` (uint8)
    words: `program.bin` (uint32, all segments)
    hosts: members of host pieces -> kernel (JSON) or serialised ONNX
    qdq: the quantised model (serialised ONNX, for `--check`) or b""
    fused: the same with groups as functions, its weights those of `qdq` (`fused_onnx.py`), or b""
    source_map: node of the user's model -> the canonical nodes and the group that it became
    batch: images that machine segments run together
    host_steps: the host segments for libopu (`host/build/steps`), or b""
    """

    model: str
    model_hash: str
    spec_yaml: str
    spec_hash: int
    tool_version: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    groups: tuple[GroupInfo, ...]
    segments: tuple[Segment, ...]
    boundaries: tuple[Boundary, ...]
    source_map: Mapping[str, DerivedNodes]
    window_bytes: int
    program_offset: int
    constants: np.ndarray
    words: np.ndarray
    hosts: Mapping[str, bytes]
    qdq: bytes
    fused: bytes = b""
    batch: int = 1
    host_steps: bytes = b""

    def __repr__(self) -> str:
        hosts = sum(isinstance(s, HostSegment) for s in self.segments)
        return summary(
            self,
            self.model,
            counted(len(self.groups), "group"),
            counted(hosts, "host segment") if hosts else "",
            f"{sum(g.cycles for g in self.groups):,} cycles predicted",
            counted(len(self.words), "program word"),
        )
