"""Weights that were rounded, but are written as real numbers: a tool that simulates int8 hands over
`integer * scale`. Where each output channel has a scale that gives its numbers to the bit, these
integers are the weight, and nothing is lost.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    operand,
    output_axis,
    quant_of,
    standard_nodes,
)
from opu_fuse.frontend.importing.value_checks import are_scales
from opu_fuse.frontend.qdq import is_quantize
from opu_fuse.model.operator_sets import AFFINE, MONOTONE, WEIGHTED
from opu_fuse.quant import QuantParams, narrowed

_BETWEEN = AFFINE | MONOTONE
"""What may stand between a sum and its rounding on the machine."""
_REACH = 6
"""So many of them, one behind the other."""
_LARGEST = 255
"""Of the integers: what the largest number of a channel may be a multiple of. Between an integer of
8 bits and its zero point lie as many.
"""
_LOOKED_AT = 32
"""Numbers of a channel by which scales are chosen, before all are looked at."""
_TOLERANCE = 2.0**-14
"""A multiple up to 255 of a scale, computed in float32, is off by 2^-15 of a step at most."""


def unbake(model: ir.Model) -> None:
    """Give the weights of a quantised model their integers back, in place. Only where what is
    computed of them is rounded: the host's part stays as it is. Who else reads such a constant
    reads real numbers as before.
    """
    known: dict[tuple[ir.Value, int], ir.Value | None] = {}
    for node in standard_nodes(model.graph, *WEIGHTED):
        weight = operand(node, 1)
        data, axis = constant(weight), output_axis(node)
        if weight is None or data is None or not _is_weight(node, data):
            continue
        if quant_of(weight) is not None or not _is_rounded(node.outputs[0], _REACH):
            continue
        if (weight, axis) not in known:
            found = integer_weight(data, axis)
            name = f"{weight.name}/integers"
            known[weight, axis] = found and add_constant(model.graph, name, *found)
        if (integers := known[weight, axis]) is not None:
            node.replace_input_with(1, integers)


def _is_weight(node: ir.Node, data: np.ndarray) -> bool:
    flat = is_standard(node, "Gemm", "MatMul")
    fits = data.ndim == 2 if flat else data.ndim >= 3
    return fits and data.dtype == np.float32 and data.size > 0


def _is_rounded(value: ir.Value, reach: int) -> bool:
    """Whether all that read a value round it, or what they make of it."""
    readers = [use.node for use in value.uses()]
    return (
        bool(readers and reach)
        and not value.is_graph_output()
        and all(
            is_quantize(n) or (is_standard(n, *_BETWEEN) and _is_rounded(n.outputs[0], reach - 1))
            for n in readers
        )
    )


def integer_weight(data: np.ndarray, axis: int) -> tuple[np.ndarray, QuantParams] | None:
    """int8, or int16 of 9 bits, and one scale for each place of an axis whose products, in float32,
    are these numbers; None where there are none.

    A channel of zeros takes the finest scale of the others: its bias is rounded by it.
    """
    turned = np.moveaxis(data, axis, 0)
    rows = turned.reshape(len(turned), -1)
    alive = np.flatnonzero(rows.any(1))
    # Most weights are floats of any kind: their first channel tells.
    if not alive.size or _steps(rows[alive[:1]]) is None:
        return None
    found = _steps(rows[alive])
    if found is None or not are_scales(found[1]):
        return None
    integers = np.zeros(rows.shape, found[0].dtype)
    scales = np.full(len(rows), found[1].min())
    integers[alive], scales[alive] = found
    shaped = np.ascontiguousarray(np.moveaxis(integers.reshape(turned.shape), 0, axis))
    scale = tuple(scales.astype(np.float64).tolist())
    return shaped, QuantParams(scale=scale, axis=axis, bits=8 * shaped.dtype.itemsize)


def _steps(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Integers of the same shape and float32 scales [rows]; None where a row has none."""
    top = np.abs(rows).max(1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        can = _multiples(rows, top)
        integers, scales = np.zeros(rows.shape, np.int16), np.zeros(len(rows), np.float32)
        left = np.arange(len(rows))
        while left.size:
            if not can[left].any(1).all():
                return None
            multiple = can[left].argmax(1) + 1  # the coarsest that was not tried
            can[left, multiple - 1] = False
            steps, scale, exact = _exactly(rows[left], top[left], multiple)
            integers[left[exact]], scales[left[exact]] = steps[exact], scale[exact]
            left = left[~exact]
    return _finest(integers, scales)


def _multiples(rows: np.ndarray, top: np.ndarray) -> np.ndarray:
    """[rows, multiples]: whether the largest number may be so many steps (1, 2, …)."""
    some = rows[:, :: -(-rows.shape[1] // _LOOKED_AT)]
    steps = (some / top[:, None]).astype(np.float64)[:, None] * np.arange(1, _LARGEST + 1)[:, None]
    return np.asarray((np.abs(steps - np.rint(steps)) <= _TOLERANCE).all(2))


def _exactly(
    rows: np.ndarray, top: np.ndarray, multiple: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integers, scales, and which rows are their products. The scale is the quotient, or a
    neighbour of it: the product was rounded.
    """
    about = top / multiple.astype(np.float32)
    steps = np.rint(rows / about[:, None])
    fits = (np.abs(steps) <= _LARGEST).all(1)
    scales, exact = about.copy(), np.zeros(len(rows), bool)
    for scale in (about, np.nextafter(about, np.float32(0)), np.nextafter(about, top)):
        right = fits & ~exact & (steps * scale[:, None] == rows).all(1)
        scales[right] = scale[right]
        exact |= right
    return steps, scales, exact


def _finest(integers: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Halved as long as int8 holds the integers: of few numbers the coarsest scale is known only,
    and sums, to which a bias is rounded, have it too.
    """
    most = np.abs(integers).max(1)
    halvings = np.floor(np.log2(127 / np.maximum(most, 1))).clip(0).astype(np.int16)
    return narrowed(integers << halvings[:, None]), np.ldexp(scales, -halvings)
