"""What ports do to the user's arrays besides rounding.

A value's axes stand in another order there than inside: channels last at the border of a network
that the machine computes with channels first. Bytes stand for numbers that the model computes from
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BYTES = 256
"""Values that a byte has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisPermutation:
    """value: shape of the value inside. axes: the same elements in the axes that are turned; order:
    the user's array has those axes in this order, and its elements then fill the user's shape.

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
        turned = array.reshape([self.axes[axis] for axis in self.order])
        return turned.transpose(np.argsort(self.order)).reshape(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteTable:
    """What the bytes of a map are inside, by channel, behind a `AxisPermutation` if there is one.

    channels: for each channel inside, the one of the user's bytes. values: for each channel inside
    `BYTES` integers of int8, the first for the byte `lowest` (0 of uint8, -128 of int8).
    """

    channels: tuple[int, ...]
    lowest: int
    values: tuple[tuple[int, ...], ...]

    def inside(self, array: np.ndarray) -> np.ndarray:
        """int8 (1, channels, rows, columns) of as many bytes."""
        places = array[0, list(self.channels)].astype(np.int16) - self.lowest
        rows = np.array(self.values, np.int8)
        return np.stack([row[p] for row, p in zip(rows, places, strict=True)])[np.newaxis]
