"""Interleaving of the layers of a fused stack: the order of its time slots."""

from collections.abc import Hashable, Sequence
from math import inf
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct

from opu_fuse.tile_schedule.slot_lines import Line, Pace, TimeSlot

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

BEAM_OF_SLOW, KEPT_OF_SLOW = 40, 65536
"""The same behind a slow memory, where stores and loads of the slots count, too."""

_Ends = tuple[float, "_Ends"] | None
"""Cycles at which the slots of a layer are complete, the latest first."""
_Tables = tuple[tuple[Hashable, float], ...]
"""Tables on chip, the least recently used first, and when the last slot with each is complete."""
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
    loaded, stored: when the last load, and store, ends, since each are in order;
    stores: cycles at which the results of a line's slots can be loaded again;
    tables: those on chip, if not all of the stack fit;
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
    stored: float = 0.0
    stores: tuple[_Ends, ...] = ()
    tables: _Tables = ()
    order: _Numbers = None


class _Step(Struct, frozen=True, gc=False):
    """The next slot of a line, by its number, after an order.

    cycles: of all slots, at least; then the sum of those of array and post;
    array, post, port, loaded, tables: as of _Partial.
    """

    cycles: tuple[float, float]
    before: _Partial
    number: int
    array: float
    post: float
    port: float
    loaded: float
    tables: _Tables


class Order(Struct):
    """Beam search for an order of the time slots.

    With two banks of partial sums, array and post work on neighbouring tiles at a time, and the one
    that is done first waits: a tile with much array work suits one before it with much post work.
    So orders are extended slot by slot, and those of the least cycles are kept.
    """

    lines: Sequence[Line]
    pace: Pace

    def schedule(self, limit: float = inf) -> tuple[tuple[TimeSlot, ...], float] | None:
        """Return (slots in execution order, cycles).

        None if the rows of a residual operand are produced too late, or all orders take more than
        `limit` cycles. That is known early: no slot makes the least cycles of an order fewer.
        """
        kept, slots = [self._nothing()], sum(len(line.post) for line in self.lines)
        most, in_all = (BEAM_OF_SLOW, KEPT_OF_SLOW) if self.pace.adds else (BEAM, KEPT)
        width = max(min(most, in_all // slots), 2)
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
            stores=(None,) * len(lines),
            array_left=sum(line.array * len(line.post) for line in lines),
            post_left=sum(sum(line.post) for line in lines),
        )

    def _slots(self, partial: _Partial) -> tuple[TimeSlot, ...]:
        """The slots of an order, the first one first."""
        done, slots, order = [*partial.done], list[TimeSlot](), partial.order
        while order is not None:
            number, order = order
            done[number] -= 1
            slots.append(self.lines[number].slot(number - 1, done[number]))
        return tuple(reversed(slots))

    def _ready(self, done: Sequence[int]) -> list[int]:
        """Lines whose next input rows are ready and output rows may be overwritten, last first."""
        ready: list[int] = []
        lines = self.lines
        for number in range(len(done) - 1, -1, -1):
            line, at = lines[number], done[number]
            if (
                line.needs[at] <= done[line.before]
                and (not line.after or line.frees[at] <= done[line.after])
                and not (line.sides[at] and any(done[n] < count for n, count in line.sides[at]))
            ):
                ready.append(number)
        return ready

    def _step(self, partial: _Partial, number: int) -> _Step:
        """The next slot of a line after an order."""
        array, post, port, loaded = partial.array, partial.post, partial.port, partial.loaded
        line, done = self.lines[number], partial.done
        at, after, tables = done[number], line.post[done[number]], partial.tables
        if not number:
            in_order = self.pace.tables or self.pace.adds
            start = max(port, array, loaded) if in_order else max(port, array)
            port = loaded = start + self.pace.load + EXCHANGE
        else:
            before = line.before
            ready = _end(partial.ends[before], done[before] - line.needs[at])
            if at == 0:
                loaded += self.pace.constants[number - 1]
                ready = max(ready, loaded)
            array = max(array, ready, partial.banks[0]) + line.array
            start = max(array + EXCHANGE, post, port if line.after else 0.0)
            if line.adds:
                loaded = max(loaded, self._in_memory(partial, line.operands[at])) + line.adds
                start = max(start, loaded + self.pace.latency)
            if line.table is not None:
                loaded, tables = self._with_table(line.table, loaded, tables)
                start = max(start, tables[-1][1])
                tables = (*tables[:-1], (line.table, start + after))
            post = start + after
            if line.after:
                port = post
        array_end = array + partial.array_left - line.array
        post_end = post + partial.post_left - after
        return _Step(
            (max(array_end, post_end), array_end + post_end),
            partial,
            number,
            *(array, post, port, loaded, tables),
        )

    def _in_memory(self, partial: _Partial, slots: Sequence[tuple[int, int]]) -> float:
        """Cycle from which the results of slots can be loaded."""
        stores, done = partial.stores, partial.done
        return max((_end(stores[n], done[n] - count) for n, count in slots), default=0.0)

    def _with_table(self, table: Hashable, loaded: float, tables: _Tables) -> tuple[float, _Tables]:
        """When the last load ends, and the tables on chip, if one of them is used. It is the last
        one, with the cycle from which it is ready.
        """
        others = tuple([each for each in tables if each[0] != table])
        if len(others) < len(tables):
            return loaded, (*others, (table, 0.0))
        if len(tables) == self.pace.tables:
            (_, free), *others = tables
            loaded = max(loaded, free)
        loaded += self.pace.table
        return loaded, (*others, (table, loaded))

    def _after(self, step: _Step) -> _Partial:
        """The order with that slot."""
        partial, number, post = step.before, step.number, step.post
        at, line = partial.done[number], self.lines[number]
        end = post + HANDOVER if number else step.port
        stored, stores = partial.stored, partial.stores
        if line.stores:
            stored = max(stored, post) + line.stores
            stores = _replaced(stores, number, (stored + self.pace.latency, stores[number]))
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
            stored,
            stores,
            step.tables,
            (number, partial.order),
        )


def _replaced(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*values[:number], value, *values[number + 1 :])


def _end(ends: _Ends, before: int) -> float:
    """Cycle at which a slot is complete. before: later slots of its line."""
    for _ in range(before):
        assert ends is not None, "it has so many slots"
        ends = ends[1]
    return ends[0] if ends is not None else 0.0
