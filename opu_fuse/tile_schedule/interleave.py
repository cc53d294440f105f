"""In which order the layers of a cascade take their turns."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from opu_fuse.layout.shape import Shape
from opu_fuse.tile_schedule.line_buffers import LineBuffer, reach
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.tile import Rect, ceil_div, pre_pool_rect, spans

HANDOVER = 60
"""Cycles from the last visit of post, or the last byte of a load, to the first step of a compute
instruction that waits for it.
"""

LOAD = -1
"""Number of the layer that makes the first line_buffer: none, it is loaded."""


class TimeSlot(Struct, frozen=True, kw_only=True):
    """A tile of a layer, or rows that are loaded, by number. needs: how many turns of the layer
    before must be over; frees: how many of the layer behind, since they read what is overwritten.
    """

    layer: int
    number: int
    needs: int
    frees: int


class Pace(Struct, frozen=True, kw_only=True):
    """Cycles of a turn, about: of array and post for each layer, of the memory for rows loaded."""

    array: tuple[float, ...]
    post: tuple[float, ...]
    load: float


class _Line(Struct):
    """Turns of a layer: what each needs of the layer before and of the one behind. sides: (layer,
    turns) that its residual operands need.
    """

    needs: list[int]
    frees: list[int]
    sides: list[list[tuple[int, int]]]
    done: int = 0


class _Clock(Struct):
    """When the engines will be done with the turns so far. posts: of the last two tiles, which have
    a bank of partial sums each; made: of every layer's turns, behind a zero.
    """

    made: list[list[float]]
    array: float = 0.0
    posts: tuple[float, float] = (0.0, 0.0)
    port: float = 0.0


class Order(Struct):
    """Who comes next: the layer before once more, if it need not wait for longer than a handover;
    else the deepest of those that wait least. Rows are loaded, a strip a turn, as soon as there is
    room.
    """

    works: Sequence[TiledLayer]
    line_buffers: Sequence[LineBuffer]
    load_rows: int
    homes: Mapping[int, int]
    pace: Pace
    lines: list[_Line] = field(default_factory=list)

    def turns(self) -> tuple[tuple[TimeSlot, ...], float] | None:
        """All of them; None when the rows of a residual operand come too late."""
        self.lines = [self._loads(), *(self._line(n) for n in range(len(self.works)))]
        made = [self.load_rows, *(work.tile.rows for work in self.works)]
        for number, reader in enumerate(self.works):
            self.lines[number].frees = self._frees(number, reader, made[number])
        clock = _Clock(made=[[0.0] for _ in self.lines])
        found: list[TimeSlot] = []
        last = LOAD
        while True:
            while self._can(LOAD):
                found.append(self._load(clock))
            able = [n for n in range(len(self.works) - 1, LOAD, -1) if self._can(n)]
            if not able:
                break
            if len(able) > 1:
                starts = {n: self._start(n, clock) + HANDOVER * (n != last) for n in able}
                able = [min(able, key=starts.__getitem__)]
            last = able[0]
            found.append(self._compute(last, clock))
        done = all(line.done == len(line.needs) for line in self.lines)
        return (tuple(found), clock.port) if done else None

    def _start(self, layer: int, clock: _Clock) -> float:
        """When its next rows, the array and a bank of partial sums are there."""
        line = self.lines[layer + 1]
        return max(clock.array, clock.made[layer][line.needs[line.done]], clock.posts[0])

    def _load(self, clock: _Clock) -> TimeSlot:
        """It waits for the tile that post keeps, the next tile for it: they share a port."""
        clock.port += self.pace.load + HANDOVER
        clock.made[0].append(clock.port)
        return self._take(LOAD)

    def _compute(self, layer: int, clock: _Clock) -> TimeSlot:
        _, last = clock.posts
        clock.array = self._start(layer, clock) + self.pace.array[layer]
        clock.port = max(clock.array, clock.port, last) + self.pace.post[layer]
        clock.posts = last, clock.port
        clock.made[layer + 1].append(clock.port + HANDOVER)
        return self._take(layer)

    def _take(self, layer: int) -> TimeSlot:
        line = self.lines[layer + 1]
        at, line.done = line.done, line.done + 1
        return TimeSlot(layer=layer, number=at, needs=line.needs[at], frees=line.frees[at])

    def _can(self, layer: int) -> bool:
        """Whether a layer's next rows are made, and there is room for what it makes of them."""
        line = self.lines[layer + 1]
        at = line.done
        if at == len(line.needs):
            return False
        if layer > LOAD and line.needs[at] > self.lines[layer].done:
            return False
        if line.sides[at] and any(self.lines[n + 1].done < count for n, count in line.sides[at]):
            return False
        behind = layer + 1 < len(self.works)
        return not behind or self.lines[layer + 2].done >= line.frees[at]

    def _loads(self) -> _Line:
        count = self.works[0].shape.images * ceil_div(
            self.line_buffers[0].image_rows, self.load_rows
        )
        return _Line(needs=[0] * count, frees=[0] * count, sides=[[] for _ in range(count)])

    def _line(self, number: int) -> _Line:
        """Its tiles, row by row as the schedule has them: what they need differs in few ways."""
        work, shape = self.works[number], self.works[number].shape
        ends = [sum(span) for span in reach(shape, work.tile.rows)]
        across = [_columns(shape, *span) for span in spans(shape.out_cols, work.tile.cols)]
        lasts = [max(chunk.block + chunk.blocks for chunk in out.features) for out in work.ranges]
        rows = list(spans(shape.out_rows, work.tile.rows))
        needs: list[int] = []
        sides: list[list[tuple[int, int]]] = []
        for image in range(shape.images):
            for (row, count), end in zip(rows, ends, strict=True):
                if number == 0:
                    loads = ceil_div(shape.in_rows, self.load_rows)
                    needed = [image * loads + ceil_div(end, self.load_rows)]
                    needed *= len(across) * len(lasts)
                else:
                    before, last_row = self.works[number - 1], image * shape.in_rows + end
                    needed = [
                        _turns(before, last_row, cols, last - 1)
                        for cols in across
                        for last in lasts
                    ]
                needs += needed
                beside = self._residuals(number, image * shape.out_rows + row, count)
                sides += [beside] * len(needed)
        return _Line(needs=needs, frees=[0] * len(needs), sides=sides)

    def _residuals(self, number: int, row: int, rows: int) -> list[tuple[int, int]]:
        """Turns that make, in memory, what is added to rows, or multiplies them."""
        read = list(_read_beside(self.works[number], row, rows))
        return [
            (before, _turns(work, end, work.shape.out_cols, None))
            for before, work in enumerate(self.works[:number])
            for value, end in read
            if self.homes[value] == work.writes.home
        ]

    def _frees(self, number: int, reader: TiledLayer, made: int) -> list[int]:
        """Turns of a layer that must be over before each of those that make what it reads, `made`
        rows at a time.
        """
        line_buffer, shape, count = (
            self.line_buffers[number],
            reader.shape,
            len(self.lines[number].needs),
        )
        firsts = [
            line_buffer.turn(image * line_buffer.image_rows + first)
            for image in range(shape.images)
            for first, _ in reach(shape, reader.tile.rows)
        ]
        a_row = len(self.lines[number + 1].needs) // len(firsts)
        made_a_row = count // (shape.images * ceil_div(line_buffer.image_rows, made))
        lasts = [
            image * line_buffer.image_rows + row + rows - 1
            for image in range(shape.images)
            for row, rows in spans(line_buffer.image_rows, made)
        ]
        found: list[int] = []
        for last in lasts:
            free = bisect_left(firsts, line_buffer.turn(last) + 1 - line_buffer.rows) * a_row
            found += [free] * made_a_row
        return found


def _columns(shape: Shape, col: int, cols: int) -> int:
    """Columns of its input up to the last one that a tile reads, in whole words."""
    left, right, _ = shape.pool_window.span(1, col, cols, shape.pre_pool_cols)
    _, end, _ = shape.window.span(1, left, right - left, shape.in_cols)
    return end


def _read_beside(work: TiledLayer, row: int, rows: int) -> Iterator[tuple[int, int]]:
    """(DFG index of a map that is added to rows, or multiplies them, its rows up to the last one
    that is).
    """
    shape, image = work.shape, row // work.shape.out_rows
    for value, side in zip(work.residuals, shape.sides, strict=True):
        if side.broadcast:
            yield value, image + 1
        else:
            pre_pool = pre_pool_rect(shape, Rect(row, rows, 0, shape.out_cols))
            yield value, pre_pool.row_end if side.before_pool else row + rows
    if work.gate is not None:
        yield work.gate, image + 1


def _turns(work: TiledLayer, rows: int, cols: int, block: int | None) -> int:
    """Turns of a layer until the first rows and columns, up to a channel block, are made."""
    shape, size = work.shape, work.tile
    image, row = divmod(rows - 1, shape.out_rows)
    down = image * ceil_div(shape.out_rows, size.rows) + row // size.rows
    across = ceil_div(shape.out_cols, size.cols)
    tile = down * across + (min(cols, shape.out_cols) - 1) // size.cols
    ranges = [r for r in work.ranges if block is None or r.block <= block]
    return tile * len(work.ranges) + max(len(ranges), 1)
