"""Interleaving of the layers of a fused stack: the order of its time slots."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct, field

from opu_fuse.layout.shape import Shape
from opu_fuse.tile_schedule.line_buffers import LineBuffer, reach
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.tile import Rect, ceil_div, pre_pool_rect, spans

T = TypeVar("T")
_CYCLES = attrgetter("cycles")

HANDOVER = 60
"""Cycles from the last iteration of post, or the last byte of a load, to the first step of a
compute instruction that waits for it.
"""

EXCHANGE = 12
"""Cycles from the last step of array or post on a bank of partial sums to the first of the other,
and from a load to the next write of the feature buffer.
"""

BEAM, KEPT = 5, 4096
"""Orders of the slots that are kept at a time, at most, and in all: fewer of many slots. With more,
the measured networks take as many cycles.
"""

LOAD = -1
"""Layer number of load slots, which fill the first line buffer."""


class TimeSlot(Struct, frozen=True, kw_only=True):
    """One tile of a layer, or one load of a row strip (layer LOAD), by number.

    needs: slots of the preceding layer that must be complete: they produce the input;
    frees: slots of the following layer that must be complete: they read the rows overwritten here.
    """

    layer: int
    number: int
    needs: int
    frees: int


class Pace(Struct, frozen=True, kw_only=True):
    """Approximate cycles per slot: array and post for each layer, memory for a row strip.

    constants: to load those of each layer, before its first slot.
    """

    array: tuple[float, ...]
    post: tuple[float, ...]
    constants: tuple[float, ...]
    load: float


class _Line(Struct):
    """The slots of a layer in their order.

    needs, frees: as of TimeSlot; a last need that no order meets ends them;
    sides: per slot, the (line, slots) that its residual operands need;
    array: cycles of the array for a slot;
    post: cycles of post for each slot.
    """

    needs: list[int]
    frees: list[int]
    sides: list[list[tuple[int, int]]]
    array: float
    post: list[float]


_Ends = tuple[float, "_Ends"] | None
"""Cycles at which the slots of a layer are complete, the latest first."""
_Numbers = tuple[int, "_Numbers"] | None
"""Lines of the slots ordered so far, the latest first."""


class _Partial(Struct, frozen=True, gc=False):
    """An order of some of the slots, with the cycles at which the engines complete them.

    done: ordered slots of every line, loads first;
    ends: of every line;
    array_left, post_left: cycles of the slots that are left;
    array, post: of the last tile;
    banks: when the partial sums of the last two tiles, each in a bank of its own, are reusable;
    port: when the write port of the feature buffer is reusable, which loads and post share;
    loaded: when the last load ends, since loads are in order;
    order: the slots.
    """

    done: tuple[int, ...]
    ends: tuple[_Ends, ...]
    array_left: float
    post_left: float
    array: float = 0.0
    post: float = 0.0
    banks: tuple[float, float] = (0.0, 0.0)
    port: float = 0.0
    loaded: float = 0.0
    order: _Numbers = None


class _Step(Struct, frozen=True, gc=False):
    """The next slot of a line, by its number, after an order.

    cycles: of all slots, at least; then the sum of those of array and post;
    array, post, port, loaded: as of _Partial.
    """

    cycles: tuple[float, float]
    before: _Partial
    number: int
    array: float
    post: float
    port: float
    loaded: float


class Order(Struct):
    """Beam search for an order of the time slots.

    With two banks of partial sums, array and post work on neighbouring tiles at a time, and the one
    that is done first waits: a tile with much array work suits one before it with much post work.
    So orders are extended slot by slot, and those of the least cycles are kept.
    """

    layers: Sequence[TiledLayer]
    line_buffers: Sequence[LineBuffer]
    load_rows: int
    alias_roots: Mapping[int, int]
    pace: Pace
    lines: list[_Line] = field(default_factory=list)

    def schedule(self, limit: float = inf) -> tuple[tuple[TimeSlot, ...], float] | None:
        """Return (slots in execution order, cycles).

        None if the rows of a residual operand are produced too late, or all orders take more than
        `limit` cycles. That is known early: no slot makes the least cycles of an order fewer.
        """
        self.lines = [self._loads(), *(self._line(n) for n in range(len(self.layers)))]
        produced_rows = [self.load_rows, *(layer.tile.rows for layer in self.layers)]
        for number, reader in enumerate(self.layers):
            self.lines[number].frees = self._frees(number, reader, produced_rows[number])
        kept, slots = [self._nothing()], sum(len(line.needs) for line in self.lines)
        width = max(min(BEAM, KEPT // slots), 2)
        for line in self.lines:
            line.needs.append(slots)
        for _ in range(slots):
            found: dict[tuple[tuple[int, ...], int], _Step] = {}
            for partial in kept:
                for number in self._ready(partial.done):
                    step = self._step(partial, number)
                    key = partial.done, number
                    known = found.get(key)
                    if known is None or step.cycles < known.cycles:
                        found[key] = step
            steps = sorted(found.values(), key=_CYCLES)[:width]
            if steps and steps[0].cycles[0] > limit:
                return None
            kept = [self._after(step) for step in steps]
        return (self._slots(kept[0]), kept[0].post) if kept else None

    def _nothing(self) -> _Partial:
        lines = self.lines
        return _Partial(
            done=(0,) * len(lines),
            ends=(None,) * len(lines),
            array_left=sum(line.array * len(line.needs) for line in lines),
            post_left=sum(sum(line.post) for line in lines),
        )

    def _slots(self, partial: _Partial) -> tuple[TimeSlot, ...]:
        """The slots of an order, the first one first."""
        done, slots, order = [*partial.done], list[TimeSlot](), partial.order
        while order is not None:
            number, order = order
            done[number] -= 1
            at, line = done[number], self.lines[number]
            slots.append(
                TimeSlot(layer=number - 1, number=at, needs=line.needs[at], frees=line.frees[at])
            )
        return tuple(reversed(slots))

    def _ready(self, done: Sequence[int]) -> list[int]:
        """Lines whose next input rows are ready and output rows may be overwritten, last first."""
        ready: list[int] = []
        lines, last = self.lines, len(done) - 1
        for number in range(last, -1, -1):
            line, at = lines[number], done[number]
            if (
                line.needs[at] <= (done[number - 1] if number else 0)
                and (number == last or line.frees[at] <= done[number + 1])
                and not (line.sides[at] and any(done[n] < count for n, count in line.sides[at]))
            ):
                ready.append(number)
        return ready

    def _step(self, partial: _Partial, number: int) -> _Step:
        """The next slot of a line after an order."""
        array, post, port, loaded = partial.array, partial.post, partial.port, partial.loaded
        line, done = self.lines[number], partial.done
        at, after = done[number], line.post[done[number]]
        if not number:
            port = loaded = max(port, array) + self.pace.load + EXCHANGE
        else:
            ready = _end(partial.ends[number - 1], done[number - 1] - line.needs[at])
            if at == 0:
                loaded += self.pace.constants[number - 1]
                ready = max(ready, loaded)
            array = max(array, ready, partial.banks[0]) + line.array
            if number + 1 < len(done):
                post = port = max(array + EXCHANGE, post, port) + after
            else:
                post = max(array + EXCHANGE, post) + after
        array_end = array + partial.array_left - line.array
        post_end = post + partial.post_left - after
        return _Step(
            (max(array_end, post_end), array_end + post_end),
            partial,
            number,
            *(array, post, port, loaded),
        )

    def _after(self, step: _Step) -> _Partial:
        """The order with that slot."""
        partial, number, post = step.before, step.number, step.post
        at, line = partial.done[number], self.lines[number]
        end = post + HANDOVER if number else step.port
        return _Partial(
            _replaced(partial.done, number, at + 1),
            _replaced(partial.ends, number, (end, partial.ends[number])),
            partial.array_left - line.array,
            partial.post_left - line.post[at],
            step.array,
            post,
            (partial.banks[1], post + EXCHANGE) if number else partial.banks,
            step.port,
            step.loaded,
            (number, partial.order),
        )

    def _loads(self) -> _Line:
        count = self.layers[0].shape.images * ceil_div(
            self.line_buffers[0].image_rows, self.load_rows
        )
        return _Line(
            needs=[0] * count,
            frees=[0] * count,
            sides=[[] for _ in range(count)],
            array=0.0,
            post=[0.0] * count,
        )

    def _line(self, number: int) -> _Line:
        """Dependencies of the tiles of a layer, row by row in schedule order."""
        layer, shape = self.layers[number], self.layers[number].shape
        ends = [sum(span) for span in reach(shape, layer.tile.rows)]
        across = [_columns(shape, *span) for span in spans(shape.out_cols, layer.tile.cols)]
        lasts = [max(chunk.block + chunk.blocks for chunk in out.features) for out in layer.ranges]
        rows = list(spans(shape.out_rows, layer.tile.rows))
        needs: list[int] = []
        sides: list[list[tuple[int, int]]] = []
        for image in range(shape.images):
            for (row, count), end in zip(rows, ends, strict=True):
                if number == 0:
                    loads = ceil_div(shape.in_rows, self.load_rows)
                    needed = [image * loads + ceil_div(end, self.load_rows)]
                    needed *= len(across) * len(lasts)
                else:
                    before, last_row = self.layers[number - 1], image * shape.in_rows + end
                    needed = [
                        _slots_until(before, last_row, cols, last - 1)
                        for cols in across
                        for last in lasts
                    ]
                needs += needed
                operands = self._residuals(number, image * shape.out_rows + row, count)
                sides += [operands] * len(needed)
        return _Line(
            needs=needs,
            frees=[0] * len(needs),
            sides=sides,
            array=self.pace.array[number],
            post=self._posts(number),
        )

    def _posts(self, number: int) -> list[float]:
        """Cycles of post for every slot, with those of rows that a line buffer holds twice."""
        layer, pace = self.layers[number], self.pace.post[number]
        if number + 1 == len(self.layers):
            return [pace] * len(layer.tiles)
        to, rows = self.line_buffers[number + 1], (tile.rect[:2] for tile in layer.tiles)
        written = ((sum(n for _, n, _ in to.written(row, count)), count) for row, count in rows)
        return [pace * written_rows / count for written_rows, count in written]

    def _residuals(self, number: int, row: int, rows: int) -> list[tuple[int, int]]:
        """(line, slots) that store the residual and gate operands of the rows."""
        read = list(_operand_rows(self.layers[number], row, rows))
        return [
            (before + 1, _slots_until(layer, end, layer.shape.out_cols, None))
            for before, layer in enumerate(self.layers[:number])
            for value, end in read
            if self.alias_roots[value] == layer.writes.alias_root
        ]

    def _frees(self, number: int, reader: TiledLayer, write_rows: int) -> list[int]:
        """Slots of `reader` that must be complete before each slot that writes its input.

        write_rows: rows per writing slot.
        """
        line_buffer, shape = self.line_buffers[number], reader.shape
        firsts = [
            line_buffer.sequence_number(image * line_buffer.image_rows + first)
            for image in range(shape.images)
            for first, _ in reach(shape, reader.tile.rows)
        ]
        lasts = [
            line_buffer.sequence_number(image * line_buffer.image_rows + row + rows - 1)
            for image in range(shape.images)
            for row, rows in spans(line_buffer.image_rows, write_rows)
        ]
        reads_per_row = len(self.lines[number + 1].needs) // len(firsts)
        writes_per_row = len(self.lines[number].needs) // len(lasts)
        rows_read = (bisect_left(firsts, last + 1 - line_buffer.rows) for last in lasts)
        return [rows * reads_per_row for rows in rows_read for _ in range(writes_per_row)]


def _replaced(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*values[:number], value, *values[number + 1 :])


def _end(ends: _Ends, before: int) -> float:
    """Cycle at which a slot is complete. before: later slots of its line."""
    for _ in range(before):
        assert ends is not None, "it has so many slots"
        ends = ends[1]
    return ends[0] if ends is not None else 0.0


def _columns(shape: Shape, col: int, cols: int) -> int:
    """Input columns up to the last one that a tile reads."""
    left, right, _ = shape.pool_window.span(1, col, cols, shape.pre_pool_cols)
    _, end, _ = shape.window.span(1, left, right - left, shape.in_cols)
    return end


def _operand_rows(layer: TiledLayer, row: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield (DFG index, rows read from the top) of the residual and gate operands of rows."""
    shape, image = layer.shape, row // layer.shape.out_rows
    for value, side in zip(layer.residuals, shape.sides, strict=True):
        if side.broadcast:
            yield value, image + 1
        else:
            pre_pool = pre_pool_rect(shape, Rect(row, rows, 0, shape.out_cols))
            yield value, pre_pool.row_end if side.before_pool else row + rows
    if layer.gate is not None:
        yield layer.gate, image + 1


def _slots_until(layer: TiledLayer, rows: int, cols: int, block: int | None) -> int:
    """Slots of a layer until its first rows and columns, up to a channel block, are complete."""
    shape, size = layer.shape, layer.tile
    image, row = divmod(rows - 1, shape.out_rows)
    down = image * ceil_div(shape.out_rows, size.rows) + row // size.rows
    across = ceil_div(shape.out_cols, size.cols)
    tile = down * across + (min(cols, shape.out_cols) - 1) // size.cols
    ranges = [r for r in layer.ranges if block is None or r.block <= block]
    return tile * len(layer.ranges) + max(len(ranges), 1)
