"""Footprint of an instruction: words of every on-chip memory and bytes of DRAM that it accesses.

The scheduler inserts dependencies by it, the race proof checks them by it, the functional engine
checks bounds by it. Both ends of every interval are really touched (an interval reaches outside a
memory exactly when an access does); within a row an interval also covers the words a stride skips.
Which entries of a table are read depends on the data: all 256 count.
"""

from functools import lru_cache

from msgspec import Struct

from opu_fuse.hw.compute_channels import sweep
from opu_fuse.hw.im2row_window import UNFOLD, row_words
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import Engine, order_of, unit_params
from opu_fuse.hw.spec.chain import chain_of
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units import BY_STAGE
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.base import Space
from opu_fuse.units.memory import MEMORY
from opu_fuse.units.params import ComputeParams, LoadParams, PostParams
from opu_fuse.units.spread import spread_pixels

Interval = tuple[int, int]
Dim = tuple[int, int]
"""(count, pitch) of one loop."""


class Access(Struct, frozen=True, kw_only=True):
    """One memory an instruction touches.

    intervals: [start, end), ascending, disjoint and not adjacent; bytes of the memory window for
    DRAM, words else. write: the words are written (and perhaps read too); False: only read. unit:
    of those that have base registers of their own, which one's.
    """

    space: Space
    intervals: tuple[Interval, ...]
    write: bool
    unit: int = 0


def footprint(instruction: Instruction, spec: HwSpec) -> tuple[Access, ...]:
    """Everything one instruction reads and writes; nothing for fetch.

    Untouched memories are left out. Counts must be at least 1 and the mode one of the spec's.
    """
    match instruction.engine:
        case Engine.LOAD if instruction.opcode == UNFOLD:
            result = _im2row(instruction.load)
        case Engine.LOAD | Engine.STORE:
            result = _transfer(instruction, spec)
        case Engine.COMPUTE:
            result = _compute(instruction, spec)
        case Engine.POST:
            result = _post(instruction, spec)
        case _:
            return ()
    return tuple(access for access in result if access.intervals)


def space_limit(space: Space, spec: HwSpec) -> int:
    """Words of an on-chip memory; 0 if the machine lacks it.

    DRAM is refused: its limit is the program's memory window.
    """
    if space is Space.DRAM:
        raise ValueError("the memory window is a property of the program")
    buffer = spec.buffer(space)
    return buffer.words if buffer else 0


def dram_word_bytes(space: Space, spec: HwSpec) -> int:
    """Bytes that one word of an on-chip memory takes in DRAM."""
    return spec.word_size(MEMORY[space], spec.word_bytes)


def moved_bytes(instruction: Instruction, spec: HwSpec) -> int:
    """DRAM bytes that a load or store moves, whole words, every word as often as it moves."""
    if instruction.opcode == UNFOLD:
        return 0
    p = instruction.transfer
    words = p["run"] * p["rows"] * p["blocks"]
    if instruction.engine is Engine.STORE:
        s = instruction.store
        return words * (s["repeat_rows"] + 1) * (s["repeat_cols"] + 1) * spec.word_bytes
    return words * dram_word_bytes(Space(instruction.opcode), spec)


def _transfer(instruction: Instruction, spec: HwSpec) -> tuple[Access, ...]:
    """A store that skips bytes still touches their words: it is ordered with their readers."""
    p = instruction.transfer
    if instruction.engine is Engine.STORE:
        s, space, write = instruction.store, Space.OUTPUT, True
        down, across, first = s["repeat_rows"] + 1, s["repeat_cols"] + 1, s["src"]
        step = across + s["word_gap"]
    else:
        space, write = Space(instruction.opcode), False
        down = across = step = 1
        first = instruction.load["dst"]
    word = dram_word_bytes(space, spec)
    dram = _runs(
        instruction.dram,
        across * word,
        (p["run"], step * word),
        (p["rows"] * down, p["row_pitch"] * word),
        (p["blocks"], p["block_pitch"] * word),
    )
    chip = _runs(first, p["run"] * p["rows"] * p["blocks"])
    return (
        Access(space=Space.DRAM, intervals=dram, write=write),
        Access(space=space, intervals=chip, write=not write),
    )


def _im2row(p: LoadParams) -> tuple[Access, ...]:
    rows = {
        r * p["row_pitch"] + k * p["run"]
        for r in range(p["rows"])
        for k in range(p["kernel_rows"])
        if 0 <= p["origin_y"] + r * p["stride_y"] + k < p["in_rows"]
    }
    read = _merged([(p["image"] + row, p["image"] + row + p["run"]) for row in sorted(rows)])
    written = _runs(p["dst"], p["rows"] * row_words(p["run"], p["kernel_rows"]))
    return (
        Access(space=Space.IMAGE, intervals=read, write=False),
        Access(space=Space.FEATURE, intervals=written, write=True),
    )


def _compute(instruction: Instruction, spec: HwSpec) -> tuple[Access, ...]:
    p = instruction.compute
    s = sweep(instruction.opcode, p, spec)
    slot = 1 << p["slot_log2"]
    first, width = 0, 1
    if slot < spec.word_bytes:  # lanes continue in right-hand neighbours
        first = s.used.start // slot
        width = -(-s.used.stop // slot) - first
    ys = _visited(
        p["origin_y"], p["out_rows"], p["stride_y"], s.kernel[0], p["dilation_y"], p["in_rows"]
    )
    xs = _visited(
        *(p["origin_x"] + first, p["out_cols"], p["stride_x"]),
        *(s.kernel[1], p["dilation_x"], p["in_cols"], width),
    )
    features: tuple[Interval, ...] = ()
    if ys and xs:
        left, right = xs[0][0] * slot // spec.word_bytes, (xs[-1][1] - 1) * slot // spec.word_bytes
        base = p["feature"] + s.blocks.start * p["block_pitch"] + left
        blocks = (len(s.blocks), p["block_pitch"])
        features = _tile(base, right + 1 - left, ys, p["row_pitch"], blocks)
    psums = _runs(
        p["psum"] + s.psum_blocks.start * p["psum_block_pitch"],
        s.psum_words(p),
        (len(s.psum_blocks), p["psum_block_pitch"]),
    )
    return (
        Access(space=Space.FEATURE, intervals=features, write=False),
        Access(
            space=Space.WEIGHT,
            intervals=_runs(p["weight"], s.weight_rows * s.row_words),
            write=False,
        ),
        Access(
            space=Space.PRE,
            intervals=_blocks(p["pre_param"], s.blocks, pre_words(p)) if p["pre"] else (),
            write=False,
        ),
        Access(space=Space.PSUM, intervals=psums, write=True),
    )


def pre_words(p: ComputeParams) -> int:
    """Parameter words of the units before the array, of a block."""
    return 1 if p["gate"] else PARAM_WORDS * p["pre"]


def _blocks(first: int, blocks: range, words: int) -> tuple[Interval, ...]:
    """Parameter words of some blocks, so many each."""
    return ((first + words * blocks.start, first + words * blocks.stop),)


def _post(instruction: Instruction, spec: HwSpec) -> tuple[Access, ...]:
    p = instruction.post
    ys = _visited(p["origin_y"], p["out_rows"], p["stride_y"], p["win_rows"], 1, p["in_rows"])
    xs = _visited(p["origin_x"], p["out_cols"], p["stride_x"], p["win_cols"], 1, p["in_cols"])
    tile, outputs = _Visits(p, ys, xs), _Outputs(p)
    pixels, _ = spread_pixels(p["spread"])
    sums = ((0, -(-p["out_cols"] // pixels)),) if p["spread"] else xs
    words = _Visits(p, ys, sums).pixels(p["psum"], p["psum_row_pitch"], p["psum_block_pitch"])
    results = [Access(space=Space.PSUM, intervals=words, write=False)]
    chain = chain_of(spec).unpack(order_of(p))
    units = [BY_STAGE[module.stage] for module in chain]
    if words := sum(unit.words for unit in units):
        whole = _runs(p["param"], words * p["blocks"])
        results.append(Access(space=Space.PARAM, intervals=whole, write=False))
    for number, (module, unit) in enumerate(zip(chain, units, strict=True)):
        if unit.reads is not None and unit.memory is not None:
            before_pool = any(later.windows for later in units[number:])
            own = unit_params(p, module.bank)
            words = unit.reads(own, tile if before_pool else outputs)
            results.append(
                Access(space=unit.memory, intervals=words, write=False, unit=module.bank)
            )
    if not all(u.writes(unit_params(p, m.bank)) for m, u in zip(chain, units, strict=True)):
        return tuple(results)
    words = outputs.pixels(p["out"], p["out_row_pitch"], p["out_block_pitch"])
    results.append(Access(space=Space.OUTPUT, intervals=words, write=True))
    if p["keep"]:
        words = outputs.pixels(p["keep_at"], p["keep_row_pitch"], p["keep_block_pitch"])
        results.append(Access(space=Space.FEATURE, intervals=words, write=True))
    return tuple(results)


class _Outputs(Struct, frozen=True):
    """Reads of stages that process every output pixel once (`units.base.Reach`)."""

    p: PostParams

    def pixels(self, base: int, row_pitch: int, block_pitch: int) -> tuple[Interval, ...]:
        p = self.p
        return _runs(base, p["out_cols"], (p["out_rows"], row_pitch), (p["blocks"], block_pitch))

    def blocks(self, base: int, block_pitch: int) -> tuple[Interval, ...]:
        return _runs(base, 1, (self.p["blocks"], block_pitch))

    def run(self, base: int, words: int) -> tuple[Interval, ...]:
        return _runs(base, words)


class _Visits(Struct, frozen=True):
    """Reads of stages that process the positions of windows; absent ones do not read."""

    p: PostParams
    ys: tuple[Interval, ...]
    xs: tuple[Interval, ...]

    def pixels(self, base: int, row_pitch: int, block_pitch: int) -> tuple[Interval, ...]:
        if not (self.ys and self.xs):
            return ()
        left, right = self.xs[0][0], self.xs[-1][1]
        blocks = (self.p["blocks"], block_pitch)
        return _tile(base + left, right - left, self.ys, row_pitch, blocks)

    def blocks(self, base: int, block_pitch: int) -> tuple[Interval, ...]:
        return _runs(base, 1, (self.p["blocks"], block_pitch)) if self.ys and self.xs else ()

    def run(self, base: int, words: int) -> tuple[Interval, ...]:
        return _runs(base, words) if self.ys and self.xs else ()


@lru_cache(maxsize=4096)
def _visited(
    origin: int, outputs: int, stride: int, kernel: int, dilation: int, limit: int, width: int = 1
) -> tuple[Interval, ...]:
    """Positions `origin + o*stride + k*dilation + w` inside [0, limit), as merged intervals."""
    if dilation <= width:  # without gaps
        kernel, width = 1, (kernel - 1) * dilation + width
    if stride <= width:
        outputs, width = 1, (outputs - 1) * stride + width
    starts = sorted(
        {origin + o * stride + k * dilation for o in range(outputs) for k in range(kernel)}
    )
    spans = [(max(start, 0), min(start + width, limit)) for start in starts]
    return _merged([span for span in spans if span[0] < span[1]])


def _tile(
    base: int, length: int, rows: tuple[Interval, ...], pitch: int, blocks: Dim
) -> tuple[Interval, ...]:
    """Words [base + y*pitch, + length) for all rows y of the intervals, for every block."""
    if len(rows) == 1:
        (start, end), *_ = rows
        return _runs(base + start * pitch, length, (end - start, pitch), blocks)
    results = [
        piece for a, b in rows for piece in _runs(base + a * pitch, length, (b - a, pitch), blocks)
    ]
    return _merged(sorted(results))


def _runs(base: int, length: int, *dims: Dim) -> tuple[Interval, ...]:
    """Intervals of `length` at base + i*pitch for every combination of i, merged. dims: innermost
    first.
    """
    return tuple([(base + start, base + end) for start, end in _offsets(length, dims)])


@lru_cache(maxsize=4096)
def _offsets(length: int, dims: tuple[Dim, ...]) -> tuple[Interval, ...]:
    """The intervals of `_runs` at base 0: tiles of a layer differ in their bases only."""
    if length <= 0 or any(count <= 0 for count, _ in dims):
        return ()
    gaps: list[Dim] = []
    for count, pitch in dims:
        if count > 1 and pitch <= length and not gaps:
            length += (count - 1) * pitch
        elif count > 1 and pitch > 0:
            gaps.append((count, pitch))
    starts = [0]
    for count, pitch in reversed(gaps):
        starts = [start + i * pitch for start in starts for i in range(count)]
    if len(gaps) > 1:
        starts.sort()
    return _merged([(start, start + length) for start in starts])


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    """Ascending intervals with overlapping and adjacent ones joined."""
    results: list[Interval] = []
    for start, end in intervals:
        if results and start <= results[-1][1]:
            results[-1] = (results[-1][0], max(results[-1][1], end))
        else:
            results.append((start, end))
    return tuple(results)
