"""Which pixels a Resize to the nearest one takes, by ONNX's definition."""

import numpy as np
import onnx_ir as ir

from opu_fuse.model.known_values import const_array

_CLOSE = 1e-4
"""Places so near to the middle between two pixels, not on it, float32 may put on either side."""


def repeats(source: int, times: int, coordinates: str, rounding: str) -> bool:
    """Whether each of `source` pixels in a row is taken `times` times, one after the other."""
    count = source * times
    x = np.arange(count, dtype=np.float64)
    match coordinates:
        case "asymmetric":
            positions = x / times
        case "half_pixel" | "pytorch_half_pixel" if count > 1:
            positions = (x + 0.5) / times - 0.5
        case "align_corners" if count > 1:
            positions = x * (source - 1) / (count - 1)
        case _:
            return False
    middle = 0.5 if rounding.startswith("round") else 0.0
    match rounding:
        case "floor":
            taken = np.floor(positions)
        case "ceil":
            taken = np.ceil(positions)
        case "round_prefer_floor":
            taken = np.ceil(positions - middle)
        case "round_prefer_ceil":
            taken = np.floor(positions + middle)
        case _:
            return False
    off = np.abs(positions - middle - np.rint(positions - middle))
    wanted = np.repeat(np.arange(source), times)
    same = np.array_equal(np.clip(taken, 0, source - 1), wanted)
    return same and bool(np.all((off == 0.0) | (off > _CLOSE)))


def resizes_by(node: ir.Node, factors: tuple[int, ...]) -> bool:
    """Whether a Resize reads its source at these steps: 7 columns times 5.03 are 35, too, but not
    each column five times.
    """
    given = const_array(node.inputs[2]) if len(node.inputs) > 2 else None
    if given is None or not given.size:  # by sizes: their quotients
        return True
    axes = [axis % len(factors) for axis in node.attributes.get_ints("axes", range(len(factors)))]
    return given.tolist() == [factors[axis] for axis in axes]
