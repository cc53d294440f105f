"""The time slots of a fused stack, layer by layer, and what each of them waits for."""

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from opu_fuse.layout.shape import Shape
from opu_fuse.tile_schedule.line_buffers import LineBuffer, reach
from opu_fuse.tile_schedule.stack_wiring import Port, Wiring
from opu_fuse.tile_schedule.tiled_layer import TiledLayer
from opu_fuse.tiling.tile import Rect, Span, ceil_div, pre_pool_rect, spans

LOAD = -1
"""Layer number of load slots, which fill the first line buffer."""


class TimeSlot(Struct, frozen=True, kw_only=True):
    """One tile of a layer, or one load of a row strip (layer LOAD), by number.

    needs: (layer, slots) that must be complete: they produce the input;
    frees: (layer, slots) that must be complete: they read the rows overwritten here.
    """

    layer: int
    number: int
    needs: tuple[Span, ...]
    frees: tuple[Span, ...]


class Pace(Struct, frozen=True, kw_only=True):
    """Approximate cycles per slot: array and post for each layer, memory for a row strip.

    constants: to load those of each layer, before its first slot;
    tables, table: how many fit, and cycles to load one, if not all of the stack fit; else 0, and
        the constants hold them.
    stores, adds: behind a slow memory, cycles to store the results of a slot of each layer, and to
        load its second operands; else empty;
    latency: from the last byte stored until it can be loaded, and of a load.
    """

    array: tuple[float, ...]
    post: tuple[float, ...]
    constants: tuple[float, ...]
    load: float
    tables: int = 0
    table: float = 0.0
    stores: tuple[float, ...] = ()
    adds: tuple[float, ...] = ()
    latency: float = 0.0


class Line(Struct):
    """The slots of a layer in their order.

    before, after: the last line that writes its input, and that reads its output; 0: none;
    needs, frees: slots of these, as of TimeSlot; a last need that no order meets ends them;
    other_needs, other_frees: of further such lines, (line, slots of it per slot);
    sides: per slot, all other (line, slots) that it needs, as for its residual operands;
    array: cycles of the array for a slot;
    post: cycles of post for each slot;
    table: what its slots look up, if it has to be loaded again;
    stores, adds: as of Pace; 0 where nothing is stored or loaded, or the memory is fast;
    operands: per slot that loads second operands, (line, slots of it) that store them.
    """

    needs: list[int]
    sides: list[list[tuple[int, int]]]
    array: float
    post: list[float]
    before: int = 0
    after: int = 0
    frees: list[int] = field(default_factory=list)
    other_needs: list[tuple[int, list[int]]] = field(default_factory=list)
    other_frees: list[tuple[int, list[int]]] = field(default_factory=list)
    table: Hashable = None
    stores: float = 0.0
    adds: float = 0.0
    operands: list[list[tuple[int, int]]] = field(default_factory=list)

    def slot(self, layer: int, at: int) -> TimeSlot:
        """A slot; layers are numbered from 0, lines from 1."""
        needs = [(self.before, self.needs)] if layer != LOAD else []
        frees = [(self.after, self.frees)] if self.after else []
        return TimeSlot(
            layer=layer,
            number=at,
            needs=tuple((n - 1, slots[at]) for n, slots in needs + self.other_needs),
            frees=tuple((n - 1, slots[at]) for n, slots in frees + self.other_frees),
        )


class SlotLines(Struct):
    """Derives the slots of every layer, and of the loads before them, from the maps of a stack.

    wires, line_buffers, load_rows: as of FusedStack;
    alias_roots: stored value -> its base allocation, for residual operands.
    """

    layers: Sequence[TiledLayer]
    wires: Wiring
    line_buffers: Sequence[LineBuffer]
    load_rows: int
    alias_roots: Mapping[int, int]
    pace: Pace
    lines: list[Line] = field(default_factory=list)

    def derive(self) -> list[Line]:
        """Return the lines: that of the loads, then one per layer."""
        self.lines = [self._loads(), *(self._line(n) for n in range(len(self.layers)))]
        written = [self.wires.whole_maps[0], *self.wires.targets]
        rows = [self.load_rows, *(layer.tile.rows for layer in self.layers)]
        for number, (port, write_rows) in enumerate(zip(written, rows, strict=False)):
            self._connect(number, port, write_rows)
        slots = sum(len(line.post) for line in self.lines)
        for line in self.lines:
            line.needs.append(slots)
        return self.lines

    def _loads(self) -> Line:
        count = self.layers[0].shape.images * ceil_div(
            self.line_buffers[0].image_rows, self.load_rows
        )
        return Line(
            needs=[0] * count,
            sides=[[] for _ in range(count)],
            array=0.0,
            post=[0.0] * count,
        )

    def _line(self, number: int) -> Line:
        """Dependencies of the tiles of a layer, row by row in schedule order."""
        layer, shape = self.layers[number], self.layers[number].shape
        ends = [sum(span) for span in reach(shape, layer.tile.rows)]
        across = [_columns(shape, *span) for span in spans(shape.out_cols, layer.tile.cols)]
        lasts = [max(chunk.block + chunk.blocks for chunk in out.features) for out in layer.ranges]
        rows = list(spans(shape.out_rows, layer.tile.rows))
        writers = self.wires.writers(self.wires.sources[number]) or [LOAD]
        needs: dict[int, list[int]] = {writer: [] for writer in writers}
        sides: list[list[tuple[int, int]]] = []
        for image in range(shape.images):
            for (row, count), end in zip(rows, ends, strict=True):
                for writer, slots in needs.items():
                    slots += [
                        self._slots_until(number, writer, image, (end, cols, last - 1))
                        for cols in across
                        for last in lasts
                    ]
                operands = self._residuals(number, image * shape.out_rows + row, count)
                sides += [operands] * (len(across) * len(lasts))
        *others, (before, slots) = [(writer + 1, slots) for writer, slots in needs.items()]
        return Line(
            needs=slots,
            sides=_with_sides(sides, others),
            array=self.pace.array[number],
            post=self._posts(number),
            before=before,
            other_needs=others,
            table=layer.functions if self.pace.tables and shape.tables else None,
            stores=self.pace.stores[number] if self.pace.stores else 0.0,
            adds=self.pace.adds[number] if self.pace.adds else 0.0,
            operands=sides,
        )

    def _slots_until(self, number: int, writer: int, image: int, read: tuple[int, int, int]) -> int:
        """Slots of a writer until a layer may read the first rows and columns, and the channel
        blocks up to one, of an image of its input.
        """
        (end, cols, block), in_rows = read, self.layers[number].shape.in_rows
        if writer == LOAD:
            return image * ceil_div(in_rows, self.load_rows) + ceil_div(end, self.load_rows)
        block += self.wires.sources[number].first - self.wires.targets[writer].first
        return _slots_until(self.layers[writer], image * in_rows + end, cols, max(block, 0))

    def _posts(self, number: int) -> list[float]:
        """Cycles of post for every slot, with those of rows that a line buffer holds twice."""
        layer, pace = self.layers[number], self.pace.post[number]
        if number + 1 == len(self.layers):
            return [pace] * len(layer.tiles)
        to = self.line_buffers[self.wires.targets[number].map]
        rows = (tile.rect[:2] for tile in layer.tiles)
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

    def _connect(self, number: int, port: Port, write_rows: int) -> None:
        """Let a line wait for those that read the map that it writes, so many rows per slot."""
        line, readers = self.lines[number], self.wires.readers(port)
        slots = [(n + 1, self._frees(number, port.map, n, write_rows)) for n in readers]
        line.after, line.frees = slots.pop()
        line.other_frees, line.sides = slots, _with_sides(line.sides, slots)

    def _frees(self, number: int, target: int, reading: int, write_rows: int) -> list[int]:
        """Slots of a layer that must be complete before each slot of a line that writes its input.

        write_rows: rows per writing slot.
        """
        reader, line_buffer = self.layers[reading], self.line_buffers[target]
        shape = reader.shape
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
        reads_per_row = len(self.lines[reading + 1].needs) // len(firsts)
        writes_per_row = len(self.lines[number].needs) // len(lasts)
        rows_read = (bisect_left(firsts, last + 1 - line_buffer.rows) for last in lasts)
        return [rows * reads_per_row for rows in rows_read for _ in range(writes_per_row)]


def _with_sides(
    sides: Sequence[list[tuple[int, int]]], others: Sequence[tuple[int, Sequence[int]]]
) -> list[list[tuple[int, int]]]:
    """What each slot needs, and what it needs of further lines."""
    extra = [[(line, slots[at]) for line, slots in others] for at in range(len(sides))]
    return [each + more for each, more in zip(sides, extra, strict=True)] if others else [*sides]


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
