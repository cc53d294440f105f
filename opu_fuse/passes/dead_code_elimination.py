"""DeadCodeElimination: what no output depends on goes."""

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.model.unused import anything_unused
from opu_fuse.passes.base import is_skipped
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.registry import module_pass, register


@register
@module_pass(name="DeadCodeElimination", opt_level=1)
def dead_code_elimination(model: ir.Model, _: PassContext) -> tuple[ir.Model, bool]:
    """Dead code elimination of onnx_ir: nodes, optional outputs, constants, functions nobody calls.

    Inputs of the model remain, read or not. Skipped functions keep their nodes, but an uncalled one
    goes as a whole.
    """
    if not anything_unused(model):
        return model, False
    before = _structure(model)
    _remove_unused(model)
    return model, _structure(model) != before


def _structure(model: ir.Model) -> list[object]:
    """Everything that elimination may change: functions, nodes, their operands and results,
    attributes, constants. Much less than `measured_change` looks at, for the pass that runs most.
    """
    collected: list[object] = [*model.functions]
    for graph in (model.graph, *(f.graph for f in model.functions.values())):
        collected += graph.initializers
        for node in graph.all_nodes():
            results = [value.name for value in node.outputs]
            collected.append((node, len(node.inputs), results, [*node.attributes]))
    return collected


def _remove_unused(model: ir.Model) -> None:
    for function in (model, *model.functions.values()):
        if not is_skipped(function.graph):
            alone = ir.Model(function.graph, ir_version=model.ir_version)
            common.RemoveUnusedNodesPass()(alone)
    common.RemoveUnusedFunctionsPass()(model)
