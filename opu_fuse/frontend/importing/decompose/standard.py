"""One iteration of all decompositions into standard operators."""

import onnx_ir as ir

from opu_fuse.frontend.importing.decompose.contrib import OF_STANDARD, decompose_contrib
from opu_fuse.frontend.importing.decompose.control_flow import unroll_control_flow
from opu_fuse.frontend.importing.decompose.qonnx import convert_qonnx
from opu_fuse.frontend.importing.decompose.sequences import unroll_sequences
from opu_fuse.frontend.importing.qoperator import convert_to_qdq, has_integer_operators
from opu_fuse.model.operator_sets import BODIES, READS_SEQUENCES
from opu_fuse.model.opsets import STANDARD

_OF_THE_STANDARD = BODIES | READS_SEQUENCES | OF_STANDARD.keys()


def needs_decomposition(model: ir.Model) -> bool:
    """Whether a model may have nodes to decompose."""
    return any(n.domain not in STANDARD or n.op_type in _OF_THE_STANDARD for n in model.graph)


def to_standard(model: ir.Model) -> bool:
    """Run all decompositions once (mutates the model). Return whether a node was replaced.

    If so, names and shapes have to be inferred again. Another iteration may then replace more.
    """
    if not needs_decomposition(model):
        return False
    changed = False
    for form in (unroll_control_flow, unroll_sequences, decompose_contrib, convert_qonnx):
        changed |= form(model)
    if changed and has_integer_operators(model):
        convert_to_qdq(model)
    return changed
