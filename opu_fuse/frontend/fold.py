"""Compute what does not depend on the input: constants, shape arithmetic, weights of any size."""

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.folding import PRESERVED, can_fold

_SIZE_LIMIT = 1 << 40


def fold_constants(model: ir.Model) -> bool:
    """Fold in place; Constant nodes become initialisers, nodes nobody reads go. Returns whether
    anything may have been folded.
    """
    folded = can_fold(model)
    if folded:
        from onnxscript import optimizer  # slow to import

        optimizer.fold_constants(
            model,
            onnx_shape_inference=False,
            input_size_limit=_SIZE_LIMIT,
            output_size_limit=_SIZE_LIMIT,
            should_fold=lambda node: node.op_type not in PRESERVED,
        )
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedFunctionsPass()(model)
    return folded
