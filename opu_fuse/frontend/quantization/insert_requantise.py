"""Insert an explicit requantisation (a Q/DQ pair) where integers move from one scale to another.

Plain quantisers assign every value its own scale: the operands of a Concat, MaxPool, Resize or
Split have another scale than the result. A machine moves int8 unchanged. So the change of scale
becomes a separate pair in the model, which later passes and the reference of `--check` see. Results
are bit-exact: an operator that only selects values commutes with monotone rounding, and quantising
a value to its own scale is the identity.

1. Before each operand of a Concat with another scale than the result: a machine writes requantised
   values directly into the joined map.
2. Before operators that move no value or add some (Reshape, Transpose, Pad, Resize), and before a
   Split whose parts have one scale: the fewest values are requantised, by their producer.
3. After operators that select (MaxPool, Slice, Gather, Split, …), which then retain their operand's
   scale.
4. A Concat that is read in several scales, or as float too, is duplicated once per scale.
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    drop_unread,
    is_standard,
    merge_sources,
    operand,
    replace_value,
    sole_reader,
)
from opu_fuse.frontend.importing.node_names import fix_names
from opu_fuse.frontend.qdq import activation_params, is_dequantize, is_quantize
from opu_fuse.frontend.quantization.propagate_qparams import repeats
from opu_fuse.model.operator_record import Moves
from opu_fuse.model.operator_sets import MONOTONE, MOVES_VALUES, UNMOVED, moving
from opu_fuse.quant import QuantParams

_BEFORE = UNMOVED | moving(Moves.PERMUTE, Moves.PAD, Moves.REPEAT)
_COMMUTING = MOVES_VALUES | MONOTONE
"""Operators that commute with quantisation: before or after them it gives the same integers."""


def insert_requantisations(model: ir.Model) -> None:
    """Insert the pairs (mutates the model). Expects a QDQ model as `load` returns it."""
    old_size = len(model.graph)
    _Requantising(model.graph).run()
    if len(model.graph) != old_size:
        fix_names(model)


class _Requantising:
    """The state of one pass over a graph.

    known: the quantisation that a value already has.
    wanted: the one quantisation of all readers of a value, seen through commuting operators.
    pairs: results of the inserted pairs, by value and quantisation.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.known = _known(graph)
        self.wanted: dict[ir.Value, QuantParams] = {}
        self.pairs: dict[tuple[ir.Value, QuantParams], ir.Value] = {}

    def run(self) -> None:
        # Readers first: the quantisation that they want is known when their producer is visited.
        for node in reversed(list(self.graph)):
            if is_standard(node, "Concat"):
                self._concat(node)
            elif is_standard(node, *MOVES_VALUES) and node.op_type != "Relu":
                self._mover(node)
            for value in node.outputs:
                self._note(value)

    def _note(self, value: ir.Value) -> None:
        quants = {self._rounding(use.node, use.idx) for use in value.uses()}
        if value.is_graph_output() or len(quants) != 1 or None in quants:
            self.wanted.pop(value, None)
        else:
            self.wanted[value] = quants.pop()  # type: ignore[assignment]  # None is ruled out before

    def _rounding(self, reader: ir.Node, position: int) -> QuantParams | None:
        """The quantisation of a reader's operand `position`; None if it is float or unknown."""
        if is_quantize(reader):
            return activation_params(reader)
        if not is_standard(reader, *_COMMUTING) or not _commutes(reader):
            return None
        if position and reader.op_type != "Concat":
            return None
        results = _results(reader)
        quants = {self.wanted.get(value) for value in results}
        return quants.pop() if len(quants) == 1 else None

    def _mover(self, node: ir.Node) -> None:
        """Cases 2 and 3, for an operator that moves or selects values."""
        source, results = node.inputs[0], _results(node)
        source_quant = None if source is None else self.known.get(source)
        if source is None or source_quant is None or not _commutes(node):
            return
        for value in results:
            self._note(value)
        read = [value for value in results if value.uses() or value.is_graph_output()]
        result_quants = {self.wanted.get(value) for value in read}
        if len(result_quants) == 1 and is_standard(node, *_BEFORE, "Split"):
            (result_quant,) = result_quants
            if result_quant is not None:
                if result_quant != source_quant:
                    node.replace_input_with(0, self._rounded(source, result_quant, node))
                return
        for value in results:
            if self.known.get(value) == source_quant and self._changes(value, source_quant):
                self._round(value, source_quant)

    def _changes(self, value: ir.Value, have: QuantParams) -> bool:
        readers = [use.node for use in value.uses()]
        return any(is_quantize(n) and activation_params(n) not in {None, have} for n in readers)

    def _concat(self, node: ir.Node) -> None:
        """Cases 1 and 4, for a Concat."""
        result = node.outputs[0]
        if any(_is_constant(value) for value in node.inputs):
            return  # no machine joins constants
        self._note(result)
        if result in self.known and result not in self.wanted:
            if self._changes(result, self.known[result]):  # joined first, then requantised
                self._round(result, self.known[result])
        elif result in self.wanted:
            self._join(node, self.wanted[result])
        else:
            for quant in [*self._read_in(result)]:
                self._join_again(node, quant)
            drop_unread(result)

    def _read_in(self, value: ir.Value) -> Iterator[QuantParams]:
        """The quantisations in which a value is read, without duplicates."""
        quants = (activation_params(u.node) for u in value.uses() if is_quantize(u.node))
        yield from dict.fromkeys(quant for quant in quants if quant is not None)

    def _join_again(self, node: ir.Node, quant: QuantParams) -> None:
        """Case 4: add a Concat for the readers of one scale, if all operands are quantised."""
        if not all(value in self.known for value in node.inputs):
            return
        result = node.outputs[0]
        duplicate = ir.Node("", "Concat", node.inputs, node.attributes.values(), name=node.name)
        joined = duplicate.outputs[0]
        joined.name, joined.type, joined.shape = f"{result.name}/joined", result.type, result.shape
        merge_sources(duplicate, [node])
        self.graph.insert_after(node, duplicate)
        for use in [*result.uses()]:
            if is_quantize(use.node) and activation_params(use.node) == quant:
                use.node.replace_input_with(0, joined)
        self._join(duplicate, quant)

    def _join(self, node: ir.Node, quant: QuantParams) -> None:
        changed = False
        for position, value in enumerate(node.inputs):
            if value is None:
                continue
            if self.known.get(value, quant) != quant or _is_read_alone(value):
                node.replace_input_with(position, self._rounded(value, quant, node))
                changed = True
        result = node.outputs[0]
        if changed and not all(is_quantize(use.node) for use in result.uses()):
            self._round(result, quant)

    def _rounded(self, value: ir.Value, quant: QuantParams, reader: ir.Node) -> ir.Value:
        """The result of a pair after a value, shared by all readers with this quantisation."""
        key = (value, quant)
        if key not in self.pairs:
            self.pairs[key] = add_pair(value, quant, reader)
        return self.pairs[key]

    def _round(self, value: ir.Value, quant: QuantParams) -> None:
        """Insert a pair after a value for all its readers, and for a model output."""
        producer = value.producer()
        assert producer is not None
        replace_after_pair(value, add_pair(value, quant, producer))


def _is_constant(value: ir.Value | None) -> bool:
    """Whether a value is constant, possibly after a DequantizeLinear."""
    node = None if value is None else value.producer()
    return (
        constant(node.inputs[0] if node is not None and is_dequantize(node) else value) is not None
    )


def _is_read_alone(value: ir.Value) -> bool:
    """Whether a value is a float input with one reader: it may be quantised in any scale."""
    return value.is_graph_input() and value.dtype is ir.DataType.FLOAT and bool(sole_reader(value))


def add_pair(value: ir.Value, quant: QuantParams, origin: ir.Node) -> ir.Value:
    """Insert QuantizeLinear and DequantizeLinear right after a value's producer.

    Returns the result of the latter, which has no readers yet. origin: the node whose
    source nodes the pair inherits.
    """
    graph = origin.graph
    assert graph is not None
    name, producer = value.name or "value", value.producer()
    scale = add_constant(graph, f"{name}/scale", np.array(quant.per_tensor, np.float32))
    zero = add_constant(graph, f"{name}/zero_point", np.array(quant.zero_point, np.int8))
    quantize = ir.Node("", "QuantizeLinear", [value, scale, zero], name=f"{name}/QuantizeLinear")
    dequantize = ir.Node(
        "",
        "DequantizeLinear",
        [quantize.outputs[0], scale, zero],
        name=f"{name}/DequantizeLinear",
    )
    kinds = (ir.DataType.INT8, ir.DataType.FLOAT)
    for node, kind, ending in zip(
        (quantize, dequantize), kinds, ("integers", "rounded"), strict=True
    ):
        result = node.outputs[0]
        result.name, result.dtype, result.shape = f"{name}/{ending}", kind, value.shape
        merge_sources(node, [origin])
    if producer is None:
        graph.insert_before(graph[0], [quantize, dequantize])
    else:
        graph.insert_after(producer, [quantize, dequantize])
    return dequantize.outputs[0]


def replace_after_pair(value: ir.Value, rounded: ir.Value) -> None:
    """Redirect all readers of a value to the result of its pair (`add_pair`)."""
    pair = rounded.producer()
    quantize = None if pair is None or pair.inputs[0] is None else pair.inputs[0].producer()
    assert quantize is not None
    replace_value(value, rounded)
    quantize.replace_input_with(0, value)


def _results(node: ir.Node) -> list[ir.Value]:
    """The results that consist of values of the operand."""
    return list(node.outputs if node.op_type == "Split" else node.outputs[:1])


def _known(graph: ir.Graph) -> dict[ir.Value, QuantParams]:
    known: dict[ir.Value, QuantParams] = {}
    for node in graph:
        quant = None
        if is_dequantize(node):
            computed = constant(node.inputs[0]) is None
            quant = activation_params(node) if computed else None
        elif is_standard(node, "Concat"):
            operand_quants = {known.get(value) if value else None for value in node.inputs}
            quant = operand_quants.pop() if len(operand_quants) == 1 else None
        elif is_standard(node, *MOVES_VALUES) and node.inputs[0] in known and _only_moves(node):
            quant = known[node.inputs[0]]
        if quant is not None:
            known.update(dict.fromkeys(_results(node), quant))
    return known


def _commutes(node: ir.Node) -> bool:
    """Whether a node of `_COMMUTING` computes no new values; a Pad's fill is quantised too."""
    return node.op_type != "Resize" or repeats(node)


def _only_moves(node: ir.Node) -> bool:
    """Whether all values of the result are values of the operand, or zero."""
    if not _commutes(node):
        return False
    fill = operand(node, 2) if node.op_type == "Pad" else None
    if fill is None:
        return True
    value = constant(fill)
    return value is not None and not np.any(value)
