"""`runtime.bin`: what libopu needs of a program, flat, so that a small target parses no JSON.

Little-endian uint32 words; the reader is `runtime/src/opu_file.c` (docs/program-file.md). All but
the steps of host segments follows from the other members.
"""

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from math import prod

import numpy as np

from opu_fuse.bundle.program import UNKNOWN, Bundle, HostSegment, MachineSegment, Port, Tensor
from opu_fuse.hw.rtlgen.c_runtime import machine_words
from opu_fuse.hw.spec.hw_spec import HwSpec

MAGIC, VERSION = 0x5255504F, 1
"""The letters OPUR, and the version of the records: it counts up with every change."""
NONE = 0xFFFFFFFF
"""No map, no place in the work memory."""
_AXES = 8
_HEAD = struct.Struct("<4I")
_SIZES, _MAP_WORDS, _PORT_WORDS = 16, 10, 10 + 3 * _AXES
_HOST_FIELD = 12
"""Index of the offset and the size of the host section among the sizes."""


class Conversion(IntEnum):
    """What happens to the elements of a port on their way in or out.

    They stay (RAW of any type, SAME of int8), uint8 is shifted, floats are rounded with scale and
    zero point, bytes are looked up.
    """

    RAW = 0
    SAME = 1
    SHIFT = 2
    REAL = 3
    TABLE = 4


NUMBER_OF_DTYPE = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}
"""ONNX's numbers of element types (TensorProto.DataType)."""
_OF_DTYPE = {"int8": Conversion.SAME, "uint8": Conversion.SHIFT, "float32": Conversion.REAL}


def runtime_member(bundle: Bundle, hw: HwSpec) -> bytes:
    """The member of a program."""
    machine, ports = machine_words(hw), (*bundle.inputs, *bundle.outputs)
    maps = used_maps(bundle)
    number = {name: n for n, name in enumerate(maps)}
    segments = [w for s in bundle.segments for w in _segment(s)]
    fixed = _HEAD.size // 4 + 1 + len(machine) + _SIZES
    tail = _Tail(4 * (fixed + len(segments) + _MAP_WORDS * len(maps) + _PORT_WORDS * len(ports)))
    records = [w for t in maps.values() for w in _map(t, tail)]
    for n, port in enumerate(ports):
        words = _port(port, number.get(port.value, NONE), tail, is_input=n < len(bundle.inputs))
        assert len(words) == _PORT_WORDS
        records += words
    sizes = [
        *_wide(bundle.window_bytes),
        *_wide(bundle.program_offset),
        *_wide(bundle.constants.size),
        *(len(bundle.words), bundle.batch, len(bundle.segments)),
        *(len(bundle.inputs), len(bundle.outputs), len(maps)),
        *(tail.add(bundle.host_steps), len(bundle.host_steps)),
        *(tail.text(why_not(bundle)), tail.text(bundle.model)),
    ]
    assert len(sizes) == _SIZES
    words = [len(machine), *machine, *sizes, *segments, *records]
    body = np.array(words, np.int64).astype("<u4").tobytes() + bytes(tail.data)
    return _HEAD.pack(MAGIC, VERSION, _HEAD.size + len(body), zlib.crc32(body)) + body


def host_steps_in(member: bytes) -> bytes | None:
    """The steps of host segments in a member; None for one of another version, which another
    opu-fuse has written. Raises ValueError for a member that is cut off.
    """
    if len(member) < _HEAD.size + 4:
        raise ValueError("is cut off")
    if _HEAD.unpack_from(member)[:2] != (MAGIC, VERSION):
        return None
    (machine,) = struct.unpack_from("<I", member, _HEAD.size)
    place = _HEAD.size + 4 * (1 + machine + _HOST_FIELD)
    if place + 8 > len(member):
        raise ValueError("is cut off")
    start, size = struct.unpack_from("<2I", member, place)
    if start + size > len(member):
        raise ValueError("is cut off")
    return member[start : start + size]


def used_maps(bundle: Bundle) -> dict[str, Tensor]:
    """The maps that ports and host segments read or write, by name; a map's number is its place."""
    hosts = [s for s in bundle.segments if isinstance(s, HostSegment)]
    values = {value for s in hosts for _, value in (*s.inputs, *s.outputs, *s.results.items())}
    values |= {port.value for port in (*bundle.inputs, *bundle.outputs)}
    return {t.name: t for t in bundle.tensors if t.name in values}


def why_not(bundle: Bundle) -> str:
    """Why libopu cannot run a program; "" where it can."""
    for kind, ports in (("input", bundle.inputs), ("output", bundle.outputs)):
        for port in ports:
            if UNKNOWN in port.shape or not prod(port.shape):
                return f"{kind} {port.name} has a size that depends on data, or none"
            if max(len(port.shape), len(_axes(port)[0])) > _AXES:
                return f"{kind} {port.name} has more than {_AXES} axes"
            rounded = port.scale is not None and port.table is None
            if port.dtype not in (_OF_DTYPE if rounded else NUMBER_OF_DTYPE):
                return f"{kind} {port.name} is {port.dtype}: libopu takes float32, int8 and uint8"
    maps = {t.name for t in bundle.tensors}
    hosts = [s for s in bundle.segments if isinstance(s, HostSegment)]
    outside = any(p.value not in maps or p.unrounded for p in (*bundle.inputs, *bundle.outputs))
    if (hosts or outside) and not bundle.host_steps:
        ops = [op for s in hosts for op in s.ops]
        named = ", ".join(f"{op.name} ({op.op})" for op in ops[:2]) or "a value outside the machine"
        more = f" and {len(ops) - 2} more" if len(ops) > 2 else ""
        return f"{named}{more} on the host: compile with --host c"
    return ""


class _Tail:
    """Bytes of varying number after the records; `add` gives their offset in the member."""

    def __init__(self, start: int) -> None:
        self._start, self.data = start, bytearray()

    def add(self, data: bytes) -> int:
        offset = self._start + len(self.data)
        self.data += data + bytes(-len(data) % 4)
        return offset

    def text(self, text: str) -> int:
        return self.add(text.encode() + b"\0")


def _wide(number: int) -> tuple[int, int]:
    return number & 0xFFFFFFFF, number >> 32


def _segment(segment: object) -> tuple[int, ...]:
    """Whether it is of the host; offset in the window and words."""
    if isinstance(segment, MachineSegment):
        return (0, *_wide(segment.program_offset), segment.words)
    return (1, 0, 0, 0)


def _map(tensor: Tensor, tail: _Tail) -> Sequence[int]:
    layout = tensor.layout
    pieces = np.array(layout.pieces, "<u4").tobytes()
    return [
        *_wide(tensor.offset),
        *(layout.channels, layout.rows, layout.cols),
        *(layout.word, layout.lanes, layout.slot),
        *(len(layout.pieces), tail.add(pieces)),
    ]


def _port(port: Port, number: int, tail: _Tail, *, is_input: bool) -> Sequence[int]:
    """Name, array, conversion, axes, map and table."""
    sizes, strides = _axes(port)
    pad = [0] * (_AXES - len(sizes))
    shape = [*port.shape, *[0] * _AXES][:_AXES]
    return [
        *(tail.text(port.name), NUMBER_OF_DTYPE.get(port.dtype, 0), min(len(port.shape), _AXES)),
        *(max(size, 0) for size in shape),
        *(int(_conversion(port, number, is_input=is_input)), _bits(port.scale), port.zero_point),
        *(min(len(sizes), _AXES), *[*sizes, *pad][:_AXES], *[*strides, *pad][:_AXES]),
        *(number, *_table(port, tail)),
    ]


def _conversion(port: Port, number: int, *, is_input: bool) -> Conversion:
    if port.table is not None and is_input:
        return Conversion.TABLE
    if port.scale is None and number == NONE:
        return Conversion.RAW
    return _OF_DTYPE.get(port.dtype, Conversion.RAW)


def _bits(scale: float | None) -> int:
    with np.errstate(over="ignore"):  # a damaged scale becomes infinite, and is refused
        return int(np.array(scale or 0.0, np.float64).astype("<f4").view("<u4"))


def _table(port: Port, tail: _Tail) -> tuple[int, int]:
    if port.table is None:
        return 0, 0
    table = np.array(port.table.channels, "<u4").tobytes()
    return port.table.lowest, tail.add(table + np.array(port.table.values, np.int8).tobytes())


def _axes(port: Port) -> tuple[list[int], list[int]]:
    """Sizes of the value's axes, and the strides of each in the user's array, in elements."""
    if port.turn is None:
        return [max(prod(port.shape), 0)], [1]
    axes, strides, step = port.turn.axes, [0] * len(port.turn.axes), 1
    for axis in reversed(port.turn.order):
        strides[axis] = step
        step *= axes[axis]
    return list(axes), strides
