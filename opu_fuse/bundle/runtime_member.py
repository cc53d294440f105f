"""`runtime.bin`: what libopu needs of a program, flat, so that a small target parses no JSON.

Little-endian uint32 words; the reader is `runtime/src/opu_file.c` (docs/program-file.md).
"""

import struct
import zlib
from collections.abc import Sequence
from math import prod

import numpy as np

from opu_fuse.bundle.program import UNKNOWN, Bundle, MachineSegment, Port, Tensor
from opu_fuse.hw.rtlgen.c_runtime import machine_words
from opu_fuse.hw.spec.hw_spec import HwSpec

MAGIC, VERSION = 0x5255504F, 1
"""The letters OPUR, and the version of the records: it counts up with every change."""
_DTYPES = {"float32": 0, "int8": 1, "uint8": 2}
_ON_HOST = 255
"""Kind of a port that libopu does not pack: a value of host segments, or another dtype."""
_AXES = 8
_PORT_WORDS = 36
_HEAD_WORDS = 4


def runtime_member(bundle: Bundle, hw: HwSpec) -> bytes:
    """The member of a program: a function of the manifest's records and the spec alone."""
    machine = machine_words(hw)
    segments = [w for s in bundle.segments for w in _segment(s)]
    ports = (*bundle.inputs, *bundle.outputs)
    sizes = [
        *(bundle.window_bytes, bundle.program_offset, bundle.constants.size, len(bundle.words)),
        *(bundle.batch, len(bundle.segments), len(bundle.inputs), len(bundle.outputs)),
    ]
    fixed = _HEAD_WORDS + 1 + len(machine) + len(sizes) + len(segments)
    tail = _Tail(4 * (fixed + _PORT_WORDS * len(ports)))
    tensors = {t.name: t for t in bundle.tensors}
    records = [w for p in ports for w in _port(p, tensors.get(p.value), tail)]
    words = [len(machine), *machine, *sizes, *segments, *records]
    body = np.array(words, np.int64).astype("<u4").tobytes() + bytes(tail.data)
    head = struct.pack("<4I", MAGIC, VERSION, 4 * _HEAD_WORDS + len(body), zlib.crc32(body))
    return head + body


class _Tail:
    """Bytes of varying number after the records; `add` gives their offset in the member."""

    def __init__(self, start: int) -> None:
        self._start, self.data = start, bytearray()

    def add(self, data: bytes) -> int:
        offset = self._start + len(self.data)
        self.data += data + bytes(-len(data) % 4)
        return offset


def _segment(segment: object) -> tuple[int, int]:
    """Offset in the window and words; a host segment has no words."""
    if isinstance(segment, MachineSegment):
        return segment.program_offset, segment.words
    return 0, 0


def _port(port: Port, tensor: Tensor | None, tail: _Tail) -> Sequence[int]:
    name = port.name.encode()
    sizes, strides = _axes(port)
    kind = _DTYPES.get(port.dtype, _ON_HOST)
    unscaled = port.dtype == "float32" and port.scale is None
    if tensor is None or unscaled or UNKNOWN in port.shape or len(sizes) > _AXES:
        record = [tail.add(name), len(name), _ON_HOST]
        return record + [0] * (_PORT_WORDS - len(record))
    layout = tensor.layout
    pad = [0] * (_AXES - len(sizes))
    scale = struct.unpack("<I", struct.pack("<f", port.scale or 0.0))[0]
    pieces = [w for piece in layout.pieces for w in piece]
    table = b""
    if port.table is not None:
        table = np.array(port.table.channels, "<u4").tobytes()
        table += np.array(port.table.values, np.int8).tobytes()
    return [
        *(tail.add(name), len(name), kind, int(bool(table)), prod(port.shape), scale),
        *(port.zero_point, len(sizes), *sizes, *pad, *strides, *pad),
        *(tensor.offset, layout.channels, layout.rows, layout.cols),
        *(layout.word, layout.lanes, layout.slot),
        *(len(layout.pieces), tail.add(np.array(pieces, "<u4").tobytes())),
        *(port.table.lowest if port.table else 0, tail.add(table), 0),
    ]


def _axes(port: Port) -> tuple[list[int], list[int]]:
    """Sizes of the value's axes, and the strides of each in the user's array, in elements."""
    if port.turn is None:
        return [prod(port.shape)], [1]
    axes, strides, step = port.turn.axes, [0] * len(port.turn.axes), 1
    for axis in reversed(port.turn.order):
        strides[axis] = step
        step *= axes[axis]
    return list(axes), strides
