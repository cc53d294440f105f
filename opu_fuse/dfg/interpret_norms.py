"""Norms in the golden model: from registers and parameters of the unit to `normalisation.py`."""

from collections.abc import Mapping

import numpy as np

from opu_fuse import normalisation
from opu_fuse.dfg.graph import Dfg, Node
from opu_fuse.dfg.integer import quant_of, settings
from opu_fuse.normalisation import BY_ROWS, QUARTERS, OutputScale
from opu_fuse.units import STAGE_OF_OPERATOR
from opu_fuse.units.base import Stage
from opu_fuse.units.norm_pass import epsilon_of
from opu_fuse.units.operator import Numeric


def softmax(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], _numeric: Numeric
) -> np.ndarray:
    """A softmax of the channels of each pixel, or of each quarter of them."""
    x, y = quant_of(dfg[node.operands[0]]), quant_of(node)
    table, output = normalisation.exponentials(x.per_tensor), OutputScale.of(y.per_tensor)
    rows = np.moveaxis(values[node.operands[0]], 1, -1)
    parts = rows.reshape(*rows.shape[:-1], QUARTERS if node.op == "grouped_softmax" else 1, -1)
    result = normalisation.softmax(parts, table, output, y.zero_point).reshape(rows.shape)
    return np.moveaxis(result, -1, 1)


def layer_norm(
    dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric
) -> np.ndarray:
    """A LayerNorm or RMSNorm of the channels of each pixel, or a GroupNorm of each map or row."""
    own = settings(dfg, node.index, Stage.NORM, numeric)
    zero, epsilon = own.passes[0]["norm_zero"], epsilon_of(own.passes[0])
    rows = np.moveaxis(values[node.operands[0]], 1, -1).astype(np.int64)
    axes = (2, 3) if BY_ROWS in node.attrs else (1, 2, 3) if node.op == "group_norm" else -1
    squares = ((rows - zero) ** 2).sum(axes, keepdims=True)
    count = rows.size // squares.size
    if node.op == "rms_norm":
        scaling = normalisation.rms_scaling(count, zero, squares, epsilon)
    else:
        total = rows.sum(axes, keepdims=True)
        scaling = normalisation.norm_scaling(count, total, squares, epsilon)
    record = np.array(list(own.per_channel or ()), STAGE_OF_OPERATOR[node.op].record)
    mult, bias, shift = (record[name].astype(np.int64) for name in ("gain", "offset", "gain_shift"))
    zero = own.registers["norm_zero"]
    result = normalisation.normalise(
        rows, scaling, mult=mult, bias=bias, shift=shift, zero_point=zero
    )
    return np.moveaxis(result, -1, 1)


def divide(dfg: Dfg, node: Node, values: Mapping[int, np.ndarray], numeric: Numeric) -> np.ndarray:
    """The channels of each pixel, divided by the first."""
    own, x = settings(dfg, node.index, Stage.NORM, numeric), quant_of(dfg[node.operands[0]])
    table = normalisation.divisors(x.per_tensor, float(node.attrs["epsilon"]))
    record = np.array(list(own.per_channel or ()), STAGE_OF_OPERATOR[node.op].record)
    mult, shift = int(record["gain"][0]), int(record["gain_shift"][0])
    rows = np.moveaxis(values[node.operands[0]], 1, -1)
    zero = own.registers["norm_zero"]
    result = normalisation.divide(rows, table, mult=mult, shift=shift, zero_point=zero)
    return np.moveaxis(result, -1, 1)
