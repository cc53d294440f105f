"""Whether a bundle keeps the promises of `program.py`: what engines rely on without looking again.

Runs when a program file is written and when one is read, so a file cannot name bytes outside its
memory window, words outside its program, or values that nobody computes.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from opu_fuse.bundle.check_host import host_mistakes
from opu_fuse.bundle.instruction_ranges import instruction_ranges
from opu_fuse.bundle.manifest import damaged
from opu_fuse.bundle.program import (
    UNKNOWN,
    Bundle,
    HostSegment,
    MachineSegment,
    Port,
    StageTensor,
    Tensor,
)
from opu_fuse.dtypes import DTYPES
from opu_fuse.hw.dram_layout import Pieces
from opu_fuse.hw.isa.table import OPCODE, ORDER_STAGES, PROGRAM_ALIGNMENT, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.io_layout import BYTES, AxisPermutation, ByteTable

_POST_RUN = OPCODE[Engine.POST, "run"]

_MAP_RANK = 4
"""Axes of a feature map: image, channels, rows, columns."""
LARGEST_PORT = 1 << 28
"""Largest number of values of an input or output."""


def mistakes(bundle: Bundle, hw: HwSpec) -> Iterator[str]:
    """Broken promises. Only the first is meaningful: each rule relies on those before it."""
    for rule in RULES:
        yield from rule(bundle, hw)


def check_bundle(bundle: Bundle, hw: HwSpec, where: str) -> None:
    """Raises ProgramError with the first broken promise. where: the file, for the message."""
    for what in mistakes(bundle, hw):
        raise damaged(where, what)


def _memory(bundle: Bundle, hw: HwSpec) -> Iterator[str]:
    """Window inside the machine's memory; constants and program inside the window, disjoint."""
    window, start = bundle.window_bytes, bundle.program_offset
    end = start + 4 * len(bundle.words)
    if window > hw.dram.capacity:
        yield f"memory window of {window} bytes, {hw.name} has {hw.dram.capacity}"
    if end > window or start % 4:
        yield f"program at bytes {start}..{end} of a window of {window}"
    if bundle.constants.size > start:
        yield f"{bundle.constants.size} constant bytes reach into the program at {start}"
    if bundle.spec_hash != hw.spec_hash:
        yield f"spec hash {bundle.spec_hash:011x}, the spec inside has {hw.spec_hash:011x}"


def _tensors(bundle: Bundle, hw: HwSpec) -> Iterator[str]:
    """Names once, layouts of this machine that hold the shape, bytes disjoint from all others."""
    yield from _twice("tensor", [t.name for t in bundle.tensors])
    program_end = bundle.program_offset + 4 * len(bundle.words)
    for t in bundle.tensors:
        yield from _layout(t, hw, bundle.batch)
        end = t.offset + t.layout.size_bytes
        if t.offset < bundle.constants.size or end > bundle.window_bytes:
            yield f"tensor {t.name} at bytes {t.offset}..{end} is outside the feature maps"
        if t.offset < program_end and bundle.program_offset < end:
            yield f"tensor {t.name} at bytes {t.offset}..{end} overlaps the program"
        if t.offset % t.layout.word:
            yield f"tensor {t.name} at byte {t.offset}, between words of {t.layout.word}"
        if not (math.isfinite(t.scale) and t.scale > 0 and -128 <= t.zero_point <= 127):
            yield f"tensor {t.name} has scale {t.scale}, zero point {t.zero_point}"
        if not -1 <= t.first_group <= t.last_group:
            yield f"tensor {t.name} lives from group {t.first_group} to {t.last_group}"


def _layout(t: Tensor, hw: HwSpec, images: int) -> Iterator[str]:
    y = t.layout
    sizes = (y.channels, y.rows, y.cols)
    if min(sizes) < 1 or (y.word, y.lanes) != (hw.word_bytes, hw.word_channels):
        yield f"tensor {t.name} has a layout of another machine ({y})"
    elif not (1 <= y.slot <= y.word and y.slot & (y.slot - 1) == 0):
        yield f"tensor {t.name} has slots of {y.slot} bytes in words of {y.word}"
    elif y.slot < y.word and y.channels > y.slot:
        yield f"tensor {t.name} has {y.channels} channels in slots of {y.slot}"
    elif y.pieces and not _lanes_fit(y.pieces, y.channels, hw.dram.capacity):
        yield f"tensor {t.name} has lanes {y.pieces} for {y.channels} channels"
    if y.rows % images:
        yield f"tensor {t.name} has {y.rows} rows for a batch of {images}"
    if math.prod(sizes) != images * math.prod(t.shape) or min(t.shape, default=1) < 1:
        yield f"tensor {t.name} has shape {t.shape}, but is stored as {sizes}"


def _groups(bundle: Bundle, hw: HwSpec) -> Iterator[str]:
    """Numbered in order; stage results in the chain; tensors live while there are groups."""
    posts = sum(len(s.tiles) for s in bundle.segments if isinstance(s, MachineSegment))
    packed = {1, *(mode.px for mode in hw.array.modes)}
    most = posts * hw.buffers.psum.words * hw.word_channels
    for number, group in enumerate(bundle.groups):
        if group.index != number:
            yield f"group {group.index} is at index {number}"
        for stage in group.stages:
            if not _possible(stage, most) or stage.px not in packed:
                yield f"group {number} has an impossible stage tensor {stage.name}"
    limit = len(bundle.groups)
    for t in bundle.tensors:
        if t.last_group > limit:
            yield f"tensor {t.name} lives to group {t.last_group} of {limit}"
    for node, (_, group) in bundle.source_map.items():
        if not -1 <= group < limit:
            yield f"node {node} is in group {group} of {limit}"


def _passed_on(bundle: Bundle, hw: HwSpec) -> Iterator[str]:  # noqa: ARG001  one signature for all checks
    """Inputs and outputs of groups are tensors, or written by a group and read by a later one."""
    known = {t.name for t in bundle.tensors}
    last = {name: group.index for group in bundle.groups for name in group.inputs}
    for group in bundle.groups:
        passed_on = {name for name in group.outputs if last.get(name, -1) > group.index}
        for name in (*group.inputs, *({*group.outputs} - passed_on)):
            if name not in known:
                yield f"group {group.index} ({group.name}) names {name}, which is no tensor"
        known |= passed_on


def _possible(stage: StageTensor, most: int) -> bool:
    """Whether a stage result can exist.

    most: values that all post instructions can read from the partial sums.
    """
    sizes = (stage.channels, stage.rows, stage.cols)
    if not 0 <= stage.stage < ORDER_STAGES or min(sizes) < 1 or math.prod(sizes) > most:
        return False
    return _lanes_fit(stage.pieces, stage.channels, most)


def _lanes_fit(pieces: Pieces, channels: int, most: int) -> bool:
    """Whether every channel has a lane of its own, below `most`."""
    end = 0
    for first, count in sorted(pieces):
        if count < 1 or first < end:
            return False
        end = first + count
    return sum(count for _, count in pieces) == channels and end <= most


def _segments(bundle: Bundle, hw: HwSpec) -> Iterator[str]:  # noqa: ARG001  one signature for all checks
    """Words inside the program; as many group numbers and tiles as instructions."""
    for number, segment in enumerate(bundle.segments):
        if isinstance(segment, MachineSegment):
            yield from _machine_segment(bundle, segment, number)


def _machine_segment(bundle: Bundle, segment: MachineSegment, number: int) -> Iterator[str]:
    first, rest = divmod(segment.program_offset - bundle.program_offset, 4)
    last = first + segment.words
    if rest or first < 0 or segment.words < 1 or last > len(bundle.words):
        yield f"segment {number} is words {first}..{last} of {len(bundle.words)}"
        return
    if segment.program_offset % PROGRAM_ALIGNMENT:
        at = segment.program_offset
        yield f"segment {number} begins at byte {at}, no multiple of {PROGRAM_ALIGNMENT}"
    words = bundle.words[first:last]
    starts = int(np.count_nonzero(words >> 31))
    posts = int(np.count_nonzero(words >> 24 == (8 | Engine.POST) << 4 | _POST_RUN.code))
    if starts != len(segment.groups) or posts != len(segment.tiles):
        yield (
            f"segment {number} has {starts} instructions and {posts} post tiles, "
            f"but {len(segment.groups)} group numbers and {len(segment.tiles)} tiles"
        )
    if any(not -1 <= group < len(bundle.groups) for group in segment.groups):
        yield f"segment {number} has instructions of groups that do not exist"


def _values(bundle: Bundle, hw: HwSpec) -> Iterator[str]:  # noqa: ARG001  one signature for all checks
    """Every value read by a host segment or an output port is computed before."""
    yield from _twice("input", [p.name for p in bundle.inputs])
    yield from _twice("output", [p.name for p in bundle.outputs])
    tensors = {t.name: t for t in bundle.tensors}
    known = {*tensors, *(v for p in bundle.inputs for v in (p.value, p.unrounded) if v)}
    for number, segment in enumerate(bundle.segments):
        if isinstance(segment, HostSegment):
            for _, value in segment.inputs:
                if value not in known:
                    yield f"segment {number} reads {value}, which nothing computes"
            known.update(value for _, value in segment.outputs)
    for port in bundle.inputs:
        if port.unrounded in tensors:
            yield f"input {port.name} is unrounded in {port.unrounded}, which the machine holds"
        if UNKNOWN in port.shape:
            yield f"input {port.name} has shape {port.shape}"
        if bundle.batch > 1 and port.shape[:1] != (1,):
            yield f"input {port.name} has shape {port.shape}, which is not one image of a batch"
    for port in (*bundle.inputs, *bundle.outputs):
        if port.value not in known:
            yield f"port {port.name} has value {port.value}, which nothing computes"
        yield from _port(port, tensors.get(port.value))


def _port(port: Port, tensor: Tensor | None) -> Iterator[str]:
    if port.dtype not in DTYPES:
        yield f"port {port.name} has dtype {port.dtype}"
    if min(port.shape, default=0) < UNKNOWN:
        yield f"port {port.name} has shape {port.shape}"
    if math.prod(abs(size) for size in port.shape) > LARGEST_PORT:
        yield f"port {port.name} has shape {port.shape}, more than {LARGEST_PORT} values"
    if port.scale is not None and not (math.isfinite(port.scale) and port.scale > 0):
        yield f"port {port.name} has scale {port.scale}"
    if port.turn is not None:
        yield from _turn(port, port.turn)
    if port.table is not None:
        yield from _table(port, port.table)
    if tensor is None:
        return
    if port.turn is not None and port.turn.value != tensor.shape:
        yield f"port {port.name} permutes {port.turn.value}, its tensor has shape {tensor.shape}"
    if math.prod(port.shape) != math.prod(tensor.shape):
        yield f"port {port.name} has shape {port.shape}, its tensor {tensor.shape}"
    if port.scale is None and port.dtype not in ("int8", "uint8"):
        yield f"port {port.name} ({port.dtype}) has no scale, but its tensor is int8"


def _table(port: Port, table: ByteTable) -> Iterator[str]:
    """A port's table has an int8 number for each byte of each channel."""
    shape = port.turn.value if port.turn else port.shape
    count = shape[1] if len(shape) == _MAP_RANK and shape[0] == 1 else 0
    lowest = {"uint8": 0, "int8": -128}.get(port.dtype)
    if port.scale is None or table.lowest != lowest:
        yield f"port {port.name} ({port.dtype}) looks up bytes from {table.lowest} on"
    if sorted(table.channels) != list(range(count)) or len(table.values) != count:
        yield f"port {port.name} looks up channels {table.channels} of {shape}"
    numbers = [n for row in table.values for n in row]
    if {len(row) for row in table.values} != {BYTES} or not -128 <= min(numbers) <= max(
        numbers
    ) < 128:
        yield f"port {port.name} looks up what is no int8 for each byte"


def _turn(port: Port, turn: AxisPermutation) -> Iterator[str]:
    """A port's axis permutation maps the elements of the value one-to-one to the user's array."""
    sizes = {math.prod(s) for s in (port.shape, turn.value, turn.axes)}
    if sorted(turn.order) != list(range(len(turn.axes))):
        yield f"port {port.name} permutes axes {turn.axes} in the order {turn.order}"
    if len(sizes) > 1 or min((*port.shape, *turn.value, *turn.axes), default=1) < 1:
        yield f"port {port.name} permutes {turn.value} as {turn.axes} into {port.shape}"


def _twice(kind: str, names: list[str]) -> Iterator[str]:
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{kind} {name} appears twice"


def _debug_database(bundle: Bundle, hw: HwSpec) -> Iterator[str]:  # noqa: ARG001  one signature for all checks
    """Instruction ranges of groups are those of the segments; operators run in one group; the fused
    model has its weights.
    """
    ranges = instruction_ranges(bundle.segments, bundle.words, bundle.program_offset)
    for group in bundle.groups:
        if group.instructions != ranges.get(group.index, ()):
            yield f"group {group.index} ({group.name}) names instructions that are not its own"
    yield from _twice("operator", [op.name for group in bundle.groups for op in group.ops])
    if bundle.fused and not bundle.qdq:
        yield "fused.onnx has its weights in qdq.onnx, which is missing"


RULES: tuple[Callable[[Bundle, HwSpec], Iterator[str]], ...] = (
    _memory,
    _tensors,
    _groups,
    _passed_on,
    _segments,
    host_mistakes,
    _values,
    _debug_database,
)
