"""The order of the axes of the user's arrays: channels first, as in ONNX, or channels last."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

import numpy as np

from opu_fuse.choices import option
from opu_fuse.errors import UserError

_RANK = 4


class ArrayLayout(StrEnum):
    """Axes of four-dimensional data. AUTO: channels last where the shape has no other reading."""

    AUTO = "auto"
    NCHW = "nchw"
    NHWC = "nhwc"


LayoutLike = ArrayLayout | Literal["auto", "nchw", "nhwc"]


def is_channels_last(given: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether an array's shape fits an input only with its channels moved from the end.

    given: (h, w, c), (n, h, w, c) or (samples, n, h, w, c). shape: the input's, (n, c, h, w).
    """
    given, shape = tuple(given), tuple(shape)
    if len(shape) != _RANK or given[-3:] == shape[1:]:
        return False
    return given[-3:] == (*shape[2:], shape[1]) and given[:-3] in _leading(given, shape)


def channels_first(
    where: str, array: np.ndarray, shape: Sequence[int], layout: ArrayLayout
) -> np.ndarray:
    """An array for an input of this shape with the axes that the model has.

    where: for the message. Raises UserError for NHWC where the array does not fit that way.
    """
    given, shape = tuple(array.shape), tuple(shape)
    if layout is ArrayLayout.NCHW or len(shape) != _RANK:
        return array
    if layout is ArrayLayout.AUTO:
        return np.moveaxis(array, -1, -3) if is_channels_last(given, shape) else array
    if given[-3:] != (*shape[2:], shape[1]) or given[:-3] not in _leading(given, shape):
        expected = "x".join(map(str, (shape[0], *shape[2:], shape[1])))
        raise UserError(
            where,
            f"{option('layout', 'nhwc')} expects (samples, height, width, channels) = {expected}, "
            f"got {'x'.join(map(str, given))}",
            f"leave {option('layout')} out if the channels are not the last axis",
        )
    return np.moveaxis(array, -1, -3)


def _leading(given: tuple[int, ...], shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """What the axes before height, width and channels may be."""
    samples = given[:1]
    stacked = (samples,) if shape[0] == 1 else ()
    return ((), shape[:1], (*samples, shape[0]), *stacked)
