"""Tokens: turn "must happen before" into the fewest waits and signals.

Instructions of one engine run in order, so what an instruction needs of another engine is one
number: the latest of that engine's instructions that touches the same words (one of the two
writing). Tokens of an engine pair are popped in the order in which they are pushed; needed
numbers only grow along the consumer, so every wait pairs with one signal.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from opu_fuse.hw.footprint import Access, footprint
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.isa import SYNC_ENGINES, Engine, Space
from opu_fuse.hw.spec import HwSpec

NONE = -1
Clock = list[int]
"""Program position of the last instruction known of each engine, by engine number; NONE where
none is.
"""


@dataclass(slots=True)
class Cell:
    """Who touched a piece of memory last: writer = position of the last write, readers = last
    read of each engine since.
    """

    writer: int
    engine: int
    readers: tuple[int, ...]


NOBODY = Cell(writer=NONE, engine=0, readers=(NONE,) * len(Engine))


@dataclass(slots=True)
class History:
    """Accesses to one memory, as consecutive pieces [starts[i], starts[i+1]) with one Cell each."""

    starts: list[int] = field(default_factory=lambda: [0])
    cells: list[Cell] = field(default_factory=lambda: [NOBODY])

    def _cut(self, at: int) -> int:
        i = bisect_left(self.starts, at)
        if i == len(self.starts) or self.starts[i] != at:
            self.starts.insert(i, at)
            self.cells.insert(i, self.cells[i - 1])
        return i

    def touch(
        self, interval: tuple[int, int], engine: int, position: int, write: bool
    ) -> Iterator[tuple[int, int]]:
        """Record an access; yields (engine, position) of every earlier access it conflicts with."""
        first, last = self._cut(interval[0]), self._cut(interval[1])
        for cell in self.cells[first:last]:
            yield cell.engine, cell.writer
            if write:
                yield from enumerate(cell.readers)
        if write:
            self.starts[first:last] = [interval[0]]
            self.cells[first:last] = [Cell(writer=position, engine=engine, readers=NOBODY.readers)]
            return
        for i in range(first, last):
            cell = self.cells[i]
            readers = (*cell.readers[:engine], position, *cell.readers[engine + 1 :])
            self.cells[i] = Cell(writer=cell.writer, engine=cell.engine, readers=readers)


class Conflicts:
    """Earlier accesses an instruction conflicts with, over all memories of a machine."""

    def __init__(self) -> None:
        self._memories = {space: History() for space in Space}

    def of(self, accesses: Iterable[Access], engine: Engine, position: int) -> Clock:
        """Latest conflicting position of each engine; the accesses are recorded."""
        latest = [NONE] * len(Engine)
        for access in accesses:
            history = self._memories[access.space]
            for interval in access.intervals:
                for other, at in history.touch(interval, engine, position, access.write):
                    latest[other] = max(latest[other], at)
        return latest


@dataclass(slots=True)
class Channel:
    """Tokens of one ordered pair of engines: signalling and waiting positions, both ascending,
    paired by number.
    """

    signals: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)


def synchronise(program: Sequence[Instruction], hw: HwSpec) -> list[Instruction]:
    """The program with waits and signals such that all conflicting accesses happen in program
    order.

    A wait that other waits imply already is left out. Where more tokens would be under way than
    a counter holds, two are merged (the earlier consumer then waits a little longer).
    """
    channels = {(a, b): Channel() for a in SYNC_ENGINES for b in SYNC_ENGINES if a is not b}
    capacity = (1 << hw.counter_bits) - 1
    conflicts = Conflicts()
    known: list[Clock] = []
    last = [NONE] * len(Engine)
    for position, instruction in enumerate(program):
        engine = instruction.engine
        before = last[engine]
        clock = list(known[before]) if before != NONE else [NONE] * len(Engine)
        clock[engine] = before
        needed = conflicts.of(footprint(instruction, hw), engine, position)
        needed[engine] = NONE
        for other in sorted(SYNC_ENGINES, key=lambda e: -needed[e]):
            at = needed[other]
            if at <= clock[other]:
                continue
            _connect(channels[other, engine], at, position, capacity)
            clock = [max(a, b) for a, b in zip(clock, known[at], strict=True)]
            clock[other] = max(clock[other], at)
        known.append(clock)
        last[engine] = position
    return _with_tokens(program, channels)


def _connect(channel: Channel, producer: int, consumer: int, capacity: int) -> None:
    """Add a token, or merge it with the last one when `capacity` tokens would be under way at
    the producer.
    """
    under_way = len(channel.waits) - bisect_right(channel.waits, producer)
    if under_way < capacity:
        channel.signals.append(producer)
        channel.waits.append(consumer)
    else:
        channel.signals[-1] = producer


def _with_tokens(
    program: Sequence[Instruction], channels: dict[tuple[Engine, Engine], Channel]
) -> list[Instruction]:
    waits: dict[int, list[Engine]] = {}
    signals: dict[int, list[Engine]] = {}
    for (producer, consumer), channel in channels.items():
        for at in channel.signals:
            signals.setdefault(at, []).append(consumer)
        for at in channel.waits:
            waits.setdefault(at, []).append(producer)
    return [
        replace(
            instruction,
            waits=tuple(sorted(waits.get(i, ()))),
            signals=tuple(sorted(signals.get(i, ()))),
        )
        for i, instruction in enumerate(program)
    ]
