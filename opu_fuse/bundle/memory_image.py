"""A program's memory window: its initial content, and reads and writes of feature maps."""

import numpy as np

from opu_fuse.bundle.program import Bundle, MachineSegment, Tensor


def initial_image(bundle: Bundle) -> np.ndarray:
    """uint8 (window_bytes,): constants at 0, program words at `program_offset`, else zeros."""
    image = np.zeros(bundle.window_bytes, np.uint8)
    image[: bundle.constants.size] = bundle.constants
    words = np.ascontiguousarray(bundle.words, "<u4").view(np.uint8)
    image[bundle.program_offset : bundle.program_offset + words.size] = words
    return image


def segment_words(bundle: Bundle, segment: MachineSegment) -> np.ndarray:
    """uint32 words of one machine segment."""
    first = (segment.program_offset - bundle.program_offset) // 4  # bytes per word
    return bundle.words[first : first + segment.words]


def read_tensor(window: np.ndarray, tensor: Tensor, images: int) -> np.ndarray:
    """A copy of a feature map: int8 (images, *tensor.shape).

    images: batch of the program.
    """
    data = window[tensor.offset : tensor.offset + tensor.layout.size_bytes].copy()
    return by_image(tensor.layout.unpack(data), images).reshape(images, *tensor.shape)


def write_tensor(window: np.ndarray, tensor: Tensor, values: np.ndarray) -> None:
    """Write int8 values of all images (first axis) into the memory window.

    Lanes that the layout leaves to other maps in the same words are preserved. Padding lanes after
    the last channel become 0.
    """
    layout, images = tensor.layout, len(values)
    stored = window[tensor.offset : tensor.offset + layout.size_bytes]
    maps = values.reshape(images, layout.channels, layout.rows // images, layout.cols)
    # The images of a batch are stored below each other, as rows of one tall map.
    whole = layout.channels, layout.rows, layout.cols
    stacked = maps[0] if images == 1 else maps.swapaxes(0, 1).reshape(whole)
    stored[:] = layout.pack(stacked, under=stored)


def by_image(stacked: np.ndarray, images: int) -> np.ndarray:
    """Split a map of several images that are stored below each other.

    (channels, rows of all images, cols) -> (images, channels, rows of one, cols).
    """
    channels, rows, cols = stacked.shape
    if images == 1:
        return stacked[None]
    maps = stacked.reshape(channels, images, rows // images, cols)
    return np.ascontiguousarray(maps.swapaxes(0, 1))


def read_by_host(bundle: Bundle, number: int) -> list[Tensor]:
    """Maps that the host reads between segment `number` and the next machine segment: operands of
    host segments, after the last machine segment the program's outputs, too.
    """
    names: set[str] = set()
    for segment in bundle.segments[number + 1 :]:
        if isinstance(segment, MachineSegment):
            return _maps(bundle, names)
        names.update(value for _, value in segment.inputs)
    return _maps(bundle, names | {port.value for port in bundle.outputs})


def _maps(bundle: Bundle, names: set[str]) -> list[Tensor]:
    return [tensor for tensor in bundle.tensors if tensor.name in names]
