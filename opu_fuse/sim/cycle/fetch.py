"""Fetch: the program arrives in beats; its words enter the queues in order, one per cycle.

It follows the RTL's `opu_fetch`. Words of one instruction in the same beat enter together.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from opu_fuse.hw.isa.table import Engine
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.unit_rates import INSTRUCTION_WORD_BYTES, prefetch_beats
from opu_fuse.sim.cycle.instruction_costs import Step
from opu_fuse.sim.cycle.issue import Issue

FIRST_REQUEST_CYCLE = 4
REQUEST_CYCLES = 3
"""From a request to the next one, at least."""
ROOM_CYCLES = 3
"""From the last word of a beat to a request that needs its room."""

DECODE_CYCLES = 1
"""Between a word's beat and its decoding."""

Piece = tuple[Step, int, int, int, bool, bool]
"""Words of an instruction in one beat: (instruction, words, words of its engine up to here, beat,
they end the beat, they end the instruction)."""


class Fetch:
    """wanted: cycle from which the next burst may be asked for, inf if none may yet. words, beats:
    of the program. own: (step, cycle) of fetch's own instructions; full: engine
    whose queue has no room for the next word, else 0; stalled: cycles waited for room.
    """

    def __init__(
        self, steps: Sequence[Step], issues: Mapping[int, Issue], hw: HwSpec, base: int
    ) -> None:
        """base: byte offset of the program in the memory window."""
        bus = hw.dram.bus_bytes
        self._issues = issues
        self._pieces = list(_pieces(steps, bus, base % bus // INSTRUCTION_WORD_BYTES))
        self._base = base // bus
        self._ahead = prefetch_beats(hw)
        limit = min(self._ahead // 4, hw.dram.max_burst)
        self._burst = 1 << (limit.bit_length() - 1)
        self.words = steps[-1].pc + 1
        self.beats = self._pieces[-1][3] + 1
        self._asked = 0  # beats
        self._asked_at = FIRST_REQUEST_CYCLE - REQUEST_CYCLES
        self._here: list[int] = []  # cycle from which a beat can be read
        self._left: list[int] = []  # cycle in which the last word of a beat is passed on
        self._next = 0  # piece
        self._at = 0  # last word so far
        self.own: list[tuple[Step, int]] = []
        self.full = 0
        self.stalled = 0
        self.wanted = inf
        self._want()

    def _want(self) -> None:
        left = self._asked + self._next_burst() - self._ahead  # beats that have to leave before
        if self._asked >= self.beats or left > len(self._left):
            self.wanted = inf
        else:
            freed = self._left[left - 1] if left > 0 else 0
            self.wanted = max(self._asked_at + REQUEST_CYCLES, freed + ROOM_CYCLES)

    def _next_burst(self) -> int:
        """Beats up to the end of an aligned stretch, or of the program."""
        stretch = self._burst - (self._base + self._asked) % self._burst
        return min(stretch, self.beats - self._asked)

    def take(self, at: int) -> tuple[int, int]:
        """Ask for the next burst at cycle `at`: its beats, and its place in the window in beats."""
        beats, place = self._next_burst(), self._base + self._asked
        self._asked += beats
        self._asked_at = at
        self._want()
        return beats, place

    def arrive(self, at: int) -> list[int]:
        """A beat can be read from cycle `at` on: the engines that got an instruction."""
        self._here.append(at)
        return self.advance()

    def advance(self) -> list[int]:
        """Pass on the words that have come and find room: the engines that got an instruction."""
        engines: list[int] = []
        self.full = 0
        while self._next < len(self._pieces):
            step, count, word, beat, ends, completes = self._pieces[self._next]
            if beat >= len(self._here):
                break
            at = max(self._at + count, self._here[beat] + DECODE_CYCLES + count)
            if step.engine is not Engine.FETCH:
                issue = self._issues[step.engine]
                room = issue.room(word)
                if room is None:
                    self.full = step.engine
                    break
                self.stalled += max(room - at, 0)
                at = max(at, room)
                if completes:
                    issue.arrived.append(at)
                    engines.append(step.engine)
            elif completes:
                at += 1  # it waits for what the words before it have set
                self.own.append((step, at))
            if ends:
                self._left.append(at)
            self._at = at
            self._next += 1
        self._want()
        return engines


def _pieces(steps: Sequence[Step], bus: int, skipped: int) -> Iterator[Piece]:
    """skipped: words of the first beat before the start of the program."""
    per_beat = bus // INSTRUCTION_WORD_BYTES
    passed: Counter[int] = Counter()
    for step in steps:
        at, end = step.pc + 1 - step.words + skipped, step.pc + 1 + skipped
        while at < end:
            beat = at // per_beat
            full = (beat + 1) * per_beat
            stop = min(end, full)
            passed[step.engine] += stop - at
            yield step, stop - at, passed[step.engine], beat, stop == full, stop == end
            at = stop
