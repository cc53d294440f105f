"""Constant folding, including shape arithmetic and weights of any size."""

import math
import warnings

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    detach,
    is_standard,
    replace_value,
    static_shape,
)
from opu_fuse.frontend.importing.value_checks import mistake_of_numbers
from opu_fuse.model.checked_folding import fold
from opu_fuse.model.folding import can_fold, holds_graphs, is_preserved
from opu_fuse.model.operator_sets import SIZED_BY_NUMBERS
from opu_fuse.model.unused import anything_unused
from opu_fuse.process.sandbox import ForeignError, complaints

_NEVER = frozenset({"Dropout"})
"""Not folded: in training mode it draws random numbers."""
_FEW = 64
"""Elements. A constant that holds sizes is no larger."""
_SIZE_LIMIT = 1 << 40
"""Elements; no limit in practice, since `size_limits` has its own."""


def fold_constants(model: ir.Model, *, largest: int = _SIZE_LIMIT) -> bool:
    """Fold constants (mutates the model). Return whether anything may have been folded.

    Constant nodes become initialisers, and unused nodes are removed. largest: size limit of a
    result in elements; nodes with larger results are not folded. Raises ForeignError if the library
    fails.
    """
    folded = can_fold(model)
    if folded:
        with complaints(), np.errstate(all="ignore"), warnings.catch_warnings():
            # numpy warns about overflow and the like in the user's constants.
            warnings.simplefilter("ignore", RuntimeWarning)
            _fold_single(model, largest)
            while _fold_several(model, largest):
                _fold_single(model, largest)
    if folded or anything_unused(model):  # `folded` is also true for Constant nodes
        lift_constants(model)
        common.RemoveUnusedNodesPass()(model)
        common.RemoveUnusedFunctionsPass()(model)
    return folded


def lift_constants(model: ir.Model) -> None:
    """Replace Constant nodes, also those of subgraphs, by initialisers."""
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def _fold_single(model: ir.Model, largest: int) -> None:
    """Fold nodes with one result, and shape arithmetic, with the library."""
    fold(
        model,
        largest_input=_SIZE_LIMIT,
        largest_output=_SIZE_LIMIT,
        should_fold=lambda node: len(node.outputs) == 1 and _may_fold(node, largest),
    )


def _fold_several(model: ir.Model, largest: int) -> bool:
    """Fold nodes with several results. Return whether any was folded.

    The library does not fold these: Split, TopK, and the batch norm that standardises weights.
    """
    graph, changed = model.graph, False
    for node in list(graph):
        known = all(v is None or constant(v) is not None for v in node.inputs)
        if len(node.outputs) == 1 or not known or not _may_fold(node, largest):
            continue
        for value, data in _results(model, node):
            replace_value(value, add_constant(graph, value.name or "", data))
            changed = True
        if not any(v.uses() or v.is_graph_output() for v in node.outputs):
            detach(node)
    return changed


def _results(model: ir.Model, node: ir.Node) -> list[tuple[ir.Value, np.ndarray]]:
    """(value, data) of the used results of a node on constants, by onnx's reference evaluator.

    Empty if the evaluator cannot compute them.
    """
    from onnx.reference import ReferenceEvaluator  # slow to import

    read = [v for v in node.outputs if v.uses() or v.is_graph_output()]
    if node.op_type in _NEVER or not is_standard(node, node.op_type) or holds_graphs(node):
        return []
    results = [onnx.ValueInfoProto(name=v.name) for v in read]
    graph = onnx.helper.make_graph([ir.to_proto(node)], node.name or "", [], results)
    opsets = [onnx.helper.make_opsetid(*item) for item in model.opset_imports.items()]
    operands = {v.name or "": constant(v) for v in node.inputs if v is not None}
    try:
        with complaints():
            alone = onnx.helper.make_model(graph, opset_imports=opsets)
            arrays = [np.asarray(d) for d in ReferenceEvaluator(alone).run(None, operands)]
    except ForeignError:
        return []
    if any(data.dtype == object for data in arrays):  # strings
        return []
    return list(zip(read, arrays, strict=True))


def _may_fold(node: ir.Node, largest: int) -> bool:
    """Whether a node may be folded.

    An integer division by zero is not folded, although numpy returns a result for it, so that
    `check_network` reports it.
    """
    wrong = is_standard(node, "Div", "Mod") and mistake_of_numbers(node) is not None
    return not wrong and not is_preserved(node) and _bound(node) <= largest


def _bound(node: ir.Node) -> float:
    """Upper bound on the elements of the largest result of a node."""
    shapes = [static_shape(value) for value in node.outputs]
    known = [math.prod(shape) for shape in shapes if shape is not None]
    operands = [data for v in node.inputs if (data := constant(v)) is not None]
    bound = 1.0
    if len(known) < len(shapes):
        for data in operands:
            bound *= max(data.size, 1)
            numbers = data.size <= _FEW and data.dtype.kind in "iuf"
            if numbers and is_standard(node, *SIZED_BY_NUMBERS):
                bound *= float(np.prod(np.maximum(np.abs(data.astype(np.float64)), 1.0)))
    return max([bound, *known])
