"""Tokens: turn "must happen before" into the fewest waits and signals.

Instructions of one engine run in order, so what an instruction needs of another engine is one
number: the latest of that engine's instructions that touches the same words (one of the two
writing). Tokens of an engine pair are popped in the order in which they are pushed; needed
numbers only grow along the consumer, so every wait pairs with one signal.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import chain

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.hw.isa.footprint import Interval, footprint
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.isa.table import SYNC_ENGINES, Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import Space

NONE = -1
Clock = list[int]
"""Program position of the last instruction known of each engine, by engine number; NONE where
none is.
"""


class Touches(Struct):
    """All accesses of a program to one memory, interval by interval, in program order."""

    intervals: list[Interval] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    writes: list[bool] = field(default_factory=list)

    def add(self, position: int, intervals: Sequence[Interval], *, write: bool) -> None:
        """All intervals that the instruction at `position` touches."""
        self.intervals += intervals
        self.positions += [position] * len(intervals)
        self.writes += [write] * len(intervals)


def latest_conflicts(program: Sequence[Instruction], hw: HwSpec) -> list[Clock]:
    """For every instruction the latest one before it, of each other engine, that touches the same
    words, one of the two writing, or needs the same write port or bank of partial sums.
    """
    memories = {space: Touches() for space in Space}
    write_port = Touches()  # of the feature buffer, which load and post share
    for position, instruction in enumerate(program):
        for access in footprint(instruction, hw):
            intervals = access.intervals
            if access.space is Space.PSUM:
                intervals = (_banks(intervals, hw.buffers.psum.words // 2),)
            memories[access.space].add(position, intervals, write=access.write)
            if access.space is Space.FEATURE and access.write:
                write_port.add(position, ((0, 1),), write=True)
    engines = np.array([i.engine for i in program], np.int64)
    latest = np.full((len(program), len(Engine)), NONE)
    for touches in (*memories.values(), write_port):
        if touches.intervals:
            _meet(touches, engines, latest)
    latest[np.arange(len(program)), engines] = NONE
    return latest.tolist()


def _banks(intervals: Sequence[Interval], words: int) -> Interval:
    """The banks, of `words` words each, in which ascending intervals begin and end, by number.

    A bank serves one engine per cycle, so post would stall while compute runs. Whole instructions
    wait instead, so that the duration of one does not depend on the steps of the other.
    """
    return intervals[0][0] // words, (intervals[-1][1] - 1) // words + 1


def _meet(touches: Touches, engines: np.ndarray, latest: np.ndarray) -> None:
    """Raise `latest` to the conflicts in one memory.

    The ends of all intervals cut the memory into pieces. Sorted by piece, then by time, what came
    before an access is a running maximum, for each engine and for writes and all accesses.
    """
    ends = np.fromiter(chain.from_iterable(touches.intervals), np.int64).reshape(-1, 2)
    cuts = np.sort(ends, axis=None)
    cuts = cuts[np.diff(cuts, prepend=cuts[0] - 1) > 0]  # np.unique would import half of numpy
    first, stop = np.searchsorted(cuts, ends).T
    counts = stop - first
    starts = np.cumsum(counts) - counts
    piece = np.arange(counts.sum()) + np.repeat(first - starts, counts)
    order = np.argsort(piece.astype(np.min_scalar_type(len(cuts))), kind="stable")
    position = np.array(touches.positions)
    at, write = (np.repeat(x, counts)[order] for x in (position, np.array(touches.writes)))
    floor = piece[order] * (len(latest) + 1)  # separates the pieces in one running maximum

    def last_before(which: np.ndarray) -> np.ndarray:
        known = np.maximum.accumulate(np.where(which, at, NONE) + floor)
        return np.append(NONE, np.maximum(known[:-1] - floor[1:], NONE))

    conflicts = np.empty_like(floor)
    for engine in np.flatnonzero(np.bincount(engines[position])):
        ours = engines[at] == engine
        conflicts[order] = np.where(write, last_before(ours), last_before(ours & write))
        np.maximum.at(latest[:, engine], position, np.maximum.reduceat(conflicts, starts))


class Channel(Struct):
    """Tokens of one ordered pair of engines: signalling and waiting positions, both ascending,
    paired by number.
    """

    signals: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)


def synchronise(
    program: Sequence[Instruction], hw: HwSpec, conflicts: Sequence[Clock] | None = None
) -> list[Instruction]:
    """The program with waits and signals such that all conflicting accesses happen in program
    order. conflicts: its `latest_conflicts`, when they are known.

    A wait that other waits imply already is left out. Where more tokens would be under way than
    a counter holds, two are merged (the earlier consumer then waits a little longer).
    """
    channels = {(a, b): Channel() for a in SYNC_ENGINES for b in SYNC_ENGINES if a is not b}
    capacity = (1 << hw.counter_bits) - 1
    conflicts = latest_conflicts(program, hw) if conflicts is None else conflicts
    known: list[Clock] = []
    last = [NONE] * len(Engine)
    for position, instruction in enumerate(program):
        engine = instruction.engine
        before = last[engine]
        clock = list(known[before]) if before != NONE else [NONE] * len(Engine)
        clock[engine] = before
        needed = conflicts[position]
        for other in sorted(SYNC_ENGINES, key=lambda e: -needed[e]):
            at = needed[other]
            if at <= clock[other]:
                continue
            _connect(channels[other, engine], at, position, capacity)
            clock = list(map(max, clock, known[at]))
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
