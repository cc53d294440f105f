"""A program's memory window: its initial content, and reads and writes of feature maps."""

import numpy as np

from opu_fuse.bundle.program import Bundle, MachineSegment, Tensor


def initial_image(bundle: Bundle) -> np.ndarray:
    """uint8 (window_bytes,): constants and program words at their offsets, zeros elsewhere."""
    image = np.zeros(bundle.window_bytes, np.uint8)
    image[: bundle.constants.size] = bundle.constants
    words = np.ascontiguousarray(bundle.words, "<u4").view(np.uint8)
    image[bundle.program_offset : bundle.program_offset + words.size] = words
    return image


def segment_words(bundle: Bundle, segment: MachineSegment) -> np.ndarray:
    """uint32 words of one machine segment."""
    first = (segment.program_offset - bundle.program_offset) // 4
    return bundle.words[first : first + segment.words]


def read_tensor(window: np.ndarray, tensor: Tensor, images: int) -> np.ndarray:
    """int8 (images, ...) of the model value's shape each, copied out of the memory window. images:
    of the program.
    """
    data = window[tensor.offset : tensor.offset + tensor.layout.size_bytes].copy()
    return by_image(tensor.layout.unpack(data), images).reshape(images, *tensor.shape)


def write_tensor(window: np.ndarray, tensor: Tensor, values: np.ndarray) -> None:
    """int8 values of all images, along the first axis, into the memory window. The
    unused lanes of its layout belong to other maps and are preserved; lanes after the last channel
    become 0.
    """
    y, images = tensor.layout, len(values)
    stored = window[tensor.offset : tensor.offset + y.size_bytes]
    maps = values.reshape(images, y.channels, y.rows // images, y.cols)
    stacked = maps[0] if images == 1 else maps.swapaxes(0, 1).reshape(y.channels, y.rows, y.cols)
    stored[:] = y.pack(stacked, under=stored)


def by_image(stacked: np.ndarray, images: int) -> np.ndarray:
    """(channels, rows of all images, cols) -> (images, channels, rows of one, cols)."""
    channels, rows, cols = stacked.shape
    if images == 1:
        return stacked[None]
    maps = stacked.reshape(channels, images, rows // images, cols)
    return np.ascontiguousarray(maps.swapaxes(0, 1))
