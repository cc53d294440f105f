"""Fake-quantised weights: recover int8 weights that a model stores as float `integer * scale`.

Tools for quantisation-aware training export weights in this form. The recovery is lossless: each
output channel needs a scale whose products reproduce its numbers bit for bit.
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
"""Operators that may follow an accumulator before its requantisation on the machine."""
_REACH = 6
"""Largest number of these operators in a chain."""
_LARGEST = 255
"""Largest magnitude of a recovered integer: the distance of an 8-bit integer and its zero point."""
_LOOKED_AT = 32
"""Sampled numbers of a channel that select candidate scales, before all are checked."""
_TOLERANCE = 2.0**-14
"""Bound in steps: a float32 multiple up to 255 of a scale has an error of at most 2^-15 steps."""


def recover_int_weights(model: ir.Model) -> None:
    """Recover the integer weights of a quantised model (mutates it).

    Only layers with a quantised result get them; those on the host do not change. Other readers of
    such a constant still read the float one.
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
            recovered = integer_weight(data, axis)
            name = f"{weight.name}/integers"
            known[weight, axis] = recovered and add_constant(model.graph, name, *recovered)
        if (integers := known[weight, axis]) is not None:
            node.replace_input_with(1, integers)


def _is_weight(node: ir.Node, data: np.ndarray) -> bool:
    flat = is_standard(node, "Gemm", "MatMul")
    fits = data.ndim == 2 if flat else data.ndim >= 3
    return fits and data.dtype == np.float32 and data.size > 0


def _is_rounded(value: ir.Value, reach: int) -> bool:
    """Whether all readers quantise a value or, through `_BETWEEN`, what they compute from it."""
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
    """Integers (int8, or 9 bits in int16) and one scale per index of `axis`.

    Their float32 products equal `data` bit for bit. None if there are no such integers. A channel
    of zeros gets the finest scale of the others, in which its bias is quantised.
    """
    channels_first = np.moveaxis(data, axis, 0)
    rows = channels_first.reshape(len(channels_first), -1)
    nonzero_rows = np.flatnonzero(rows.any(1))
    # Early exit: most weights are arbitrary floats, which their first channel shows.
    if not nonzero_rows.size or _steps(rows[nonzero_rows[:1]]) is None:
        return None
    recovered = _steps(rows[nonzero_rows])
    if recovered is None or not are_scales(recovered[1]):
        return None
    integers = np.zeros(rows.shape, recovered[0].dtype)
    scales = np.full(len(rows), recovered[1].min())
    integers[nonzero_rows], scales[nonzero_rows] = recovered
    shaped = np.ascontiguousarray(np.moveaxis(integers.reshape(channels_first.shape), 0, axis))
    scale = tuple(scales.astype(np.float64).tolist())
    return shaped, QuantParams(scale=scale, axis=axis, bits=8 * shaped.dtype.itemsize)


def _steps(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Integers [rows, numbers] and float32 scales [rows]; None if a row has none."""
    top = np.abs(rows).max(1)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        is_candidate = _multiples(rows, top)
        integers, scales = np.zeros(rows.shape, np.int16), np.zeros(len(rows), np.float32)
        pending_rows = np.arange(len(rows))
        # Multiples in ascending order: the first that reproduces a row gives its coarsest scale.
        while pending_rows.size:
            if not is_candidate[pending_rows].any(1).all():
                return None
            multiple = is_candidate[pending_rows].argmax(1) + 1  # the coarsest untried one
            is_candidate[pending_rows, multiple - 1] = False
            steps, scale, exact = _exactly(rows[pending_rows], top[pending_rows], multiple)
            integers[pending_rows[exact]], scales[pending_rows[exact]] = steps[exact], scale[exact]
            pending_rows = pending_rows[~exact]
    return _finest(integers, scales)


def _multiples(rows: np.ndarray, top: np.ndarray) -> np.ndarray:
    """[rows, multiples]: whether the largest number of a row may be 1, 2, … steps of its scale."""
    probe = rows[:, :: -(-rows.shape[1] // _LOOKED_AT)]
    steps = (probe / top[:, None]).astype(np.float64)[:, None] * np.arange(1, _LARGEST + 1)[:, None]
    return np.asarray((np.abs(steps - np.rint(steps)) <= _TOLERANCE).all(2))


def _exactly(
    rows: np.ndarray, top: np.ndarray, multiple: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integers, scales, and a mask of the rows that their products reproduce.

    The scale is the quotient or one of its float32 neighbours, since the product was rounded.
    """
    quotient = top / multiple.astype(np.float32)
    steps = np.rint(rows / quotient[:, None])
    fits = (np.abs(steps) <= _LARGEST).all(1)
    scales, exact = quotient.copy(), np.zeros(len(rows), bool)
    for scale in (quotient, np.nextafter(quotient, np.float32(0)), np.nextafter(quotient, top)):
        matches = fits & ~exact & (steps * scale[:, None] == rows).all(1)
        scales[matches] = scale[matches]
        exact |= matches
    return steps, scales, exact


def _finest(integers: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Halve each scale as often as int8 holds the integers.

    Rows of few distinct numbers determine only their coarsest scale. The bias is quantised in the
    accumulator's scale, so a finer one loses less of it.
    """
    most = np.abs(integers).max(1)
    halvings = np.floor(np.log2(127 / np.maximum(most, 1))).clip(0).astype(np.int16)
    return narrowed(integers << halvings[:, None]), np.ldexp(scales, -halvings)
