"""The memories of the functional machine as numpy arrays.

Buffers start with a fixed pattern instead of zeros: a program that reads what it never wrote then
shows it. The feature buffer has one word more than the machine, of padding: a
gather with replaced indices does the padding. Memories the machine does not have are empty.
"""

import numpy as np

from opu_fuse.errors import RunError
from opu_fuse.fixedpoint import MAX_SHIFT, MIN_SHIFT
from opu_fuse.hw.footprint import space_limit
from opu_fuse.hw.spec import HwSpec
from opu_fuse.units.base import Space

_UNWRITTEN = 0xA5
_MOST_VALUES, _ROOM = 1 << 24, 4
"""How many values an instruction may work on at once: so many, or so many times what a memory holds
(windows reach into the padding).
"""


class Memories:
    """Window of DRAM (given, uint8, changed in place) and on-chip buffers.

    feature: int8 (words + 1, word_bytes), the last row is padding; residual, output, table, image:
    int8 (words, word_bytes); param and pre: uint8 (words, word_bytes); weight: int8 (words, width);
    psum: int32 (words, word_channels).
    """

    def __init__(self, spec: HwSpec, dram: np.ndarray) -> None:
        buffers, word = spec.buffers, spec.word_bytes
        self.spec = spec
        self.dram = dram
        self.feature = _unwritten(buffers.feature.words + 1, word).view(np.int8)
        self.residual = _unwritten(buffers.residual.words, word).view(np.int8)
        self.output = _unwritten(buffers.output.words, word).view(np.int8)
        self.param = _unwritten(buffers.param.words, word)
        self.weight = _unwritten(buffers.weight.words, buffers.weight.width).view(np.int8)
        self.psum = _unwritten(buffers.psum.words, 4 * spec.word_channels).view(np.int32)
        self.pre = _unwritten(space_limit(Space.PRE, spec), word)
        self.table = _unwritten(space_limit(Space.TABLE, spec), word).view(np.int8)
        self.image = _unwritten(space_limit(Space.IMAGE, spec), word).view(np.int8)

    def buffer(self, space: Space) -> np.ndarray:
        """The array of an on-chip space, indexed by its words."""
        return getattr(self, space.value)

    def require_room(self, where: str, words: int) -> None:
        """Raises RunError where an instruction works on far more words at once than memories hold:
        with pitches of zero it can. The machine, which takes one after the other, goes on.
        """
        most = max(_MOST_VALUES, _ROOM * self.psum.size, _ROOM * self.feature.size)
        if words * self.spec.word_channels > most:
            what = f"works on {words:,} words at once, more than the functional engine can"
            raise RunError(where, what, "compile the model again for this machine")

    def records(
        self, space: Space, record: np.dtype, first: int, blocks: int, pitch: int
    ) -> np.ndarray:
        """What the channels of blocks are given, (blocks, lanes): from word `first` of PARAM or PRE
        on, blocks `pitch` words apart.

        Raises RunError for scales that the machine cannot compute with.
        """
        at = first + np.arange(blocks)[:, None] * pitch + np.arange(record.itemsize)
        words = self.buffer(space)[at, : self.spec.word_channels]
        found = words.reshape(blocks, -1).view(record)
        if record.names is not None:
            self._check(found, space, at[:, 0])
        return found

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


def _unwritten(words: int, width: int) -> np.ndarray:
    return np.full((words, width), _UNWRITTEN, np.uint8)
