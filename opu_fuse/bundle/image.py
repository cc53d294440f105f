"""A program's memory window: how it looks at the start, and where the feature maps lie in it."""

import numpy as np

from opu_fuse.bundle.program import Bundle, MachineSegment, Tensor


def initial_image(bundle: Bundle) -> np.ndarray:
    """uint8 (window_bytes,): constants and program words in place, zeros elsewhere."""
    image = np.zeros(bundle.window_bytes, np.uint8)
    image[: bundle.constants.size] = bundle.constants
    words = np.ascontiguousarray(bundle.words, "<u4").view(np.uint8)
    image[bundle.program_offset : bundle.program_offset + words.size] = words
    return image


def segment_words(bundle: Bundle, segment: MachineSegment) -> np.ndarray:
    """uint32 words of one machine segment."""
    first = (segment.program_offset - bundle.program_offset) // 4
    return bundle.words[first : first + segment.words]


def read_tensor(window: np.ndarray, tensor: Tensor) -> np.ndarray:
    """int8 of the model value's shape, copied out of the memory window."""
    data = window[tensor.offset : tensor.offset + tensor.layout.size_bytes].copy()
    return tensor.layout.unpack(data).reshape(tensor.shape)


def write_tensor(window: np.ndarray, tensor: Tensor, value: np.ndarray) -> None:
    """int8 value into the memory window. What lies in the holes of its layout belongs to others and
    stays; lanes behind the last channel become 0.
    """
    y = tensor.layout
    there = window[tensor.offset : tensor.offset + y.size_bytes]
    there[:] = y.pack(value.reshape(y.channels, y.rows, y.cols), under=there)
