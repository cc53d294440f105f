"""Where a quantised model moves integers from one scale to another, say where it rounds them anew.

Plain quantisers give every value a scale of its own: what a Concat joins, what a MaxPool, a Resize
or a Split reads has another one than the result. A machine moves int8 as it is, so the change of
scale becomes a pair of its own in the model, and all that follows (the reference of `--check` as
well) finds it there. No number changes: an operator that only chooses among its operand's numbers
may stand before or behind a monotone rounding, and rounding to the scale that a number has already
changes nothing.

1. In front of each operand of a Concat that is not of the result's scale: a machine writes what it
   rounds right into the joined map.
2. In front of what moves no value, or makes more of them (Reshape, Transpose, Pad, Resize), and of
   a Split whose parts have one scale: the fewest values are rounded, right behind what makes them.
3. Behind what chooses (MaxPool, Slice, Gather, Split, …), which then keeps its operand's scale.
4. A Concat that is read in several scales, or unrounded too, is joined once for each.
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
"""Rounding before or behind them gives the same integers."""


def spell_out_requantisations(model: ir.Model) -> None:
    """Add the pairs, in place. Expects what `load` gives, a QDQ model."""
    before = len(model.graph)
    _Requantising(model.graph).run()
    if len(model.graph) != before:
        fix_names(model)


class _Requantising:
    """known: how a value's numbers are rounded already; wanted: how all that reads a value rounds
    it, what commutes with rounding looked through; pairs: what was added, by value and rounding.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.known = _known(graph)
        self.wanted: dict[ir.Value, QuantParams] = {}
        self.pairs: dict[tuple[ir.Value, QuantParams], ir.Value] = {}

    def run(self) -> None:
        for node in reversed(list(self.graph)):
            if is_standard(node, "Concat"):
                self._concat(node)
            elif is_standard(node, *MOVES_VALUES) and node.op_type != "Relu":
                self._mover(node)
            for value in node.outputs:
                self._note(value)

    def _note(self, value: ir.Value) -> None:
        found = {self._rounding(use.node, use.idx) for use in value.uses()}
        if value.is_graph_output() or len(found) != 1 or None in found:
            self.wanted.pop(value, None)
        else:
            self.wanted[value] = found.pop()  # type: ignore[assignment]  # None is ruled out before

    def _rounding(self, reader: ir.Node, position: int) -> QuantParams | None:
        """How a reader rounds what it reads there."""
        if is_quantize(reader):
            return activation_params(reader)
        if not is_standard(reader, *_COMMUTING) or not _commutes(reader):
            return None
        if position and reader.op_type != "Concat":
            return None
        results = _results(reader)
        found = {self.wanted.get(value) for value in results}
        return found.pop() if len(found) == 1 else None

    def _mover(self, node: ir.Node) -> None:
        """Cases 2 and 3."""
        source, results = node.inputs[0], _results(node)
        have = None if source is None else self.known.get(source)
        if source is None or have is None or not _commutes(node):
            return
        for value in results:
            self._note(value)
        wanted = {self.wanted.get(value) for value in results if value.uses()}
        if len(wanted) == 1 and is_standard(node, *_BEFORE, "Split"):
            (one,) = wanted
            if one is not None:
                if one != have:
                    node.replace_input_with(0, self._rounded(source, one, node))
                return
        for value in results:
            if self.known.get(value) == have and self._changes(value, have):
                self._round(value, have)

    def _changes(self, value: ir.Value, have: QuantParams) -> bool:
        readers = [use.node for use in value.uses()]
        return any(is_quantize(n) and activation_params(n) not in {None, have} for n in readers)

    def _concat(self, node: ir.Node) -> None:
        """Cases 1 and 4."""
        result = node.outputs[0]
        if any(_is_constant(value) for value in node.inputs):
            return  # no machine joins constants
        self._note(result)
        if result in self.known and result not in self.wanted:
            if self._changes(result, self.known[result]):  # joined as it is, then rounded anew
                self._round(result, self.known[result])
        elif result in self.wanted:
            self._join(node, self.wanted[result])
        else:
            for quant in [*self._read_in(result)]:
                self._join_again(node, quant)
            drop_unread(result)

    def _read_in(self, value: ir.Value) -> Iterator[QuantParams]:
        """In which scales a value is read."""
        found = (activation_params(u.node) for u in value.uses() if is_quantize(u.node))
        yield from dict.fromkeys(quant for quant in found if quant is not None)

    def _join_again(self, node: ir.Node, quant: QuantParams) -> None:
        """Another Concat for those who round to this scale, where all that it joins is rounded."""
        if not all(value in self.known for value in node.inputs):
            return
        result = node.outputs[0]
        again = ir.Node("", "Concat", node.inputs, node.attributes.values(), name=node.name)
        joined = again.outputs[0]
        joined.name, joined.type, joined.shape = f"{result.name}/joined", result.type, result.shape
        merge_sources(again, [node])
        self.graph.insert_after(node, again)
        for use in [*result.uses()]:
            if is_quantize(use.node) and activation_params(use.node) == quant:
                use.node.replace_input_with(0, joined)
        self._join(again, quant)

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
        """A pair behind a value, for those that ask for it."""
        key = (value, quant)
        if key not in self.pairs:
            self.pairs[key] = add_pair(value, quant, reader)
        return self.pairs[key]

    def _round(self, value: ir.Value, quant: QuantParams) -> None:
        """A pair behind a value, for all that read it, the model's user included."""
        producer = value.producer()
        assert producer is not None
        replace_after_pair(value, add_pair(value, quant, producer))


def _is_constant(value: ir.Value | None) -> bool:
    """Also behind a DequantizeLinear."""
    node = None if value is None else value.producer()
    return (
        constant(node.inputs[0] if node is not None and is_dequantize(node) else value) is not None
    )


def _is_read_alone(value: ir.Value) -> bool:
    """An input in floats that nothing else reads: it may be rounded in any scale."""
    return value.is_graph_input() and value.dtype is ir.DataType.FLOAT and bool(sole_reader(value))


def add_pair(value: ir.Value, quant: QuantParams, origin: ir.Node) -> ir.Value:
    """QuantizeLinear and DequantizeLinear right behind what makes a value; the result of the
    latter, which nobody reads yet. origin: the node for which it is rounded.
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
    """Whoever reads a value reads the result of its pair (`add_pair`)."""
    pair = rounded.producer()
    quantize = None if pair is None or pair.inputs[0] is None else pair.inputs[0].producer()
    assert quantize is not None
    replace_value(value, rounded)
    quantize.replace_input_with(0, value)


def _results(node: ir.Node) -> list[ir.Value]:
    """Those that are numbers of the operand."""
    return list(node.outputs if node.op_type == "Split" else node.outputs[:1])


def _known(graph: ir.Graph) -> dict[ir.Value, QuantParams]:
    found: dict[ir.Value, QuantParams] = {}
    for node in graph:
        quant = None
        if is_dequantize(node):
            computed = constant(node.inputs[0]) is None
            quant = activation_params(node) if computed else None
        elif is_standard(node, "Concat"):
            all_ = {found.get(value) if value else None for value in node.inputs}
            quant = all_.pop() if len(all_) == 1 else None
        elif is_standard(node, *MOVES_VALUES) and node.inputs[0] in found and _only_moves(node):
            quant = found[node.inputs[0]]
        if quant is not None:
            found.update(dict.fromkeys(_results(node), quant))
    return found


def _commutes(node: ir.Node) -> bool:
    """Whether one of `_COMMUTING` computes no new numbers; a Pad's is rounded as the result is."""
    return node.op_type != "Resize" or repeats(node)


def _only_moves(node: ir.Node) -> bool:
    """Whether all numbers of the result are of the operand, or zero."""
    if not _commutes(node):
        return False
    fill = operand(node, 2) if node.op_type == "Pad" else None
    if fill is None:
        return True
    value = constant(fill)
    return value is not None and not np.any(value)
