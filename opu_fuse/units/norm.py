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

The unit reads two quarters a cycle, and sums up and scales one.

The exponentials of a division are divisors: the first entry, of the divisor itself, and the entry
of a zero so many steps below it add up to the divisor.
"""

import math
from collections.abc import Iterator

import numpy as np

from opu_fuse import normalisation
from opu_fuse.errors import ModelError
from opu_fuse.model.operator_record import Pattern
from opu_fuse.normalisation import BY_ROWS, Epsilon, OutputScale
from opu_fuse.units.base import (
    KNOWN,
    Access,
    Capability,
    Field,
    Interval,
    ModuleKind,
    Reach,
    Space,
    Stage,
    StageContext,
    Unit,
)
from opu_fuse.units.norm_pass import (
    ENTRY_BYTES,
    EXPONENTIALS,
    EXPSUMS,
    MAPS,
    OF_PIXELS,
    OF_QUARTERS,
    RECORD,
    RESULTS,
    TABLES,
    NormOp,
    run_pass,
)
from opu_fuse.units.operator import Numeric, Operator, Settings
from opu_fuse.units.params import PostParams

OUTPUT_SHIFTS = range(-32, 32)
"""Exponents of 1 / scale of a softmax: its products keep 64 bits."""
_SOFTMAXES = ("softmax", "grouped_softmax")
CHANNELS_MAX = 1 << 16
"""Of a pixel: sums of squares have the widths for so many."""
MAP_MAX = 1 << 17
"""Values of a map, of which the machine sums no squares about a zero point."""


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
    most, *sums, result = OF_QUARTERS if operator.op == "grouped_softmax" else OF_PIXELS
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


def _reads(p: PostParams, reach: Reach) -> tuple[Interval, ...]:
    """Which entries are read depends on the data: all count."""
    return reach.run(p["norm_table"], EXPONENTIALS) if p["norm_op"] in TABLES else ()


def _mistakes(p: PostParams, context: StageContext) -> Iterator[str]:
    """Statistics are of the pixels of one pass, in its order."""
    if p["norm_idle"] >= context.lanes:
        yield f"has norm_idle = {p['norm_idle']}, words have {context.lanes} lanes"
    if context.pools or p["win_rows"] * p["win_cols"] > 1 or p["spread"]:
        yield f"pools or spreads words, {context.module} normalises whole pixels"
    if p["norm_op"] not in [*NormOp]:
        yield f"has norm_op = {p['norm_op']}, the last one is {max(NormOp)}"
    elif p["norm_op"] in OF_QUARTERS:
        yield from _mistakes_of_quarters(p, context)
    shifts = _shifts(p["norm_op"])
    if shifts and p["norm_shift"] not in shifts:
        yield f"has norm_shift = {p['norm_shift']}, it must be {shifts[0]} to {shifts[-1]}"
    pixels, of_map = p["out_rows"] * p["out_cols"], p["norm_op"] in MAPS
    if pixels > context.pixels and not of_map:
        yield f"has {pixels} pixels, {context.module} keeps statistics of {context.pixels}"
    if p["blocks"] * context.lanes > CHANNELS_MAX:
        yield f"has {p['blocks']} blocks, {context.module} sums up {CHANNELS_MAX} channels"
    elif p["norm_op"] == NormOp.MAP_MOMENTS and pixels * p["blocks"] * context.lanes > MAP_MAX:
        words = pixels * p["blocks"]
        yield f"has {words} words, {context.module} sums up {MAP_MAX} values of a map"


def _mistakes_of_quarters(p: PostParams, context: StageContext) -> Iterator[str]:
    if not context.halves:
        yield f"normalises quarters, {context.module} has no half words a cycle"
    if p["blocks"] > 1 or p["norm_idle"]:
        yield "normalises quarters of words, of which it has several, or one with idle lanes"


def _shifts(op: int) -> range | None:
    """Values of `norm_shift` in a pass, None where it has no meaning."""
    if op in EXPSUMS:
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
        "4096 pixels and 131072 values",
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
    run=run_pass,
    reads=_reads,
    mistakes=_mistakes,
    writes=_writes,
    settings=_settings,
)
