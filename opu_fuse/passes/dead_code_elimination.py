"""DeadCodeElimination: what no output depends on goes."""

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.passes.base import is_skipped
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.decorators import module_pass
from opu_fuse.passes.fingerprint import measured_change
from opu_fuse.passes.registry import register


@register
@module_pass(name="DeadCodeElimination", opt_level=1)
def dead_code_elimination(model: ir.Model, _: PassContext) -> tuple[ir.Model, bool]:
    """Dead code elimination of onnx_ir: nodes, optional outputs, constants, functions nobody calls.

    Inputs of the model stay, read or not. Skipped functions keep their nodes, but an uncalled one
    goes as a whole.
    """
    return measured_change(model, lambda: _remove_unused(model))


def _remove_unused(model: ir.Model) -> ir.Model:
    for function in (model, *model.functions.values()):
        if not is_skipped(function.graph):
            alone = ir.Model(function.graph, ir_version=model.ir_version)
            common.RemoveUnusedNodesPass()(alone)
    common.RemoveUnusedFunctionsPass()(model)
    return model
