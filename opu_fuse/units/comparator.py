"""ACT: a slope on each side of the zero point, then a clamp."""

import numpy as np

from opu_fuse import fixedpoint
from opu_fuse.fixedpoint import INT8_MAX, INT8_MIN
from opu_fuse.quant import QuantParams
from opu_fuse.units.base import (
    KNOWN,
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
from opu_fuse.units.params import ActRegisters, PostParams

OPERATORS = ("relu", "clip", "leaky_relu")
_STEEPEST = (1 << 16) - 1
"""Slopes are registers of 16 bits."""


def _settings(operator: Operator, numeric: Numeric) -> Settings:
    """relu, clip, and leaky_relu: exact where the slope is a multiple of 2**-15."""
    x, y = operator.x, operator.y
    ratio, lo, hi = x.per_tensor / y.per_tensor, INT8_MIN, INT8_MAX
    slopes = (ratio, ratio)
    match operator.op:
        case "relu":
            lo = y.zero_point
        case "clip":
            lo, hi = (_bound(operator.attrs[name], y) for name in ("min", "max"))
        case "leaky_relu":
            slopes = (ratio, ratio * operator.attrs["alpha"])
        case _:
            pass
    pos, neg = (held(slope, _STEEPEST) for slope in slopes)
    (pos, neg), shift = operator.shared((pos, neg), numeric)
    registers = {"act_pos": pos, "act_neg": neg, "act_shift": shift, "act_lo": lo, "act_hi": hi}
    zeros = {"act_x_zero": x.zero_point, "act_y_zero": y.zero_point}
    return Settings(registers=registers | zeros)


def _bound(limit: float, y: QuantParams) -> int:
    """A bound of clip as int8 of the result (infinite bounds become the ends of the range)."""
    with np.errstate(over="ignore"):  # beyond all int8 is all that counts
        scaled = np.rint(np.float32(limit) / np.float32(y.per_tensor)) + y.zero_point
    return int(np.clip(scaled, INT8_MIN, INT8_MAX))


def _run(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:  # noqa: ARG001  one signature for all units
    return _apply(value, p)


def _apply(value: np.ndarray, p: ActRegisters, records: np.ndarray | None = None) -> np.ndarray:  # noqa: ARG001  as above
    return fixedpoint.activate(
        value,
        x_zero=p["act_x_zero"],
        pos=p["act_pos"],
        neg=p["act_neg"],
        shift=p["act_shift"],
        y_zero=p["act_y_zero"],
        lo=p["act_lo"],
        hi=p["act_hi"],
    )


COMPARATOR = Unit(
    module="opu_activate",
    doc="a slope on each side of the zero point, then a clamp",
    runs={ModuleKind.COMPARATOR: OPERATORS},
    forms={"Relu": KNOWN, "Clip": f"{KNOWN}, and constant bounds", "LeakyRelu": KNOWN},
    capability=Capability(bit=0, doc="a comparator"),
    stage=Stage.ACT,
    prefix="act",
    registers=(
        Field(28, "act_pos", 16, "slope multiplier at and above the zero point"),
        Field(29, "act_neg", 16, "slope multiplier below the zero point"),
        Field(30, "act_shift", 6, "right shift after the slope"),
        Field(31, "act_x_zero", -8, "zero point before"),
        Field(32, "act_y_zero", -8, "zero point after"),
        Field(33, "act_lo", -8, "lower clamp"),
        Field(34, "act_hi", -8, "upper clamp"),
    ),
    cycles=9,
    run=_run,
    settings=_settings,
    apply=_apply,
)
