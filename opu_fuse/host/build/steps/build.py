"""`host_steps`: the host segments of a program for libopu.

The section has, in little-endian uint32 words: bytes of the work memory of an image (two words);
for every port the slots of its value and of its unrounded value in it; for every segment the
offset of its first step in the section and how many there are; steps; constants.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import chain

import numpy as np
from msgspec import Struct, field, structs

from opu_fuse.bundle.program import Bundle, HostSegment, Port
from opu_fuse.bundle.runtime_member import NONE, NUMBER_OF_DTYPE, refused_port, used_maps, why_not
from opu_fuse.errors import ModelError
from opu_fuse.host.build.steps.lower import Lowered, bytes_of, lowered, written
from opu_fuse.host.build.steps.nest import Nest, Operand, TopK
from opu_fuse.host.kernel import Instr, scalar

_ALIGNMENT = 64


class Step(IntEnum):
    """Kinds of steps."""

    LOAD = 0
    STORE = 1
    NEST = 2
    TOPK = 3


OPS = (
    *("const", "index", "cast", "neg", "abs", "sign", "sqrt", "round", "floor", "ceil", "exp"),
    *("tanh", "sigmoid", "add", "sub", "mul", "div", "max", "min", "maxnum", "lt", "le", "gt"),
    *("ge", "eq", "and", "or", "not", "select", "log", "erf", "pow", "mod", "sin", "cos"),
    *("within", "at"),
)
"""Operations by their numbers in `runtime/src/opu_host.h`."""
_OPERANDS, _VALUES = 64, 255
"""Operands of a nest and values of its payload that libopu takes, operands among them."""
_LEVER = "compile without --host c"


class _Move(Struct, frozen=True):
    """A map of the window to or from a value of the host."""

    kind: Step
    map: int
    value: str


class _Draft(Struct):
    """The steps of every segment while they are gathered. A value of the program is called by its
    name; one of a host segment alone by the segment's number and its name.
    """

    bundle: Bundle
    maps: Mapping[str, int]
    steps: list[list[_Move | Nest | TopK]] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    """Value of the program -> the value that holds it on the host."""


def with_host_steps(bundle: Bundle) -> Bundle:
    """The program with its host segments for libopu.

    Raises ModelError for an operator that has no form in C, and for inputs and outputs that libopu
    does not pack.
    """
    if refused := refused_port(bundle):
        raise ModelError("--host c", refused, _LEVER)
    if not why_not(bundle):
        return bundle
    draft = _Draft(bundle, {name: n for n, name in enumerate(used_maps(bundle))})
    _inputs(draft)
    for number, segment in enumerate(bundle.segments):
        draft.steps.append([])
        if isinstance(segment, HostSegment):
            _segment(draft, number, segment)
    return replace(bundle, host_steps=_encoded(draft))


def _inputs(draft: _Draft) -> None:
    read = {v for s in draft.bundle.segments if isinstance(s, HostSegment) for _, v in s.inputs}
    read |= {port.value for port in draft.bundle.outputs}
    for port in draft.bundle.inputs:
        size = int(np.prod(port.shape))
        if port.value in read or port.value not in draft.maps:
            raw = port.scale is None and port.value not in draft.maps
            _own(draft, port.value, size * (np.dtype(port.dtype).itemsize if raw else 1))
        if port.unrounded:
            _own(draft, port.unrounded, size * np.dtype(port.dtype).itemsize)


def _own(draft: _Draft, value: str, size: int) -> None:
    draft.slots[value] = value
    draft.sizes[value] = size


def _segment(draft: _Draft, number: int, segment: HostSegment) -> None:
    steps, local = draft.steps[-1], dict[str, str]()
    for name, value in segment.inputs:
        if value not in draft.slots:
            tensor = next(t for t in draft.bundle.tensors if t.name == value)
            _own(draft, value, int(np.prod(tensor.shape)))
            steps.append(_Move(Step.LOAD, draft.maps[value], value))
        local[name] = draft.slots[value]
    for piece in segment.pieces:
        _piece(draft, number, lowered(piece, draft.bundle.hosts[piece.member]), local)
    for name, value in segment.results.items():
        if f"{number}/{name}:shown" in draft.sizes:
            name = f"{name}:shown"
        draft.slots[value] = local.get(name, f"{number}/{name}")
        if value in draft.maps:
            steps.append(_Move(Step.STORE, draft.maps[value], draft.slots[value]))


def _piece(draft: _Draft, number: int, found: Lowered, local: Mapping[str, str]) -> None:
    """local: values of the segment that come from outside -> their names."""

    def named(value: str) -> str:
        return local.get(value, f"{number}/{value}")

    def operand(x: Operand, constants: Mapping[str, np.ndarray]) -> Operand:
        if x.value in constants and x.value not in local:
            draft.constants[named(x.value)] = constants[x.value]
        return structs.replace(x, value=named(x.value))

    for step in found.steps:
        if isinstance(step, TopK):
            names = {k: named(v) for k, v in step.names.items()}
            draft.steps[-1].append(structs.replace(step, **names))
            continue
        constants = {**found.constants, **step.constants}
        moved = structs.replace(
            step,
            inputs=tuple(operand(x, constants) for x in step.inputs),
            results=tuple(operand(x, constants) for x in step.results),
        )
        draft.steps[-1].append(moved)
    for value, dtype, elements in written(found.steps):
        size = elements * np.dtype(dtype).itemsize
        if value in found.types and value not in found.constants:
            size = max(size, bytes_of(found.types[value]))
        name = local.get(value, f"{number}/{value}")
        draft.sizes[name] = max(draft.sizes.get(name, 0), size)


def _lifetimes(draft: _Draft) -> tuple[dict[str, int], dict[str, int]]:
    """First and last use of every value: inputs at 0, steps from 1 on, outputs after all."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    time = 0
    for port in draft.bundle.inputs:
        for value in {port.value, port.unrounded} & draft.slots.keys():
            first[value] = last[value] = 0
    for step in chain.from_iterable(draft.steps):
        time += 1
        for value in _values(step):
            if value not in draft.constants:
                first.setdefault(value, time)
                last[value] = time
    for port in draft.bundle.outputs:
        if port.value in draft.slots:
            last[draft.slots[port.value]] = time + 1
    return first, last


def _offsets(draft: _Draft) -> tuple[dict[str, int], int]:
    """First fit by time of use: value -> offset in the work memory; bytes of all."""
    first, last = _lifetimes(draft)
    sizes = {v: -(-draft.sizes[v] // _ALIGNMENT) * _ALIGNMENT for v in first}
    offsets: dict[str, int] = {}
    for value in sorted(first, key=lambda v: (first[v], -sizes[v], v)):
        busy = sorted(
            (offsets[v], offsets[v] + sizes[v])
            for v in offsets
            if first[v] <= last[value] and first[value] <= last[v]
        )
        at = 0
        for begin, end in busy:
            if at + sizes[value] <= begin:
                break
            at = max(at, end)
        offsets[value] = at
    return offsets, max((at + sizes[v] for v, at in offsets.items()), default=0)


def _values(step: _Move | Nest | TopK) -> Iterator[str]:
    if isinstance(step, _Move):
        yield step.value
    elif isinstance(step, TopK):
        yield from step.names.values()
    else:
        yield from (x.value for x in (*step.inputs, *step.results))


def _encoded(draft: _Draft) -> bytes:
    offsets, total = _offsets(draft)
    if total > NONE:
        what = f"host segments need {total:,} bytes of work memory, libopu takes {NONE:,}"
        raise ModelError("--host c", what, _LEVER)
    ports = (*draft.bundle.inputs, *draft.bundle.outputs)
    head = 2 + 2 * len(ports) + 2 * len(draft.steps)
    counts = [[_word_count(step) for step in steps] for steps in draft.steps]
    data = _Constants(4 * (head + sum(map(sum, counts))))
    words: list[int] = [total & NONE, total >> 32]
    for port in ports:
        words += _port_slots(draft, port, offsets)
    at = 4 * head
    for own in counts:
        words += [at, len(own)]
        at += 4 * sum(own)
    for steps in draft.steps:
        for step in steps:
            words += _step(step, draft, offsets, data)
    return np.array(words, np.int64).astype("<u4").tobytes() + bytes(data.data)


def _port_slots(draft: _Draft, port: Port, offsets: Mapping[str, int]) -> tuple[int, int]:
    slots = [
        offsets.get(draft.slots.get(value, ""), NONE) for value in (port.value, port.unrounded)
    ]
    return slots[0], slots[1]


class _Constants:
    """Bytes after the steps: tables and constants, each once."""

    def __init__(self, start: int) -> None:
        self._start, self.data = start, bytearray()
        self._known: dict[bytes, int] = {}

    def add(self, data: bytes) -> int:
        if data not in self._known:
            self._known[data] = self._start + len(self.data)
            self.data += data + bytes(-len(data) % 4)
        return self._known[data]


def _word_count(step: _Move | Nest | TopK) -> int:
    if isinstance(step, _Move):
        return 3
    if isinstance(step, TopK):
        return 9
    operands = len(step.inputs) + len(step.results)
    loops = len(step.extents)
    return 6 + loops + operands * (3 + 2 * loops) + 7 * len(step.body) + len(step.results)


def _step(
    step: _Move | Nest | TopK, draft: _Draft, offsets: Mapping[str, int], data: _Constants
) -> Sequence[int]:
    if isinstance(step, _Move):
        return [step.kind, step.map, offsets[step.value]]
    if isinstance(step, TopK):
        words = [Step.TOPK, step.rows, step.count, step.k, NUMBER_OF_DTYPE[step.dtype]]
        slots = (offsets.get(name, NONE) for name in (step.source, step.values, step.indices))
        return [*words, int(step.largest), *slots]
    operands = len(step.inputs) + len(step.results)
    for count, most, kind in (
        (operands, _OPERANDS, "operands"),
        (operands + len(step.body), _VALUES, "values"),
    ):
        if count > most:
            value = step.results[0].value.partition("/")[2]  # after the segment's number
            what = f"the kernel of {value} has {count} {kind}, libopu takes {most}"
            raise ModelError("--host c", what, _LEVER)
    words = [Step.NEST, _word_count(step), len(step.extents)]
    words += [len(step.inputs), len(step.results), len(step.body), *step.extents]
    for x in (*step.inputs, *step.results):
        words += _operand(x, draft, offsets, data)
    for instr in step.body:
        words += _instruction(instr)
    return [*words, *step.yields]


def _operand(
    x: Operand, draft: _Draft, offsets: Mapping[str, int], data: _Constants
) -> Sequence[int]:
    constant = x.value in draft.constants
    start = data.add(_raw(draft.constants[x.value])) if constant else offsets[x.value]
    tables = [
        data.add(np.array(x.tables[n], "<i4").tobytes()) if n in x.tables else NONE
        for n in range(len(x.strides))
    ]
    first = start + x.offset * np.dtype(x.dtype).itemsize
    return [int(constant), NUMBER_OF_DTYPE[x.dtype], first, *x.strides, *tables]


def _raw(array: np.ndarray) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _instruction(instr: Instr) -> Sequence[int]:
    args = [*instr.args, 0, 0, 0][:3]
    if instr.op == "index":
        args[0] = instr.dim
    low = high = 0
    if instr.literal:
        low, high = _literal(instr)
    return [OPS.index(instr.op), NUMBER_OF_DTYPE[instr.dtype], *args, low, high]


def _literal(instr: Instr) -> tuple[int, int]:
    """The bits of the register: a float32, a float64, or an int64, as counts are."""
    dtype = instr.dtype if instr.op == "const" else "int64"
    value = scalar(instr.literal, dtype)
    form = {"float32": "<fI", "float64": "<d"}.get(dtype, "<q")
    more = (0,) if dtype == "float32" else ()
    number = float(value) if np.dtype(dtype).kind == "f" else int(value)
    low, high = struct.unpack("<II", struct.pack(form, number, *more))
    return low, high
