"""PRELU: a slope for every channel below the zero point."""

import math

import numpy as np

from opu_fuse import fixedpoint
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import MAX_SHIFT
from opu_fuse.units.base import (
    KNOWN,
    Access,
    Capability,
    Field,
    ModuleKind,
    Site,
    Stage,
    Unit,
)
from opu_fuse.units.operator import (
    Numeric,
    Operator,
    Settings,
    held,
)
from opu_fuse.units.params import PostParams, PreluRegisters

SLOPE = np.dtype("<i2")
"""Constant of a channel: its multiplier below the zero point."""
_POS_MAX, _NEG_MAX = (1 << 16) - 1, (1 << 15) - 1


def _settings(operator: Operator, numeric: Numeric) -> Settings:  # noqa: ARG001  its multipliers have 16 bits on every machine
    """One shift for all slopes, as fine as their multipliers fit."""
    x, y, constant = operator.x, operator.y, operator.operands[1]
    assert constant.const is not None
    data = constant.const if constant.quant is None else constant.quant.dequantize(constant.const)
    unit = x.per_tensor / y.per_tensor
    ratio = held(unit, _POS_MAX)
    slopes = np.broadcast_to(data.astype(np.float64).reshape(-1), operator.result.shape[1:2])
    negative = np.array([held(slope, _NEG_MAX) for slope in slopes * unit])
    steepest = max(float(np.abs(negative).max()), _NEG_MAX / (1 << MAX_SHIFT))
    shift = min(math.floor(math.log2(_POS_MAX / ratio)), math.floor(math.log2(_NEG_MAX / steepest)))
    shift = min(shift, MAX_SHIFT)
    pos = round(math.ldexp(ratio, shift))
    if pos == 0:
        raise ModelError(
            operator.name,
            f"one shift cannot serve the slope {ratio:g} above zero and {steepest:g} below",
            "choose scales nearer to each other, or slopes",
        )
    result = np.rint(np.ldexp(negative, shift)).astype(np.int64)
    zeros = {"prelu_x_zero": x.zero_point, "prelu_y_zero": y.zero_point}
    return Settings(
        registers={"prelu_pos": pos, "prelu_shift": shift, **zeros},
        per_channel=tuple(result.tolist()),
    )


def _apply(value: np.ndarray, p: PreluRegisters, slopes: np.ndarray | None) -> np.ndarray:
    assert slopes is not None, "every channel has a slope"
    return fixedpoint.activate(
        value,
        x_zero=p["prelu_x_zero"],
        pos=p["prelu_pos"],
        neg=slopes,
        shift=p["prelu_shift"],
        y_zero=p["prelu_y_zero"],
    )


def _run(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    return _apply(value, p, site.parameters(SLOPE))


PRELU = Unit(
    module="opu_prelu",
    doc="a slope for every channel below the zero point",
    runs={ModuleKind.PRELU: ("prelu",)},
    forms={"PRelu": f"{KNOWN}, and constant slopes, one a channel"},
    real_constants=True,
    capability=Capability(bit=5, doc="slopes of channels"),
    options={ModuleKind.PRELU: "slopes"},
    operands={ModuleKind.PRELU: (Access.PER_CHANNEL,)},
    stage=Stage.PRELU,
    prefix="prelu",
    registers=(
        Field(52, "prelu_pos", 16, "slope multiplier at and above the zero point"),
        Field(53, "prelu_shift", 6, "right shift after the slope"),
        Field(54, "prelu_x_zero", -8, "zero point before"),
        Field(55, "prelu_y_zero", -8, "zero point after"),
    ),
    record=SLOPE,
    cycles=9,
    run=_run,
    settings=_settings,
    apply=_apply,
)
