"""Compute what does not depend on the input: constants, shape arithmetic, weights of any size."""

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

_SIZE_LIMIT = 1 << 40
_KEEP = frozenset({"QuantizeLinear", "DequantizeLinear"})
"""These carry scales and zero points, which absorbing needs."""


def fold_constants(model: ir.Model) -> None:
    """Fold in place; Constant nodes become initialisers, nodes nobody reads go."""
    optimizer.fold_constants(
        model,
        onnx_shape_inference=False,
        input_size_limit=_SIZE_LIMIT,
        output_size_limit=_SIZE_LIMIT,
        should_fold=lambda node: node.op_type not in _KEEP,
    )
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.RemoveUnusedNodesPass()(model)
    common.RemoveUnusedFunctionsPass()(model)
