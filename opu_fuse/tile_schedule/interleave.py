"""Interleaving of the layers of a fused stack: the order of its time slots."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from opu_fuse.layout.shape import Shape
from opu_fuse.tile_schedule.line_buffers import LineBuffer, reach
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.tile import Rect, ceil_div, pre_pool_rect, spans

HANDOVER = 60
"""Cycles from the last iteration of post, or the last byte of a load, to the first step of a
compute instruction that waits for it.
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
    """Approximate cycles per slot: array and post for each layer, memory for a row strip."""

    array: tuple[float, ...]
    post: tuple[float, ...]
    load: float


class _Line(Struct):
    """Dependencies of the slots of a layer, as `needs` and `frees` of TimeSlot.

    sides: per slot, the (layer, slots) that its residual operands need;
    done: slots already ordered.
    """

    needs: list[int]
    frees: list[int]
    sides: list[list[tuple[int, int]]]
    done: int = 0


class _Clock(Struct):
    """Cycles at which the engines complete the slots ordered so far.

    done: completion of every slot, per layer, after a leading zero;
    posts: of the last two tiles, each of which has its own bank of partial sums;
    port: of the shared write port of the feature buffer.
    """

    done: list[list[float]]
    array: float = 0.0
    posts: tuple[float, float] = (0.0, 0.0)
    port: float = 0.0


class Order(Struct):
    """List scheduler of the time slots.

    The layer that ran last continues if it waits for at most a handover. Otherwise the deepest
    layer of those that wait least is next. A row strip is loaded as soon as its line buffer
    has space.
    """

    layers: Sequence[TiledLayer]
    line_buffers: Sequence[LineBuffer]
    load_rows: int
    alias_roots: Mapping[int, int]
    pace: Pace
    lines: list[_Line] = field(default_factory=list)

    def schedule(self) -> tuple[tuple[TimeSlot, ...], float] | None:
        """Return (slots in execution order, cycles).

        None if the rows of a residual operand are produced too late.
        """
        self.lines = [self._loads(), *(self._line(n) for n in range(len(self.layers)))]
        produced_rows = [self.load_rows, *(layer.tile.rows for layer in self.layers)]
        for number, reader in enumerate(self.layers):
            self.lines[number].frees = self._frees(number, reader, produced_rows[number])
        clock = _Clock(done=[[0.0] for _ in self.lines])
        slots: list[TimeSlot] = []
        last = LOAD
        while True:
            while self._can(LOAD):
                slots.append(self._load(clock))
            able = [n for n in range(len(self.layers) - 1, LOAD, -1) if self._can(n)]
            if not able:
                break
            if len(able) > 1:
                starts = {n: self._start(n, clock) + HANDOVER * (n != last) for n in able}
                able = [min(able, key=starts.__getitem__)]
            last = able[0]
            slots.append(self._compute(last, clock))
        done = all(line.done == len(line.needs) for line in self.lines)
        return (tuple(slots), clock.port) if done else None

    def _start(self, layer: int, clock: _Clock) -> float:
        """Cycle at which its next rows, the array and a bank of partial sums are ready."""
        line = self.lines[layer + 1]
        return max(clock.array, clock.done[layer][line.needs[line.done]], clock.posts[0])

    def _load(self, clock: _Clock) -> TimeSlot:
        """Order the next load. Loads and resident outputs of post share a write port."""
        clock.port += self.pace.load + HANDOVER
        clock.done[0].append(clock.port)
        return self._take(LOAD)

    def _compute(self, layer: int, clock: _Clock) -> TimeSlot:
        _, last = clock.posts
        clock.array = self._start(layer, clock) + self.pace.array[layer]
        clock.port = max(clock.array, clock.port, last) + self.pace.post[layer]
        clock.posts = last, clock.port
        clock.done[layer + 1].append(clock.port + HANDOVER)
        return self._take(layer)

    def _take(self, layer: int) -> TimeSlot:
        line = self.lines[layer + 1]
        at, line.done = line.done, line.done + 1
        return TimeSlot(layer=layer, number=at, needs=line.needs[at], frees=line.frees[at])

    def _can(self, layer: int) -> bool:
        """Whether a layer's next input rows are ready and its output rows may be overwritten."""
        line = self.lines[layer + 1]
        at = line.done
        if at == len(line.needs):
            return False
        if layer > LOAD and line.needs[at] > self.lines[layer].done:
            return False
        if line.sides[at] and any(self.lines[n + 1].done < count for n, count in line.sides[at]):
            return False
        has_reader = layer + 1 < len(self.layers)
        return not has_reader or self.lines[layer + 2].done >= line.frees[at]

    def _loads(self) -> _Line:
        count = self.layers[0].shape.images * ceil_div(
            self.line_buffers[0].image_rows, self.load_rows
        )
        return _Line(needs=[0] * count, frees=[0] * count, sides=[[] for _ in range(count)])

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
        return _Line(needs=needs, frees=[0] * len(needs), sides=sides)

    def _residuals(self, number: int, row: int, rows: int) -> list[tuple[int, int]]:
        """(layer, slots) that store the residual and gate operands of the rows."""
        read = list(_operand_rows(self.layers[number], row, rows))
        return [
            (before, _slots_until(layer, end, layer.shape.out_cols, None))
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
