"""Sums and windows over integer feature maps, in numpy. No rounding happens here (see
`fixedpoint.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opu_fuse.fixedpoint import exact_matmul

PATCH_ELEMENTS = 1 << 23
"""im2row of convolutions copies at most this many values at a time (bounds memory, not results)."""


def conv_sums(
    x: np.ndarray, weight: np.ndarray, attrs: Mapping[str, Any], pad_value: int
) -> np.ndarray:
    """Sums of products x*w of a convolution: int8 (1, c, h, w) and int8 or int16 (oc, c/group, kh,
    kw) -> int64 (1, oc, oh, ow).

    attrs: strides, dilations, pads, group. Padding reads pad_value.
    """
    groups, per_group = attrs["group"], weight.shape[1]
    windows = _windows(x, weight.shape[2:], attrs, pad_value)[0]
    oh, ow = windows.shape[1:3]
    terms = per_group * weight.shape[2] * weight.shape[3]
    out = np.empty((weight.shape[0], oh, ow), np.int64)
    oc = weight.shape[0] // groups
    rows = max(1, PATCH_ELEMENTS // max(1, terms * ow))
    for g in range(groups):
        kernel = weight[g * oc : (g + 1) * oc].reshape(oc, terms)
        channels = windows[g * per_group : (g + 1) * per_group]
        for top in range(0, oh, rows):
            patches = channels[:, top : top + rows].transpose(0, 3, 4, 1, 2).reshape(terms, -1)
            sums = exact_matmul(kernel, patches, terms)
            out[g * oc : (g + 1) * oc, top : top + rows] = sums.reshape(oc, -1, ow)
    return out[None]


def transposed_sums(
    x: np.ndarray, filters: np.ndarray, attrs: Mapping[str, Any], zero_point: int
) -> np.ndarray:
    """As `conv_sums`, of a transposed convolution: stride 1 over the input with zeros (zero_point)
    between its pixels, filters mirrored.

    attrs: strides, pads, output_padding, group (1 or the number of channels).
    """
    (sy, sx), (oy, ox), (kh, kw) = attrs["strides"], attrs["output_padding"], filters.shape[2:]
    top, left, bottom, right = attrs["pads"]
    _, channels, rows, cols = x.shape
    spread = np.full((1, channels, (rows - 1) * sy + 1, (cols - 1) * sx + 1), zero_point, np.int8)
    spread[:, :, ::sy, ::sx] = x
    edges = (kh - 1 - top, kw - 1 - left, kh - 1 - bottom + oy, kw - 1 - right + ox)
    cut = [max(-e, 0) for e in edges]  # padding beyond the filter leaves results out
    height, width = spread.shape[2:]
    spread = spread[:, :, cut[0] : height - cut[2], cut[1] : width - cut[3]]
    plain = {"strides": (1, 1), "dilations": (1, 1), "pads": tuple(max(e, 0) for e in edges)}
    return conv_sums(
        spread, filters[:, :, ::-1, ::-1], plain | {"group": attrs["group"]}, zero_point
    )


def shuffle_channels(x: np.ndarray, order: Sequence[int], zero_point: int) -> np.ndarray:
    """Channels of x (1, c, h, w), as numbered by `order`; -1 for zeros."""
    result = x[:, list(order)]
    result[:, [i for i, channel in enumerate(order) if channel < 0]] = zero_point
    return result


def dense_sums(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Sums of products of int8 x (1, k) and weight (n, k) -> int64 (1, n)."""
    return exact_matmul(x, weight.T, weight.shape[1])


def window_max(x: np.ndarray, attrs: Mapping[str, Any]) -> np.ndarray:
    """Maximum per window of int8 (1, c, h, w); padding is absent (-128)."""
    return _windows(x, attrs["kernel"], attrs, -128).max(axis=(4, 5))


def window_sum(x: np.ndarray, attrs: Mapping[str, Any], zero_point: int) -> np.ndarray:
    """Sum of (x - zero_point) per window, int64; padding adds nothing."""
    windows = _windows(x.astype(np.int64) - zero_point, attrs["kernel"], attrs, 0)
    return windows.sum(axis=(4, 5))


def _windows(
    x: np.ndarray, kernel: tuple[int, ...], attrs: Mapping[str, Any], fill: int
) -> np.ndarray:
    """View (1, c, oh, ow, kh, kw) of a padded feature map."""
    top, left, bottom, right = attrs["pads"]
    (sy, sx), (dy, dx) = attrs["strides"], attrs["dilations"]
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    extent = ((kernel[0] - 1) * dy + 1, (kernel[1] - 1) * dx + 1)
    view = np.lib.stride_tricks.sliding_window_view(padded, extent, axis=(2, 3))
    return view[:, :, ::sy, ::sx, ::dy, ::dx]
