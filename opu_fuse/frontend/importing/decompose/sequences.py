"""Replaces sequences of static length by their tensors: a SplitToSequence becomes a Split.

PyTorch exports `unbind`, `chunk` and `split` as sequences. Nodes with a dynamic length or index are
left unchanged.
"""

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import constant, detach, is_standard, operand, static_shape
from opu_fuse.frontend.importing.decompose.replacement import Replacement, is_read
from opu_fuse.model.operator_sets import MAKES_SEQUENCES, READS_SEQUENCES

_LONGEST = 4096
"""Largest count of elements in a sequence."""

Elements = list[ir.Value]


def unroll_sequences(model: ir.Model) -> bool:
    """Replace static sequences (mutates the model). Return whether a node was replaced.

    Names and shapes have to be inferred again afterwards.
    """
    known: dict[ir.Value, Elements] = {}
    makers, changed = [], False
    for node in list(model.graph):
        if is_standard(node, *MAKES_SEQUENCES):
            if (elements := _elements(node, known)) is not None:
                known[node.outputs[0]] = elements
                makers.append(node)
        elif is_standard(node, *READS_SEQUENCES) and (sequence := operand(node, 0)) in known:
            changed |= _read(Replacement(node), known[sequence])
    for node in reversed(makers):
        if not is_read(node.outputs[0]):
            detach(node)
    return changed


def _elements(node: ir.Node, known: dict[ir.Value, Elements]) -> Elements | None:
    """Elements of the sequence that a node returns; None if they are not static."""
    if node.op_type == "SplitToSequence":
        return _parts(node)
    if node.op_type in {"SequenceConstruct", "SequenceEmpty"}:
        return [value for value in node.inputs if value is not None]
    source = node.inputs[0]
    if source is None or source not in known:
        return None
    inserts = node.op_type == "SequenceInsert"
    elements, index = list(known[source]), operand(node, 1 + inserts)
    at = len(elements) - (not inserts) if index is None else _place(index, len(elements) + inserts)
    if at is None:
        return None
    if inserts:
        value = operand(node, 1)
        return None if value is None else [*elements[:at], value, *elements[at:]]
    return [*elements[:at], *elements[at + 1 :]]


def _place(value: ir.Value | None, count: int) -> int | None:
    """Constant index into `count` elements; None if it is computed or out of bounds.

    A negative index counts from the end.
    """
    data = constant(value)
    if data is None or data.size != 1 or not -count <= data.item() < count:
        return None
    return int(data.item()) % count


def _parts(node: ir.Node) -> Elements | None:
    """Results of a new Split that is equivalent to a SplitToSequence; None if not static."""
    s = Replacement(node)
    size, axis = static_shape(operand(node, 0)), node.attributes.get_int("axis", 0)
    if size is None or not -len(size) <= axis < len(size) or not is_read(node.outputs[0]):
        return None
    lengths = _lengths(node, size[axis])
    if lengths is None or not 0 < len(lengths) <= _LONGEST or sum(lengths) != size[axis]:
        return None
    parts = s.make_several(
        "Split",
        len(lengths),
        s.operand(0),
        s.constant(np.asarray(lengths, np.int64)),
        name=node.name,
        axis=axis,
    )
    if s.has(1) or node.attributes.get_int("keepdims", 1):
        return list(parts)
    axes = s.constant(np.asarray([axis], np.int64))
    return [s.make("Squeeze", part, axes) for part in parts]


def _lengths(node: ir.Node, whole: int) -> list[int] | None:
    """Lengths of the parts: as listed, equal (the last may be shorter), or 1 each.

    None if they are computed or invalid. whole: size of the axis.
    """
    if operand(node, 1) is None:
        return [1] * whole if whole <= _LONGEST else None
    split = constant(operand(node, 1))
    if split is None or np.any(split < 0) or split.ndim > 1:
        return None
    if split.ndim:
        return split.tolist()
    length = int(split.item())
    if length < 1 or whole > length * _LONGEST:
        return None
    return [min(length, whole - start) for start in range(0, whole, length)]


def _read(s: Replacement, elements: Elements) -> bool:
    """Replace a node that reads a sequence. Returns False if its index is not static."""
    match s.node.op_type:
        case "SequenceLength":
            result = s.constant(np.asarray(len(elements), np.int64))
        case "SequenceAt":
            at = _place(operand(s.node, 1), len(elements))
            if at is None:
                return False
            result = elements[at]
        case _:
            if not elements or (joined := _joined(s, elements)) is None:
                return False
            result = joined
    if s.node.outputs[0].is_graph_output():  # both keep their names
        result = s.make("Identity", result)
    s.replace(result)
    return True


def _joined(s: Replacement, elements: Elements) -> ir.Value | None:
    axis = s.node.attributes.get_int("axis", 0)
    if s.node.attributes.get_int("new_axis", 0):
        axes = s.constant(np.asarray([axis], np.int64))
        elements = [s.make("Unsqueeze", value, axes) for value in elements]
    return s.make("Concat", *elements, name=s.node.name, axis=axis)
