"""The memories of the functional machine as numpy arrays.

Buffers start with a fixed pattern instead of zeros: a program that reads what it never wrote then
shows it. The feature buffer has one extra word that holds the padding value: a gather whose indices
outside the tile are replaced pads without a copy. Memories the machine does not have are empty.
"""

from collections import defaultdict

import numpy as np

from opu_fuse.errors import RunError
from opu_fuse.fixedpoint import MAX_SHIFT, MIN_SHIFT
from opu_fuse.hw.isa.footprint import space_limit
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import Space, Statistics
from opu_fuse.units.memory import MEMORIES, Memory, Word

_UNWRITTEN = 0xA5
"""Byte of memory that no instruction wrote: unlike 0, a wrong read of it changes results."""
_MOST_VALUES, _ROOM = 1 << 24, 4
"""How many values an instruction may work on at once: so many, or so many times what a memory holds
(windows reach into the padding).
"""


class Memories:
    """Window of DRAM (the caller's uint8 array, which stores write) and on-chip buffers.

    feature: int8 (words + 1, word_bytes), the last row is padding; residual, output, table, image:
    int8 (words, word_bytes); param, pre and norm: uint8 (words, word_bytes); weight: int8 (words,
    width); psum: int32 (words, word_channels). statistics: of the norm units, by bank.
    """

    def __init__(self, spec: HwSpec, dram: np.ndarray) -> None:
        self.spec = spec
        self.dram = dram
        by_space = {memory.space: _unwritten(memory, spec) for memory in MEMORIES}
        self.feature, self.weight = by_space[Space.FEATURE], by_space[Space.WEIGHT]
        self.param, self.pre = by_space[Space.PARAM], by_space[Space.PRE]
        self.residual, self.output = by_space[Space.RESIDUAL], by_space[Space.OUTPUT]
        self.psum, self.table, self.image, self.norm = (
            by_space[Space.PSUM],
            by_space[Space.TABLE],
            by_space[Space.IMAGE],
            by_space[Space.NORM],
        )
        self.statistics: dict[int, Statistics] = defaultdict(
            lambda: Statistics(spec.buffers.psum.bank_words)
        )

    def buffer(self, space: Space) -> np.ndarray:
        """The array of an on-chip space, indexed by its words."""
        return getattr(self, space.value)

    def require_room(self, where: str, words: int) -> None:
        """Raises RunError where an instruction reads far more words at once than memories hold:
        with pitches of zero it can. The machine handles words one at a time and has no such limit.
        """
        most = max(_MOST_VALUES, _ROOM * self.psum.size, _ROOM * self.feature.size)
        if words * self.spec.word_channels > most:
            what = f"reads {words:,} words at once, more than the functional engine can"
            raise RunError(where, what, "compile the model again for this machine")

    def records(
        self, space: Space, record: np.dtype, first: int, blocks: int, pitch: int
    ) -> np.ndarray:
        """Parameter records (blocks, lanes) of the channels, from word `first` of PARAM or PRE on.

        pitch: stride between blocks, in words.

        Raises RunError for scales that the machine cannot compute with.
        """
        at = first + np.arange(blocks)[:, None] * pitch + np.arange(record.itemsize)
        words = self.buffer(space)[at, : self.spec.word_channels]
        result = words.reshape(blocks, -1).view(record)
        if record.names and "mult" in record.names:
            self._check(result, space, at[:, 0])
        return result

    def _check(self, records: np.ndarray, space: Space, first: np.ndarray) -> None:
        shifts_only = space is Space.PARAM and not self.spec.numeric.multiplier_bits
        least = MIN_SHIFT if shifts_only or space is Space.PRE else 0
        shift, mult = records["shift"], records["mult"]
        wrong = (shift < least) | (shift > MAX_SHIFT) | (shifts_only & (mult > 1))
        if not wrong.any():
            return
        block, lane = np.argwhere(wrong)[0]
        able = f"{self.spec.name} shifts by {least} to {MAX_SHIFT}"
        raise RunError(
            where=f"{space} buffer, block at word {first[block]}, lane {lane}",
            what=f"has multiplier {mult[block, lane]} and shift {shift[block, lane]}; {able}"
            + (" and has no multipliers" if shifts_only else ""),
            help="compile the model again for this machine",
        )


def _unwritten(memory: Memory, spec: HwSpec) -> np.ndarray:
    words = space_limit(memory.space, spec) + (memory.space is Space.FEATURE)  # one is padding
    result = np.full((words, spec.word_size(memory, spec.word_bytes)), _UNWRITTEN, np.uint8)
    kind = np.int32 if memory.word is Word.SUMS else np.int8 if memory.signed else np.uint8
    return result.view(kind)
