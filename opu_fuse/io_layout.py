"""What ports do to the user's arrays, except rounding.

A value's axes have another order outside than inside: channels last in the user's array, channels
first on the machine. Bytes represent numbers that the model computes from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BYTES = 256
"""Values that a byte has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisPermutation:
    """A permutation of the axes between the user's array and the value on the machine.

    value: shape of the value inside.
    axes: shape of the same elements, in the axes that are permuted.
    order: the user's array has those axes in this order; its elements then fill the user's shape.

    So (1, c, h, w) is (1, h, w, c) outside by axes (1, c, h, w) and order (0, 2, 3, 1).
    """

    value: tuple[int, ...]
    axes: tuple[int, ...]
    order: tuple[int, ...]

    def outside(self, value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The user's array, of this shape."""
        return value.reshape(self.axes).transpose(self.order).reshape(shape)

    def inside(self, array: np.ndarray) -> np.ndarray:
        """The inverse of `outside`."""
        permuted = array.reshape([self.axes[axis] for axis in self.order])
        return permuted.transpose(np.argsort(self.order)).reshape(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteTable:
    """The int8 value of each byte of a map, by channel, after an `AxisPermutation` if there is one.

    channels: for each channel inside, the one of the user's bytes. values: for each channel inside
    `BYTES` integers of int8, the first for the byte `lowest` (0 of uint8, -128 of int8).
    """

    channels: tuple[int, ...]
    lowest: int
    values: tuple[tuple[int, ...], ...]

    def inside(self, array: np.ndarray) -> np.ndarray:
        """int8 (1, channels, rows, columns) of as many bytes."""
        indices = array[0, list(self.channels)].astype(np.int16) - self.lowest
        rows = np.array(self.values, np.int8)
        return np.stack([row[p] for row, p in zip(rows, indices, strict=True)])[np.newaxis]
