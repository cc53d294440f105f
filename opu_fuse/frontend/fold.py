"""Compute what does not depend on the input: constants, shape arithmetic, weights of any size."""

import math
import warnings

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.frontend.editing import constant, is_standard, static_shape
from opu_fuse.frontend.numbers import mistake_of_numbers
from opu_fuse.model.folding import can_fold, is_preserved
from opu_fuse.model.unused import anything_unused
from opu_fuse.process.foreign import complaints

_ENLARGING = (
    *("AffineGrid", "BlackmanWindow", "CenterCropPad", "Col2Im", "ConstantOfShape", "DFT"),
    *("Expand", "EyeLike", "HammingWindow", "HannWindow", "MelWeightMatrix", "OneHot", "Pad"),
    *("Range", "Resize", "STFT", "Tile", "Upsample"),
)
"""The size of what they make stands in the numbers they read."""
_FEW = 64
"""Elements; what sizes are written in is no larger."""
_SIZE_LIMIT = 1 << 40


def fold_constants(model: ir.Model, *, largest: int = _SIZE_LIMIT) -> bool:
    """Fold in place; Constant nodes become initialisers, nodes nobody reads go. Returns whether
    anything may have been folded.

    largest: elements that a constant may have; nodes that make larger ones stay. Raises
    ForeignError where the library fails.
    """
    folded = can_fold(model)
    if folded:
        from onnxscript import optimizer  # slow to import

        with complaints(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, on the user's numbers
            optimizer.fold_constants(
                model,
                onnx_shape_inference=False,
                input_size_limit=_SIZE_LIMIT,
                output_size_limit=_SIZE_LIMIT,
                should_fold=lambda node: _may_fold(node) and _bound(node) <= largest,
            )
    if folded or anything_unused(model):  # Constant nodes may be folded
        lift_constants(model)
        common.RemoveUnusedNodesPass()(model)
        common.RemoveUnusedFunctionsPass()(model)
    return folded


def lift_constants(model: ir.Model) -> None:
    """Constant nodes become initialisers, in place, those of graphs inside nodes too."""
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def _may_fold(node: ir.Node) -> bool:
    """Numpy has an answer where integers are divided by zero; `check_network` is to see these."""
    wrong = is_standard(node, "Div", "Mod") and mistake_of_numbers(node) is not None
    return not wrong and not is_preserved(node)


def _bound(node: ir.Node) -> float:
    """At most so many elements has the largest result."""
    shapes = [static_shape(value) for value in node.outputs]
    known = [math.prod(shape) for shape in shapes if shape is not None]
    operands = [data for v in node.inputs if (data := constant(v)) is not None]
    bound = 1.0
    if len(known) < len(shapes):
        for data in operands:
            bound *= max(data.size, 1)
            if is_standard(node, *_ENLARGING) and data.size <= _FEW and data.dtype.kind in "iuf":
                bound *= float(np.prod(np.maximum(np.abs(data.astype(np.float64)), 1.0)))
    return max([bound, *known])
