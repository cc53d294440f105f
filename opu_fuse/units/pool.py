"""POOL: the maximum or the average of windows over a map."""

from collections.abc import Iterator
from enum import IntEnum

import numpy as np
from msgspec import Struct

from opu_fuse import fixedpoint
from opu_fuse.errors import ModelError
from opu_fuse.fixedpoint import Multiplier
from opu_fuse.model.operator_record import Pattern
from opu_fuse.units.base import (
    Capability,
    Field,
    ModuleKind,
    Site,
    Stage,
    StageContext,
    Unit,
)
from opu_fuse.units.operator import Numeric, Operator, Settings
from opu_fuse.units.params import PostParams


class PoolKind(IntEnum):
    """Values of `pool_kind`."""

    MAX = 0
    AVERAGE = 1


class AverageParams(Struct, frozen=True, kw_only=True):
    """`fixedpoint.average` over a window.

    row_counts, col_counts: positions that count, for every output row and column (all equal unless
    padding is left out); mults: (count, Multiplier) for every product of a row count and a column
    count, ascending.
    """

    x_zero: int
    y_zero: int
    row_counts: tuple[int, ...]
    col_counts: tuple[int, ...]
    mults: tuple[tuple[int, Multiplier], ...]

    def multiplier_for(self, rows: int, cols: int) -> Multiplier:
        """The multiplier of windows in which rows x cols positions count."""
        return dict(self.mults)[rows * cols]


def average_params(operator: Operator, numeric: Numeric) -> AverageParams:
    """Parameters of an avg_pool. With uncounted padding it has one multiplier per number of
    counted positions. Raises ModelError for windows without a position or counts too different.
    """
    x, y = operator.x, operator.y
    rows, cols = require_positions(operator)
    counts = sorted({r * c for r in set(rows) for c in set(cols)})
    ratio = x.per_tensor / y.per_tensor
    mults = tuple((n, operator.scaled(ratio / n, numeric.average_bits)) for n in counts)
    zeros = {"x_zero": x.zero_point, "y_zero": y.zero_point}
    return AverageParams(row_counts=rows, col_counts=cols, mults=mults, **zeros)


def require_positions(operator: Operator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """`window_counts`; ModelError for a window without a position."""
    rows, cols = window_counts(operator)
    if 0 in (*rows, *cols):
        what = "a pooling window is wholly in the padding"
        raise ModelError(operator.name, what, "use less padding")
    return rows, cols


def window_counts(operator: Operator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions that count in an average: per output row, per output column."""
    size, result = operator.operands[0].shape[2:], operator.result.shape[2:]
    attrs = operator.attrs

    def along(axis: int) -> tuple[int, ...]:
        kernel, stride, step = (attrs[a][axis] for a in ("kernel", "strides", "dilations"))
        if attrs["count_include_pad"]:
            return (kernel,) * result[axis]
        first = [o * stride - attrs["pads"][axis] for o in range(result[axis])]
        return tuple(sum(0 <= f + k * step < size[axis] for k in range(kernel)) for f in first)

    return along(0), along(1)


def _settings(operator: Operator, numeric: Numeric) -> Settings:
    """max_pool and avg_pool; a multiplier per number of positions where padding is uncounted."""
    if operator.op == "max_pool":
        operator.require_tied()
        return Settings(registers={"pool_kind": int(PoolKind.MAX)})
    p = average_params(operator, numeric)
    registers = {
        "pool_kind": int(PoolKind.AVERAGE),
        "pool_x_zero": p.x_zero,
        "pool_y_zero": p.y_zero,
    }
    by_count = {
        (rows, cols): _multiplier(p.multiplier_for(rows, cols))
        for rows in set(p.row_counts)
        for cols in set(p.col_counts)
    }
    if len(p.mults) == 1:
        return Settings(registers=registers | _multiplier(p.mults[0][1]))
    return Settings(registers=registers, by_count=by_count)


def _multiplier(multiplier: Multiplier) -> dict[str, int]:
    return {"pool_mult": multiplier.mult, "pool_shift": multiplier.shift}


def _run(value: np.ndarray, p: PostParams, site: Site) -> np.ndarray:
    """Windows over the present positions; both kinds are separable into rows and columns."""
    average = p["pool_kind"] == PoolKind.AVERAGE
    absent, reduce = (0, np.add) if average else (fixedpoint.INT8_MIN, np.maximum)
    if p["pool_slots"]:
        value = _fold(value, p["pool_slots"])
    rows, cols = framed(p)
    whole = np.full((value.shape[0], rows, cols, value.shape[3]), absent, np.int32)
    present = value - np.int32(p["pool_x_zero"]) if average else value
    whole[:, (site.ys - p["origin_y"])[:, None], (site.xs - p["origin_x"])[None, :]] = present

    last_row = (p["out_rows"] - 1) * p["stride_y"] + 1
    last_col = (p["out_cols"] - 1) * p["stride_x"] + 1
    by_rows = whole[:, 0 : last_row : p["stride_y"]].copy()
    for wy in range(1, p["win_rows"]):
        reduce(by_rows, whole[:, wy : wy + last_row : p["stride_y"]], out=by_rows)
    if p["pool_slots"]:  # the folded words of two columns side by side
        return by_rows.reshape(*by_rows.shape[:2], p["out_cols"], -1).astype(np.int8)
    total = by_rows[:, :, 0 : last_col : p["stride_x"]].copy()
    for wx in range(1, p["win_cols"]):
        reduce(total, by_rows[:, :, wx : wx + last_col : p["stride_x"]], out=total)
    if not average:
        return total.astype(np.int8)
    return fixedpoint.average(
        total, mult=p["pool_mult"], shift=p["pool_shift"], y_zero=p["pool_y_zero"]
    )


def framed(p: PostParams) -> tuple[int, int]:
    """Rows and columns from the first window to the last, absent ones included."""
    rows = (p["out_rows"] - 1) * p["stride_y"] + p["win_rows"]
    return rows, (p["out_cols"] - 1) * p["stride_x"] + p["win_cols"]


def _fold(value: np.ndarray, slots: int) -> np.ndarray:
    """(..., lanes) of `slots` pixels -> (..., lanes / 2): the larger of each pair of neighbours."""
    *shape, lanes = value.shape
    pairs = value.reshape(*shape, slots // 2, 2, lanes // slots)
    return pairs.max(axis=-2).reshape(*shape, lanes // 2)


def _mistakes(p: PostParams, context: StageContext) -> Iterator[str]:  # noqa: ARG001  one signature for all units
    """Packed pixels pool two columns by two, by maximum."""
    if p["pool_slots"] and p["pool_kind"] != PoolKind.MAX:
        yield "has pool_slots, but no maximum in its chain"
    if p["pool_slots"] and (p["win_cols"], p["stride_x"]) != (2, 2):
        yield f"folds windows of {p['win_cols']} columns with stride {p['stride_x']}, only 2 by 2"


_FORM = "one four-dimensional operand of known shape, explicit pads and no ceil_mode"

POOL = Unit(
    module="opu_pool",
    doc="the maximum or the average of windows",
    runs={ModuleKind.POOL: ("max_pool", "avg_pool")},
    pattern=Pattern.OUT_EWISE_FUSABLE,
    forms={
        "MaxPool": _FORM,
        "AveragePool": _FORM,
        "GlobalMaxPool": _FORM,
        "GlobalAveragePool": _FORM,
    },
    capability=Capability(bit=1, doc="a pool"),
    options={ModuleKind.POOL: "pool"},
    stage=Stage.POOL,
    prefix="pool",
    takes=("pool_slots",),
    registers=(
        Field(23, "pool_kind", 1, "0 max, 1 average"),
        Field(24, "pool_mult", 16, "average: multiplier"),
        Field(25, "pool_shift", 6, "average: right shift"),
        Field(26, "pool_x_zero", -8, "average: zero point before"),
        Field(27, "pool_y_zero", -8, "average: zero point after"),
    ),
    shared=(
        Field(
            44, "pool_slots", 3, "max: pixels of a word that are pooled with each other (0, 2 or 4)"
        ),
    ),
    windows=True,
    cycles=10,
    run=_run,
    mistakes=_mistakes,
    settings=_settings,
)
