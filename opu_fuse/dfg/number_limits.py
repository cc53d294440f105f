"""Whether a machine's registers hold the numbers of an operator, wherever it is matched."""

from opu_fuse.dfg.graph import Access, Dfg, Kind
from opu_fuse.dfg.integer import ACCUMULATING, operator, requant_params
from opu_fuse.dfg.pre_array import is_affine
from opu_fuse.errors import ModelError
from opu_fuse.units import STAGE_OF_OPERATOR
from opu_fuse.units.affine import affine_params
from opu_fuse.units.operator import Numeric
from opu_fuse.units.pool import average_params, require_positions


def number_error(dfg: Dfg, index: int, numeric: Numeric) -> ModelError | None:
    """The error that lowering would raise for the numbers of a call; None where they fit its
    registers. Of a call in floats, only errors at every scale.
    """
    try:
        if dfg[index].op == "avg_pool":
            require_positions(operator(dfg, index))
        if not numeric.multiplier_bits:
            _require_power_of_two(dfg, index)
        if dfg.quantised:
            _require_registers(dfg, index, numeric)
    except ModelError as error:
        return error
    return None


def _require_power_of_two(dfg: Dfg, index: int) -> None:
    """The divisor of a mean that is a convolution."""
    divisor = dfg[index].attrs.get("divisor", 1)
    if divisor & (divisor - 1):
        raise ModelError(
            dfg[index].name,
            f"it divides by {divisor}, and without multipliers the array divides by powers of two "
            "only",
            "set numeric.multiplier_bits",
        )


def _require_registers(dfg: Dfg, index: int, numeric: Numeric) -> None:
    op, operands = dfg[index].op, dfg[index].operands
    if op in ACCUMULATING or op == "matmul" or dfg[index].is_turned_layer:
        requant_params(dfg, index, numeric)
    elif op == "avg_pool":
        average_params(operator(dfg, index), numeric)
    elif is_affine(dfg, index):
        affine_params(operator(dfg, index))
    elif op in STAGE_OF_OPERATOR:
        unit = STAGE_OF_OPERATOR[op]
        maps = all(access is Access.FULL for access in dfg[index].access)
        computed = maps or all(dfg[i].kind is not Kind.CONST for i in operands)
        if unit.settings is not None and (computed or unit.record is not None):
            unit.settings(operator(dfg, index), numeric)
