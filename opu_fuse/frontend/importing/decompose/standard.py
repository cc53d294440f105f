"""One iteration of all decompositions into standard operators."""

import onnx_ir as ir

from opu_fuse.frontend.importing.decompose.contrib import spell_out_contrib
from opu_fuse.frontend.importing.decompose.control_flow import spell_out_control_flow
from opu_fuse.frontend.importing.decompose.qonnx import spell_out_qonnx
from opu_fuse.frontend.importing.decompose.sequences import spell_out_sequences
from opu_fuse.frontend.importing.qoperator import has_integer_operators, spell_out
from opu_fuse.model.operator_sets import BODIES, READS_SEQUENCES
from opu_fuse.model.opsets import STANDARD

_OF_THE_STANDARD = BODIES | READS_SEQUENCES


def is_to_spell_out(model: ir.Model) -> bool:
    """Whether a model may have nodes to decompose."""
    return any(n.domain not in STANDARD or n.op_type in _OF_THE_STANDARD for n in model.graph)


def to_standard(model: ir.Model) -> bool:
    """Run all decompositions once, in place. Return whether a node was replaced.

    If so, names and shapes have to be inferred again. Another iteration may then replace more.
    """
    if not is_to_spell_out(model):
        return False
    changed = False
    for form in (spell_out_control_flow, spell_out_sequences, spell_out_contrib, spell_out_qonnx):
        changed |= form(model)
    if changed and has_integer_operators(model):
        spell_out(model)
    return changed
