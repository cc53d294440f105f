"""What an instruction touches: words of every on-chip memory, bytes of DRAM.

The scheduler inserts dependencies by it, the race proof checks them by it, the functional engine
checks bounds by it. Both ends of every interval are really touched (an interval reaches outside a
memory exactly when an access does); within a row an interval also covers the words a stride skips.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import PARAM_WORDS, Engine, Space, Stage, unpack_order
from opu_fuse.hw.spec import HwSpec

Interval = tuple[int, int]
Dim = tuple[int, int]
"""(count, pitch) of one loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One memory an instruction touches.

    intervals: [start, end), ascending, disjoint and not adjacent; bytes of the memory window for
    DRAM, words else. write: the words are written (and perhaps read too); False: only read.
    """

    space: Space
    intervals: tuple[Interval, ...]
    write: bool


def footprint(instruction: Instruction, spec: HwSpec) -> tuple[Access, ...]:
    """Everything one instruction reads and writes; nothing for fetch.

    Untouched memories are left out. Counts must be at least 1 and the mode one of the spec's.
    """
    match instruction.engine:
        case Engine.LOAD:
            found = _transfer(instruction, spec, Space(instruction.opcode), "dst", store=False)
        case Engine.STORE:
            found = _transfer(instruction, spec, Space.OUTPUT, "src", store=True)
        case Engine.COMPUTE:
            found = _compute(instruction, spec)
        case Engine.POST:
            found = _post(instruction)
        case _:
            return ()
    return tuple(access for access in found if access.intervals)


def space_limit(space: Space, spec: HwSpec) -> int:
    """Words of an on-chip memory. DRAM is refused: its limit is the program's memory window."""
    if space is Space.DRAM:
        raise ValueError("the memory window is a property of the program")
    return getattr(spec.buffers, space.value).words


def dram_word_bytes(space: Space, spec: HwSpec) -> int:
    """Bytes that one word of an on-chip memory takes in DRAM."""
    return spec.buffers.weight.width if space is Space.WEIGHT else spec.word_bytes


def overlaps(a: tuple[Interval, ...], b: tuple[Interval, ...]) -> bool:
    """True when two ascending interval lists share a word."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][0] < b[j][1] and b[j][0] < a[i][1]:
            return True
        if a[i][1] <= b[j][1]:
            i += 1
        else:
            j += 1
    return False


def conflict(a: tuple[Access, ...], b: tuple[Access, ...]) -> Space | None:
    """The first memory in which two footprints overlap and at least one of them writes."""
    for x in a:
        for y in b:
            if x.space is y.space and (x.write or y.write) and overlaps(x.intervals, y.intervals):
                return x.space
    return None


def _transfer(
    instruction: Instruction, spec: HwSpec, space: Space, register: str, *, store: bool
) -> tuple[Access, ...]:
    p = instruction.params
    word = dram_word_bytes(space, spec)
    first = p[register]
    words = p["run"] * p["rows"] * p["blocks"]
    dram = _runs(
        instruction.dram,
        p["run"] * word,
        (p["rows"], p["row_pitch"] * word),
        (p["blocks"], p["block_pitch"] * word),
    )
    chip = ((first, first + words),) if words else ()
    return (
        Access(space=Space.DRAM, intervals=dram, write=store),
        Access(space=space, intervals=chip, write=not store),
    )


def _compute(instruction: Instruction, spec: HwSpec) -> tuple[Access, ...]:
    p = instruction.params
    copy = instruction.opcode == "copy"
    if copy:
        blocks_in = blocks_out = p["ic_steps"]
        kernel_rows = kernel_cols = 1
        lanes = spec.word_channels
        weights: tuple[Interval, ...] = ()
    else:
        mode = spec.array.modes[p["mode"]]
        lanes = p["ic_steps"] * mode.ic
        blocks_in = -(-p["ic_steps"] * mode.ic // spec.word_channels)
        blocks_out = -(-p["oc_steps"] * mode.oc // spec.word_channels)
        kernel_rows, kernel_cols = p["kernel_rows"], p["kernel_cols"]
        rows = p["ic_steps"] * kernel_rows * kernel_cols * p["oc_steps"]
        weights = ((p["weight"], p["weight"] + rows * spec.row_words),)
    ys = _visited(
        p["origin_y"], p["out_rows"], p["stride_y"], kernel_rows, p["dilation_y"], p["in_rows"]
    )
    xs = _visited(
        p["origin_x"], p["out_cols"], p["stride_x"], kernel_cols, p["dilation_x"], p["in_cols"]
    )
    slot = 1 << p["slot_log2"]
    if slot < spec.word_bytes:
        xs = _columns_across(p, kernel_cols, lanes // slot)
    features: tuple[Interval, ...] = ()
    if ys and xs:
        left, right = xs[0][0] * slot // spec.word_bytes, (xs[-1][1] - 1) * slot // spec.word_bytes
        features = _tile(
            p["feature"] + left, right + 1 - left, ys, p["row_pitch"], (blocks_in, p["block_pitch"])
        )
    pixels = p["out_rows"] * p["out_cols"]
    psums = _runs(p["psum"], pixels, (blocks_out, p["psum_block_pitch"]), (1, 0))
    return (
        Access(space=Space.FEATURE, intervals=features, write=False),
        Access(space=Space.WEIGHT, intervals=weights, write=False),
        Access(space=Space.PSUM, intervals=psums, write=True),
    )


def _columns_across(p: Mapping[str, int], kernel_cols: int, width: int) -> tuple[Interval, ...]:
    """Columns of a slotted tile that are read when every visit takes `width` neighbours."""
    reach = (p["out_cols"] - 1) * p["stride_x"] + (kernel_cols - 1) * p["dilation_x"] + width
    start, end = max(p["origin_x"], 0), min(p["origin_x"] + reach, p["in_cols"])
    return ((start, end),) if start < end else ()


def _post(instruction: Instruction) -> tuple[Access, ...]:
    p = instruction.params
    chain = unpack_order(p["order"])
    blocks = p["blocks"]
    ys = _visited(p["origin_y"], p["out_rows"], p["stride_y"], p["win_rows"], 1, p["in_rows"])
    xs = _visited(p["origin_x"], p["out_cols"], p["stride_x"], p["win_cols"], 1, p["in_cols"])

    def tile(base: int, row_pitch: int, block_pitch: int) -> tuple[Interval, ...]:
        if not (ys and xs):
            return ()
        left, right = xs[0][0], xs[-1][1]
        return _tile(base + left, right - left, ys, row_pitch, (blocks, block_pitch))

    found = [
        Access(
            space=Space.PSUM,
            intervals=tile(p["psum"], p["psum_row_pitch"], p["psum_block_pitch"]),
            write=False,
        )
    ]
    if Stage.REQUANT in chain:
        span = (p["param"], p["param"] + PARAM_WORDS * blocks)
        found.append(Access(space=Space.PARAM, intervals=(span,), write=False))
    if Stage.RESIDUAL in chain:
        before_pool = Stage.POOL in chain[chain.index(Stage.RESIDUAL) :]
        shape = (p["res_row_pitch"], p["res_block_pitch"])
        words = (
            tile(p["res"], *shape)
            if before_pool
            else _runs(p["res"], p["out_cols"], (p["out_rows"], shape[0]), (blocks, shape[1]))
        )
        found.append(Access(space=Space.RESIDUAL, intervals=words, write=False))
    written = _runs(
        p["out"],
        p["out_cols"],
        (p["out_rows"], p["out_row_pitch"]),
        (blocks, p["out_block_pitch"]),
    )
    found.append(Access(space=Space.OUTPUT, intervals=written, write=True))
    return tuple(found)


@lru_cache(maxsize=4096)
def _visited(
    origin: int, outputs: int, stride: int, kernel: int, dilation: int, limit: int
) -> tuple[Interval, ...]:
    """Positions `origin + o*stride + k*dilation` inside [0, limit), as merged intervals."""
    found = sorted(
        {
            position
            for o in range(outputs)
            for k in range(kernel)
            if 0 <= (position := origin + o * stride + k * dilation) < limit
        }
    )
    return _merged([(position, position + 1) for position in found])


def _tile(
    base: int, length: int, rows: tuple[Interval, ...], pitch: int, blocks: Dim
) -> tuple[Interval, ...]:
    """Words [base + y*pitch, + length) for all rows y of the intervals, for every block."""
    if len(rows) == 1:
        (start, end), *_ = rows
        return _runs(base + start * pitch, length, (end - start, pitch), blocks)
    found = [
        piece for a, b in rows for piece in _runs(base + a * pitch, length, (b - a, pitch), blocks)
    ]
    return _merged(sorted(found))


def _runs(base: int, length: int, inner: Dim, outer: Dim) -> tuple[Interval, ...]:
    """Intervals of `length` at base + i*inner pitch + o*outer pitch, merged."""
    if length <= 0 or inner[0] <= 0 or outer[0] <= 0:
        return ()
    gaps: list[Dim] = []
    for count, pitch in (inner, outer):
        if count > 1 and pitch <= length and not gaps:
            length += (count - 1) * pitch
        elif count > 1 and pitch > 0:
            gaps.append((count, pitch))
    starts = [base]
    for count, pitch in reversed(gaps):
        starts = [start + i * pitch for start in starts for i in range(count)]
    if len(gaps) > 1:
        starts.sort()
        return _merged([(start, start + length) for start in starts])
    return tuple((start, start + length) for start in starts)


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Ascending intervals with overlapping and adjacent ones joined."""
    found: list[Interval] = []
    for start, end in intervals:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return tuple(found)
