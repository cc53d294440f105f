"""Windows of images unfolded while they are loaded: the kernel rows of a column lie side by side.

An image of three channels in slots of four bytes fills little of the array: a visit covers the
columns of one kernel row. `load.unfold` puts the k rows that a window needs of a column behind each
other, three bytes each, so that a whole window is one run of bytes.
"""

from opu_fuse.hw.spec.hw_spec import HwSpec

UNFOLD = "unfold"
"""Opcode of load that moves nothing over the bus."""

IMAGE_SLOT, IMAGE_CHANNELS = 4, 3
"""Bytes of a pixel in the image buffer, and those of them that are moved."""

COLUMN_BYTES = {3: 9, 5: 16, 7: 22}
"""Kernel rows that can be unfolded -> bytes from column to column. Every eighth of a word holds
part of few columns only if an eighth or a sixteenth of a word's pixels is a whole number of them:
hence the byte behind the last row of five and seven.
"""

LEAST_WORD = 16
"""Bytes of a word of machines that unfold, at least: a sixteenth is a byte."""


def unfolds(spec: HwSpec) -> bool:
    """Whether the machine can."""
    return spec.buffers.image is not None


def row_words(run: int, kernel_rows: int) -> int:
    """Feature words of an unfolded row of `run` image words."""
    return -(-run * COLUMN_BYTES[kernel_rows] // IMAGE_SLOT)
