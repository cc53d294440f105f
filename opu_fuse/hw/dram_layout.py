"""DRAM layout of a feature map (see `docs/machine.md`)."""

from dataclasses import dataclass, replace

import numpy as np

Pieces = tuple[tuple[int, int], ...]
"""Channels in lanes: (first lane, channels) of every piece, in channel order; the rest are holes.
Lane n is lane n mod `lanes` of channel block n div `lanes`.
"""


def lanes_of(pieces: Pieces) -> np.ndarray:
    """Channel -> lane, int64."""
    return np.concatenate([np.arange(first, first + count) for first, count in pieces])


def extent(pieces: Pieces) -> int:
    """Lanes up to the last channel, holes included."""
    return max(first + count for first, count in pieces)


def is_plain(pieces: Pieces) -> bool:
    """Whether channel n is lane n."""
    return len(pieces) == 1 and pieces[0][0] == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """DRAM layout of a feature map: `[block][row][column word]`.

    channels, rows, cols: logical sizes; word: bytes of a feature word (padded to a power of
    two); lanes: channels of a full word (`word_channels`); slot: bytes a pixel takes in a word
    (`word` when one pixel fills it, else 4 … word/2: then blocks is 1 and a word holds word //
    slot neighbouring columns; each row starts a word).
    """

    channels: int
    rows: int
    cols: int
    word: int
    lanes: int
    slot: int
    pieces: Pieces = ()

    @property
    def blocks(self) -> int:
        if self.slot < self.word:
            return 1
        return -(-(extent(self.pieces) if self.pieces else self.channels) // self.lanes)

    @property
    def row_words(self) -> int:
        return -(-self.cols * self.slot // self.word)

    @property
    def is_row(self) -> bool:
        """Whether it is one row, as of tokens: its words complete one by one, not its rows."""
        return self.rows == 1

    @property
    def block_words(self) -> int:
        return self.rows * self.row_words

    @property
    def words(self) -> int:
        return self.blocks * self.block_words

    def of_cols(self, cols: int) -> "Layout":
        """The same words as a map of `cols` columns. The map has one pixel per word."""
        if cols == self.cols:
            return self
        return replace(self, rows=self.rows * self.cols // cols, cols=cols)

    def word_at(self, block: int, row: int = 0, word: int = 0) -> int:
        """Number of a word of the map: a channel block, a row and a word of the row."""
        return block * self.block_words + row * self.row_words + word

    @property
    def size_bytes(self) -> int:
        return self.words * self.word

    def pack(self, chw: np.ndarray, under: np.ndarray | None = None) -> np.ndarray:
        """int8 (channels, rows, cols) -> uint8 (size_bytes,). under: the bytes
        stored so far, which show through the holes; without them holes are zero.
        """
        per_word = self.word // self.slot if self.slot < self.word else 1
        shape = (self.blocks, self.rows, self.row_words * per_word, self.slot)
        out = np.zeros(shape, np.int8)
        if self.pieces:
            if under is not None:
                out[:] = under.view(np.int8).reshape(shape)
            blocks, lanes = np.divmod(lanes_of(self.pieces), self.lanes)
            for b in range(self.blocks):
                here = blocks == b
                out[b][:, : self.cols, lanes[here]] = chw[here].transpose(1, 2, 0)
            return out.reshape(-1).view(np.uint8)
        step = self.channels if self.slot < self.word else self.lanes
        for b in range(self.blocks):
            part = chw[b * step : (b + 1) * step]
            out[b, :, : self.cols, : part.shape[0]] = part.transpose(1, 2, 0)
        return out.reshape(-1).view(np.uint8)

    def unpack(self, data: np.ndarray) -> np.ndarray:
        """uint8 (size_bytes,) -> int8 (channels, rows, cols)."""
        per_word = self.word // self.slot if self.slot < self.word else 1
        full = data.view(np.int8).reshape(
            self.blocks, self.rows, self.row_words * per_word, self.slot
        )
        lanes = self.channels if self.slot < self.word else self.lanes
        pixels = full[:, :, : self.cols, :lanes].transpose(0, 3, 1, 2)
        planes = pixels.reshape(-1, self.rows, self.cols)
        used = planes[lanes_of(self.pieces)] if self.pieces else planes[: self.channels]
        return np.ascontiguousarray(used)
