"""A value whose axes stand in another order in the user's arrays than inside: channels last at the
border of a network that the machine computes with channels first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
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
