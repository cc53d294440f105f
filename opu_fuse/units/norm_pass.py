"""What the passes of the norm unit compute (`units/norm.py`)."""

from enum import IntEnum

import numpy as np

from opu_fuse import normalisation
from opu_fuse.fixedpoint import INT8_MIN, clamp8, rne_shift
from opu_fuse.normalisation import QUARTERS, Epsilon, OutputScale, Scaling
from opu_fuse.units.base import Site, Space
from opu_fuse.units.operator import Registers
from opu_fuse.units.params import PostParams


class NormOp(IntEnum):
    """Values of `norm_op`."""

    MAX = 0
    EXPSUM = 1
    SOFTMAX = 2
    MOMENTS = 3
    SQUARES = 4
    NORMALISE = 5
    MAP_MOMENTS = 6
    MAP_NORMALISE = 7
    QUARTER_MAX = 8
    QUARTER_EXPSUM = 9
    QUARTER_SOFTMAX = 10
    QUARTER_EXPSUM_ODD = 11


OF_PIXELS = (NormOp.MAX, NormOp.EXPSUM, NormOp.SOFTMAX)
OF_QUARTERS = (
    NormOp.QUARTER_MAX,
    NormOp.QUARTER_EXPSUM,
    NormOp.QUARTER_EXPSUM_ODD,
    NormOp.QUARTER_SOFTMAX,
)
"""Passes of a softmax, in their order."""
EXPSUMS = (NormOp.EXPSUM, NormOp.QUARTER_EXPSUM, NormOp.QUARTER_EXPSUM_ODD)
MAPS = (NormOp.MAP_MOMENTS, NormOp.MAP_NORMALISE)
"""Passes whose pixels have statistics in common."""
RESULTS = (NormOp.SOFTMAX, NormOp.NORMALISE, NormOp.MAP_NORMALISE, NormOp.QUARTER_SOFTMAX)
"""Passes that have results; the others write nothing."""
TABLES = (*EXPSUMS, NormOp.SOFTMAX, NormOp.QUARTER_SOFTMAX)
RECORD = np.dtype([("gain", "<i2"), ("gain_shift", "u1"), ("unused", "u1"), ("offset", "<i4")])
"""Constants of a channel: `rne((u * gain + offset) / 2**gain_shift)`."""
GAIN_SHIFT_MASK = 63
"""Bits of `gain_shift` that are read."""
EXPONENTIALS = 256
"""Norm memory words of one table: the low three bytes of a word are an entry."""
ENTRY_BYTES = 3


def epsilon_of(registers: Registers) -> int:
    """What a pass of statistics adds to the variance."""
    return Epsilon(mantissa=registers["norm_scale"], shift=registers["norm_shift"]).value


def run_pass(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    """A pass over (blocks, ys, xs, lanes)."""
    op, statistics = NormOp(p["norm_op"]), site.statistics()
    x = value.astype(np.int64)
    if op in OF_QUARTERS:
        return _run_quarters(op, x, p, site)
    present = np.ones((x.shape[0], x.shape[3]), bool)
    present[-1, x.shape[3] - p["norm_idle"] :] = False
    present = present[:, None, None, :]
    match op:
        case NormOp.MAX:
            maximum = x.max(axis=(0, 3), initial=INT8_MIN, where=present)
            statistics.maximum[: maximum.size] = maximum.reshape(-1)
        case NormOp.EXPSUM:
            terms = np.where(present, _terms(x, p, site), 0)
            _remember(statistics.scaling, _softmax_scaling(terms, p))
        case NormOp.MOMENTS | NormOp.SQUARES | NormOp.MAP_MOMENTS:
            _remember(statistics.scaling, _deviation(np.where(present, x, 0), p, present))
        case NormOp.SOFTMAX:
            return np.where(present, _softmax_results(x, p, site), np.int8(p["norm_zero"]))
        case NormOp.NORMALISE | NormOp.MAP_NORMALISE:
            record = site.parameters(RECORD)
            result = normalisation.normalise(
                x,
                _scaling_of(statistics.scaling, x[:, :1, :1] if op in MAPS else x),
                mult=record["gain"].astype(np.int64),
                bias=record["offset"].astype(np.int64),
                shift=(record["gain_shift"] & GAIN_SHIFT_MASK).astype(np.int64),
                zero_point=p["norm_zero"],
            )
            return np.where(present, result, np.int8(p["norm_zero"]))
    return value


def _run_quarters(op: NormOp, x: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    """A pass over (1, ys, xs, lanes) whose quarters of a word are pixels of their own."""
    shape, statistics = x.shape, site.statistics()
    x = x.reshape(1, shape[1], QUARTERS * shape[2], shape[3] // QUARTERS)
    if op == NormOp.QUARTER_MAX:
        statistics.maximum[: x.size // x.shape[3]] = x.max(axis=3).reshape(-1)
    elif op == NormOp.QUARTER_SOFTMAX:
        return _softmax_results(x, p, site).reshape(shape)
    else:
        own = slice(int(op == NormOp.QUARTER_EXPSUM_ODD), x.size // x.shape[3], 2)
        terms = _terms(x, p, site)[:, :, own.start :: 2]
        _remember(_at(statistics.scaling, own), _softmax_scaling(terms, p))
    return x.astype(np.int8).reshape(shape)


def _softmax_scaling(terms: np.ndarray, p: PostParams) -> Scaling:
    output = OutputScale(mantissa=p["norm_scale"] + 1, exponent=p["norm_shift"])
    return normalisation.softmax_scaling(terms.sum(axis=(0, 3)), output)


def _softmax_results(x: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    pixel = _scaling_of(site.statistics().scaling, x)
    scaled = rne_shift(_terms(x, p, site) * pixel.factor, pixel.shift)
    return clamp8(scaled + p["norm_zero"])


def _terms(x: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    """Exponentials of the steps below the maximum of each pixel, modulo the table's length."""
    words = site.words(Space.NORM)[p["norm_table"] : p["norm_table"] + EXPONENTIALS, :ENTRY_BYTES]
    table = words.view(np.uint8).astype(np.int64) @ (1 << 8 * np.arange(ENTRY_BYTES))
    return table[(_of_pixels(site.statistics().maximum, x) - x) % EXPONENTIALS]


def _deviation(x: np.ndarray, p: PostParams, present: np.ndarray) -> Scaling:
    """Scaling by the deviation of each pixel or of all, as one pixel; x: 0 where there is no
    channel.
    """
    axes, count = (0, 3), int(present.sum())
    if p["norm_op"] in MAPS:
        x = x.reshape(x.shape[0], 1, 1, -1)
        count *= p["out_rows"] * p["out_cols"]
    epsilon = Epsilon(mantissa=p["norm_scale"], shift=p["norm_shift"]).value
    if p["norm_op"] == NormOp.SQUARES:
        centred = np.where(present, x - p["norm_zero"], 0)
        squares = (centred**2).sum(axis=axes)
        return normalisation.rms_scaling(count, p["norm_zero"], squares, epsilon)
    total, squares = x.sum(axis=axes), (x**2).sum(axis=axes)
    return normalisation.norm_scaling(count, total, squares, epsilon)


def _remember(kept: Scaling, scaling: Scaling) -> None:
    """Write the scaling of a pass's pixels (ys, xs) over that of the pixels with their numbers."""
    pixels = scaling.factor.size
    kept.factor[:pixels] = scaling.factor.reshape(-1)
    kept.offset[:pixels] = scaling.offset.reshape(-1)
    kept.shift[:pixels] = scaling.shift.reshape(-1)


def _at(kept: Scaling, at: slice) -> Scaling:
    return Scaling(factor=kept.factor[at], offset=kept.offset[at], shift=kept.shift[at])


def _of_pixels(kept: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What is kept of the pixels of x (blocks, ys, xs, lanes), as (1, ys, xs, 1)."""
    rows, cols = x.shape[1:3]
    return kept[: rows * cols].reshape(1, rows, cols, 1)


def _scaling_of(kept: Scaling, x: np.ndarray) -> Scaling:
    return Scaling(
        factor=_of_pixels(kept.factor, x),
        offset=_of_pixels(kept.offset, x),
        shift=_of_pixels(kept.shift, x),
    )
