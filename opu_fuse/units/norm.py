"""NORM: Softmax, LayerNorm and RMSNorm over the channels of a pixel, division by the first,
Softmax over each quarter of a word, and GroupNorm of one group, over a map.

A layer takes two or three passes over the same partial sums. Those before the last one compute
statistics of every pixel, which stay in the unit, and write nothing.

    Softmax    MAX -> EXPSUM -> SOFTMAX
    LayerNorm  MOMENTS -> NORMALISE
    RMSNorm    SQUARES -> NORMALISE
    GroupNorm  MAP_MOMENTS -> MAP_NORMALISE: of all pixels of the pass together
    division   MAX of the divisor -> EXPSUM of it and a zero -> NORMALISE
    quarters   QUARTER_MAX -> QUARTER_EXPSUM, of even quarters -> QUARTER_EXPSUM_ODD
               -> QUARTER_SOFTMAX

A cycle brings two quarters to the unit, which sums up and scales one at a time.

The exponentials of a division are divisors: the first entry, of the divisor itself, and the entry
of a zero so many steps below it add up to the divisor.
"""

import math
from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from opu_fuse import normalisation
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import INT8_MIN, clamp8, rne_shift
from opu_fuse.model.operator_record import Pattern
from opu_fuse.normalisation import BY_ROWS, Epsilon, OutputScale, Scaling
from opu_fuse.units.base import (
    KNOWN,
    QUARTERS,
    Access,
    Capability,
    Field,
    Interval,
    ModuleKind,
    Reach,
    Site,
    Space,
    Stage,
    StageContext,
    Unit,
)
from opu_fuse.units.operator import (
    Numeric,
    Operator,
    Registers,
    Settings,
)
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


_OF_PIXELS = (NormOp.MAX, NormOp.EXPSUM, NormOp.SOFTMAX)
_OF_QUARTERS = (
    NormOp.QUARTER_MAX,
    NormOp.QUARTER_EXPSUM,
    NormOp.QUARTER_EXPSUM_ODD,
    NormOp.QUARTER_SOFTMAX,
)
"""Passes of a softmax, in their order."""
_EXPSUMS = (NormOp.EXPSUM, NormOp.QUARTER_EXPSUM, NormOp.QUARTER_EXPSUM_ODD)
_MAPS = (NormOp.MAP_MOMENTS, NormOp.MAP_NORMALISE)
"""Passes whose pixels have statistics in common."""
RESULTS = (NormOp.SOFTMAX, NormOp.NORMALISE, NormOp.MAP_NORMALISE, NormOp.QUARTER_SOFTMAX)
"""Passes that have results; the others write nothing."""
_TABLES = (*_EXPSUMS, NormOp.SOFTMAX, NormOp.QUARTER_SOFTMAX)
RECORD = np.dtype([("gain", "<i2"), ("gain_shift", "u1"), ("unused", "u1"), ("offset", "<i4")])
"""Constants of a channel: `rne((u * gain + offset) / 2**gain_shift)`."""
GAIN_SHIFT_MASK = 63
"""Bits of `gain_shift` that are read."""
EXPONENTIALS = 256
"""Norm memory words of one table: the low three bytes of a word are an entry."""
ENTRY_BYTES = 3
OUTPUT_SHIFTS = range(-32, 32)
"""Exponents of 1 / scale of a softmax: its products keep 64 bits."""
_SOFTMAXES = ("softmax", "grouped_softmax")
CHANNELS_MAX = 1 << 16
"""Of a pixel, or values of a map: sums have the widths for so many."""


def exponential_words(scale: float) -> np.ndarray:
    """Entries of the exponentials of int8 steps of `scale`, uint8 (EXPONENTIALS, ENTRY_BYTES)."""
    return _words(normalisation.exponentials(scale))


def _words(entries: np.ndarray) -> np.ndarray:
    return entries.astype("<i4").view(np.uint8).reshape(EXPONENTIALS, 4)[:, :ENTRY_BYTES]


def table_words(op: str, scale: float, epsilon: float) -> np.ndarray:
    """Norm memory words of an operator that looks up, uint8 (EXPONENTIALS, ENTRY_BYTES). scale: of
    its int8 operand.
    """
    if op in _SOFTMAXES:
        return exponential_words(scale)
    return _words(normalisation.divisors(scale, epsilon))


def _settings(operator: Operator, numeric: Numeric) -> Settings:  # noqa: ARG001  its multipliers have their widths on every machine
    if operator.op in _SOFTMAXES:
        return _softmax(operator)
    if operator.op == "divide":
        return _division(operator)
    return _norm(operator)


def _softmax(operator: Operator) -> Settings:
    output = OutputScale.of(operator.y.per_tensor)
    if output.exponent not in OUTPUT_SHIFTS:
        raise ModelError(
            operator.name,
            f"its scale {operator.y.per_tensor:g} is outside 2**-32 to 2**31",
            "choose a scale near 1/256 for its result",
        )
    scale = {"norm_scale": output.mantissa - 1, "norm_shift": output.exponent}
    most, *sums, result = _OF_QUARTERS if operator.op == "grouped_softmax" else _OF_PIXELS
    return Settings(
        passes=({"norm_op": most}, *({"norm_op": op, **scale} for op in sums)),
        registers={"norm_op": result, "norm_zero": operator.y.zero_point},
        per_channel=((0, 0, 0, 0),) * operator.result.shape[1],
    )


def _division(operator: Operator) -> Settings:
    x, y, name = operator.x, operator.y, operator.name
    if x.zero_point:
        raise ModelError(name, "its operand has a zero point", "choose zero point 0 for it")
    if y.per_tensor > normalisation.QUOTIENT_SCALE_MAX:
        raise ModelError(name, f"its scale {y.per_tensor:g} is above 1", "choose a finer scale")
    try:
        normalisation.divisors(x.per_tensor, float(operator.attrs["epsilon"]))
    except ValueError as error:
        raise ModelError(name, str(error), "choose a scale that suits the divisor") from error
    one = np.ones(1)
    gain, _, gain_shift = (
        int(v[0]) for v in normalisation.channel_records(one, 0 * one, y.per_tensor)
    )
    scale = normalisation.DIVISOR_SCALE
    reciprocal = {"norm_scale": scale.mantissa - 1, "norm_shift": scale.exponent}
    return Settings(
        passes=({"norm_op": NormOp.MAX}, {"norm_op": NormOp.EXPSUM, **reciprocal}),
        registers={"norm_op": NormOp.NORMALISE, "norm_zero": y.zero_point},
        per_channel=((gain, gain_shift, 0, 0),) * operator.result.shape[1],
    )


def _norm(operator: Operator) -> Settings:
    """LayerNorm, RMSNorm, GroupNorm. operands: the map, gains, and, but of RMSNorm, offsets."""
    x, y, channels = operator.x, operator.y, operator.result.shape[1]
    of_map = operator.op == "group_norm"
    size = operator.result.shape
    count = math.prod(size[1:]) // (size[2] if BY_ROWS in operator.attrs else 1)
    count = count if of_map else channels
    try:
        epsilon = Epsilon.of(float(operator.attrs["epsilon"]), x.per_tensor, count)
    except ValueError as error:
        what = "choose a scale of its operand that suits its values"
        raise ModelError(operator.name, str(error), what) from error
    constants = [_constant(operator, index, channels) for index in (1, 2)]
    gain, offset, gain_shift = normalisation.channel_records(
        constants[0], constants[1], y.per_tensor
    )
    factor = {"norm_scale": epsilon.mantissa, "norm_shift": epsilon.shift}
    rms = operator.op == "rms_norm"
    sums = NormOp.SQUARES if rms else NormOp.MAP_MOMENTS if of_map else NormOp.MOMENTS
    result = NormOp.MAP_NORMALISE if of_map else NormOp.NORMALISE
    first = {"norm_op": sums, "norm_zero": x.zero_point * rms}
    columns = (gain, gain_shift, np.zeros_like(gain), offset)
    return Settings(
        passes=({**first, **factor},),
        registers={"norm_op": result, "norm_zero": y.zero_point},
        per_channel=tuple(zip(*(column.tolist() for column in columns), strict=True)),
    )


def _constant(operator: Operator, index: int, channels: int) -> np.ndarray:
    """Gains (1) or offsets (2) of the channels as float64; 0 where it has no offsets."""
    if index >= len(operator.operands):
        return np.zeros(channels)
    operand = operator.operands[index]
    assert operand.const is not None, "the matcher refuses computed gains and offsets"
    data = operand.const if operand.quant is None else operand.quant.dequantize(operand.const)
    return np.broadcast_to(data.astype(np.float64).reshape(-1), (channels,))


def epsilon_of(registers: Registers) -> int:
    """What a pass of statistics adds to the variance."""
    return Epsilon(mantissa=registers["norm_scale"], shift=registers["norm_shift"]).value


def _run(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    """A pass over (blocks, ys, xs, lanes)."""
    op, statistics = NormOp(p["norm_op"]), site.statistics()
    x = value.astype(np.int64)
    if op in _OF_QUARTERS:
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
                _scaling_of(statistics.scaling, x[:, :1, :1] if op in _MAPS else x),
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
    if p["norm_op"] in _MAPS:
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


def _reads(p: PostParams, reach: Reach) -> tuple[Interval, ...]:
    """Which entries are read depends on the data: all count."""
    return reach.run(p["norm_table"], EXPONENTIALS) if p["norm_op"] in _TABLES else ()


def _mistakes(p: PostParams, context: StageContext) -> Iterator[str]:
    """Statistics are of the pixels of one pass, in its order."""
    if p["norm_idle"] >= context.lanes:
        yield f"has norm_idle = {p['norm_idle']}, words have {context.lanes} lanes"
    if context.pools or p["win_rows"] * p["win_cols"] > 1 or p["spread"]:
        yield f"pools or spreads words, {context.module} normalises whole pixels"
    if p["norm_op"] not in [*NormOp]:
        yield f"has norm_op = {p['norm_op']}, the last one is {max(NormOp)}"
    elif p["norm_op"] in _OF_QUARTERS:
        yield from _mistakes_of_quarters(p, context)
    shifts = _shifts(p["norm_op"])
    if shifts and p["norm_shift"] not in shifts:
        yield f"has norm_shift = {p['norm_shift']}, it must be {shifts[0]} to {shifts[-1]}"
    pixels, of_map = p["out_rows"] * p["out_cols"], p["norm_op"] in _MAPS
    if pixels > context.pixels and not of_map:
        yield f"has {pixels} pixels, {context.module} keeps statistics of {context.pixels}"
    if p["blocks"] * context.lanes > CHANNELS_MAX:
        yield f"has {p['blocks']} blocks, {context.module} sums up {CHANNELS_MAX} channels"
    elif p["norm_op"] == NormOp.MAP_MOMENTS and pixels * p["blocks"] * context.lanes > CHANNELS_MAX:
        words = pixels * p["blocks"]
        yield f"has {words} words, {context.module} sums up {CHANNELS_MAX} values of a map"


def _mistakes_of_quarters(p: PostParams, context: StageContext) -> Iterator[str]:
    if not context.halves:
        yield f"normalises quarters, {context.module} has no half words a cycle"
    if p["blocks"] > 1 or p["norm_idle"]:
        yield "normalises quarters of words, of which it has several, or one with idle lanes"


def _shifts(op: int) -> range | None:
    """Values of `norm_shift` in a pass, None where it has no meaning."""
    if op in _EXPSUMS:
        return OUTPUT_SHIFTS
    if op in (NormOp.MOMENTS, NormOp.SQUARES, NormOp.MAP_MOMENTS):
        return range(normalisation.EPSILON_SHIFT_MAX + 1)
    return None


def _writes(p: PostParams) -> bool:
    return p["norm_op"] in RESULTS


NORM = Unit(
    module="opu_norm",
    doc="Softmax, LayerNorm and RMSNorm over the channels of a pixel, division by the first of "
    "them, Softmax over quarters of a word, and GroupNorm over a map, in passes over partial sums",
    runs={
        ModuleKind.NORM: (
            *_SOFTMAXES,
            *("layer_norm", "rms_norm", "divide", "group_norm"),
        )
    },
    pattern=Pattern.OUT_EWISE_FUSABLE,
    forms={
        "Div": f"{KNOWN}, of linear attention: a product with keys and values, one of them a sum",
        "GroupNormalization": f"{KNOWN}, constant scale and bias, one group or several of up to "
        "4096 pixels and 65536 values",
        "Softmax": f"{KNOWN}, over the channels of a pixel or the last axis of tokens",
        "LayerNormalization": f"{KNOWN}, over the channels of a pixel or the last axis of tokens, "
        "constant scale and bias",
        "RMSNormalization": f"{KNOWN}, over the channels of a pixel or the last axis of tokens, "
        "constant scale",
    },
    real_constants=True,
    capability=Capability(bit=11, doc="norms and softmax"),
    options={ModuleKind.NORM: "norms"},
    operands={ModuleKind.NORM: (Access.PER_CHANNEL,)},
    stage=Stage.NORM,
    prefix="norm",
    registers=(
        Field(
            *(58, "norm_op", 4),
            "0 max, 1 expsum, 2 softmax, 3 moments, 4 squares, 5 normalise; map: 6, 7; "
            "quarter: 8 to 11",
        ),
        Field(59, "norm_table", 22, "norm memory word of the exponential of 0"),
        Field(60, "norm_idle", 8, "lanes of the last block that hold no channel"),
        Field(61, "norm_zero", -8, "zero point of the result; squares: of the operand"),
        Field(62, "norm_scale", 16, "expsum: mantissa of 1/scale, less 1; moments: of epsilon"),
        Field(63, "norm_shift", -7, "expsum: exponent of 1/scale; moments: of epsilon"),
    ),
    memory=Space.NORM,
    passes={
        "softmax": 2,
        "grouped_softmax": 3,
        "divide": 2,
        "layer_norm": 1,
        "rms_norm": 1,
        "group_norm": 1,
    },
    of_map=frozenset({"group_norm"}),
    of_quarters=frozenset({"grouped_softmax"}),
    lanes_read={"divide": (1, 2)},
    looks_up=frozenset({*_SOFTMAXES, "divide"}),
    record=RECORD,
    cycles=22,
    run=_run,
    reads=_reads,
    mistakes=_mistakes,
    writes=_writes,
    settings=_settings,
)
