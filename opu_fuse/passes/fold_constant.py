"""FoldConstant: what does not depend on the model's inputs is computed now."""

import onnx_ir as ir
from msgspec import Struct
from onnx_ir.passes import common

from opu_fuse.model.checked_folding import fold
from opu_fuse.model.folding import can_fold
from opu_fuse.passes.base import is_skipped
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.fingerprint import measured_change
from opu_fuse.passes.registry import module_pass, register
from opu_fuse.passes.sealing import is_annotated, sealed


@register
@module_pass(name="FoldConstant", opt_level=2)
class FoldConstant(Struct, frozen=True, kw_only=True):
    """Constant folding of onnxscript, with its partial evaluations (Shape, Identity, Concat, …).

    Results are initialisers in the main graph and the graphs inside its nodes, Constant nodes in
    functions (which have no initialisers). What nobody reads then is left to DeadCodeElimination.
    largest_input, largest_output: elements up to which a constant is folded, or created; a node
    whose result is no larger than the constants it replaces is folded whatever its size. Nodes that
    touch annotated values (their integers are not the numbers they represent) and nodes of
    skipped functions are not folded.
    """

    largest_input: int = 8192
    largest_output: int = 512 * 512

    def transform_module(self, model: ir.Model, _: PassContext) -> tuple[ir.Model, bool]:
        if not can_fold(model):
            return model, False
        untouchable = _untouchable(model)
        if not can_fold(model, untouchable):
            return model, False
        with sealed(untouchable):
            return measured_change(model, lambda: self._fold(model))

    def _fold(self, model: ir.Model) -> ir.Model:
        fold(model, largest_input=self.largest_input, largest_output=self.largest_output)
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        return model


def _untouchable(model: ir.Model) -> dict[ir.Node, str]:
    functions = list(model.functions.values())
    results = [n for f in functions if is_skipped(f) for n in f.graph.all_nodes()]
    for graph in (model.graph, *(f.graph for f in functions)):
        skip = graph is model.graph and is_skipped(graph)
        results += [node for node in graph.all_nodes() if skip or is_annotated(node)]
    return dict.fromkeys(results, "constant")
