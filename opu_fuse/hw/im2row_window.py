"""im2row on load: the kernel rows of a column of an image are stored side by side.

An image of three channels in slots of four bytes fills little of the array: an iteration covers the
columns of one kernel row. `load.unfold` concatenates the k rows that a window needs of a column,
three bytes each, so that a whole window is one run of bytes.
"""

from opu_fuse.hw.spec.hw_spec import HwSpec

UNFOLD = "unfold"
"""Opcode of load that moves nothing over the bus."""

IMAGE_SLOT, IMAGE_CHANNELS = 4, 3
"""Bytes of a pixel in the image buffer, and those of them that are moved."""

COLUMN_BYTES = {3: 9, 5: 16, 7: 22}
"""Kernel rows that im2row supports -> bytes from column to column. Every eighth of a word holds
part of few columns only if an eighth or a sixteenth of a word's pixels is a whole number of them:
hence the padding byte after the last row of five and seven.
"""

LEAST_WORD = 16
"""Bytes of a word of machines with im2row, at least: a sixteenth is a byte."""


def supports_im2row(spec: HwSpec) -> bool:
    """Whether loads of the machine can rearrange windows."""
    return spec.buffers.image is not None


def row_words(run: int, kernel_rows: int) -> int:
    """Feature words of `run` image words after im2row."""
    return -(-run * COLUMN_BYTES[kernel_rows] // IMAGE_SLOT)
