"""Arithmetic of sliding windows: automatic padding, ceil mode."""

from collections.abc import Mapping
from typing import Any

Ints = tuple[int, ...]


def explicit_pads(
    attributes: Mapping[str, Any], size: Ints, kernel: Ints, strides: Ints, dilations: Ints
) -> Ints:
    """Pads in ONNX order (all begins, all ends), auto_pad resolved.

    attributes: of the operator. size: input rows and columns.
    """
    rank = len(size)
    mode = attributes.get("auto_pad") or "NOTSET"
    if mode == "NOTSET":
        return tuple(attributes.get("pads", (0,) * (2 * rank)))
    if mode == "VALID":
        return (0,) * (2 * rank)
    begins, ends = [], []
    for n, k, s, d in zip(size, kernel, strides, dilations, strict=True):
        total = max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        small = total // 2
        begins.append(total - small if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else total - small)
    return (*begins, *ends)


def ceil_pads(size: Ints, kernel: Ints, strides: Ints, dilations: Ints, pads: Ints) -> Ints:
    """Pads with ends enlarged so that floor mode gives the output size of ceil mode.

    A last window that would start in the end padding is dropped, as ONNX and ONNX Runtime do.
    """
    rank = len(size)
    ends = []
    for axis in range(rank):
        n, k, s, d = size[axis], kernel[axis], strides[axis], dilations[axis]
        begin, end, span = pads[axis], pads[rank + axis], (kernel[axis] - 1) * dilations[axis] + 1
        out = -(-(n + begin + end - span) // s) + 1
        if (out - 1) * s >= n + begin:
            out -= 1
        ends.append(max(end, (out - 1) * s + (k - 1) * d + 1 - n - begin))
    return (*pads[:rank], *ends)
