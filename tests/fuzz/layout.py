"""Feature maps in the memory window, read by the text of docs/machine.md ("DRAM layout") and
docs/program-file.md. Nothing of the product's own reading is used: that is what is tested.
"""

import numpy as np

from opu_fuse.bundle.program import Tensor


def read(window: np.ndarray, tensor: Tensor) -> np.ndarray:
    """int8 of the tensor's shape, of a program for one image: every element from the byte where the
    pages say it lies.
    """
    y = tensor.layout
    channel, row, col = np.indices((y.channels, y.rows, y.cols))
    lane = lanes(y.channels, y.pieces)[channel]
    if y.slot < y.word:  # a word holds neighbouring columns of few channels
        columns = y.word // y.slot
        words_in_row = -(-y.cols // columns)
        word = row * words_in_row + col // columns
        byte = word * y.word + (col % columns) * y.slot + lane
    else:  # [block][row][column word]
        word = (lane // y.lanes * y.rows + row) * y.cols + col
        byte = word * y.word + lane % y.lanes
    return window[tensor.offset + byte].view(np.int8).reshape(tensor.shape)


def lanes(channels: int, pieces: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Lane of every channel. pieces: (first lane, channels) in channel order; none: the channel."""
    if not pieces:
        return np.arange(channels)
    found = [first + n for first, count in pieces for n in range(count)]
    assert len(found) == channels, f"pieces {pieces} hold {len(found)} of {channels} channels"
    return np.array(found)
