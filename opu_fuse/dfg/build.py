"""From the canonical model to the data-flow graph.

One iterative traversal of the values, in linear time. Every value appears once, after its operands,
in post-DFS order from the model's outputs (operands visited in operand order). Values that no
output needs do not appear, except unused inputs, which come last.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node, users_of
from opu_fuse.dfg.indexing import bias_access
from opu_fuse.dfg.io_ports import input_border, output_border
from opu_fuse.dfg.lower_node import Lowered, const_array, lower, shape_of
from opu_fuse.dfg.value_types import type_of
from opu_fuse.errors import ModelError
from opu_fuse.model.composites import composites
from opu_fuse.model.interpolation import interpolation
from opu_fuse.model.names import known_names, own_name
from opu_fuse.model.norms import Norm, machine_norm
from opu_fuse.model.preprocessing import preprocessing
from opu_fuse.model.shifts import shifts
from opu_fuse.quant import META_KEY, NORMS_KEY, PREQUANTISED_KEY, UNROUNDED_KEY

TENSOR_KEY = "opu_fuse.tensor"
SOURCE_KEY = "opu_fuse.source"
KEEPS_INTEGERS = frozenset(
    {"reshape", "max_pool", "relu", "upsample", "shuffle", "permute", "split"}
)
"""Operators whose result needs no rounding of its own: without a following QuantizeLinear, they
forward their operand's integers.
"""


def build_dfg(canonical: ir.Model, *, quantised: bool = False) -> Dfg:
    """The DFG of a canonical model (quantised or float: the structure is the same).

    quantised: it is one although none of its values may be rounded. Raises ModelError when an
    output of the model is computed by nothing.
    """
    return _Builder(canonical, quantised).build()


class _Builder:
    """Invariant: `index[v]` is the index of the node of value v; operands precede their users."""

    def __init__(self, model: ir.Model, quantised: bool) -> None:
        self.graph = model.graph
        self.known = known_names(model)
        self.norms: frozenset[str] = model.graph.meta.get(NORMS_KEY, frozenset())
        self.prequantised = model.meta.get(PREQUANTISED_KEY) is not False
        self.quantised = quantised or any(META_KEY in v.meta for v in _values(model.graph))
        self.nodes: list[Node] = []
        self.index: dict[ir.Value, int] = {}
        self.calls: dict[ir.Node, int] = {}
        self.lowered: dict[ir.Node, Lowered] = {}
        self.composites = {**composites(model.graph), **shifts(model.graph)}
        taken = {node for whole in self.composites.values() for node in whole.nodes}
        floating = not self.quantised
        known = preprocessing(model.graph)
        entries = [
            input_border(v, taken, known.get(v, ()), floating=floating) for v in self.graph.inputs
        ]
        self.entries = {border.value: border for border in entries if border}
        taken |= {node for border in self.entries.values() for node in border.nodes}
        self.inside = [b.value if b else v for v, b in zip(self.graph.inputs, entries, strict=True)]
        self.exits = tuple(output_border(v, taken, floating=floating) for v in self.graph.outputs)

    def build(self) -> Dfg:
        ends = [b.value if b else v for v, b in zip(self.graph.outputs, self.exits, strict=True)]
        for value in (*ends, *self.inside):
            self._visit(value)
        inputs = [v for v in self.inside if self._is_var(v)]
        return Dfg(
            name=self.graph.name or "model",
            nodes=tuple(self.nodes),
            users=users_of(self.nodes),
            inputs=tuple(self.index[v] for v in inputs),
            outputs=tuple(self.index[v] for v in ends),
            entries=tuple(self.entries.get(v) for v in inputs),
            exits=self.exits,
            quantised=self.quantised,
            prequantised=self.prequantised,
        )

    def _is_var(self, value: ir.Value) -> bool:
        return self.nodes[self.index[value]].kind is Kind.VAR

    def _visit(self, root: ir.Value) -> None:
        stack = [(root, False)]
        while stack:
            value, ready = stack.pop()
            if value in self.index:
                continue
            if ready:
                self._emit(value)
                continue
            stack.append((value, True))
            operands = self._operands(value)
            stack.extend([(v, False) for v in reversed(operands) if v not in self.index])

    def _operands(self, value: ir.Value) -> tuple[ir.Value, ...]:
        producer = value.producer()
        if producer is None or const_array(value) is not None or value in self.entries:
            return ()
        if producer not in self.lowered:
            self.lowered[producer] = self._lower(producer)
        return self.lowered[producer].operands

    def _lower(self, node: ir.Node) -> Lowered:
        whole = self.composites.get(node)
        norm = machine_norm(node, whole, self.norms) if self.norms else None
        if norm is not None:
            return _lowered_norm(norm)
        linear = interpolation(node, self.norms)
        if linear is not None:
            operands, access = (linear.source, linear.taps), (Access.FULL, Access.PER_CHANNEL)
            return Lowered(
                op="transposed_conv", operands=operands, access=access, attrs=linear.attrs
            )
        if whole is None:
            return lower(node)
        access = (Access.FULL,)
        return Lowered(op=whole.op, operands=(whole.source,), access=access, attrs=whole.attrs)

    def _emit(self, value: ir.Value) -> None:
        data = const_array(value)
        producer = value.producer()
        if data is not None:
            self._add(Kind.CONST, value, const=data, shape=data.shape)
        elif value in self.entries:
            known = {"name": self.entries[value].name, "quant": self.entries[value].quant}
            self._add(Kind.VAR, value, shape=shape_of(value), type=type_of(value), **known)
        elif producer is None:
            if not value.is_graph_input():
                raise ModelError(
                    f"value {value.name!r}",
                    "nothing computes it",
                    "check the model with onnx.checker",
                )
            self._add(Kind.VAR, value, shape=shape_of(value), type=type_of(value))
        elif len(producer.outputs) > 1:
            self._emit_part(value, producer)
        else:
            self._emit_call(value, producer)

    def _emit_part(self, value: ir.Value, producer: ir.Node) -> None:
        """One result of an operator with several: a tuple_get on its call."""
        if producer not in self.calls:
            self.calls[producer] = self._append(
                self._call(producer, self._operand_indices(producer))
            )
        call = self.nodes[self.calls[producer]]
        self._add(
            Kind.TUPLE_GET,
            value,
            operands=(call.index,),
            attrs={"index": value.index() or 0},
            shape=shape_of(value),
            type=type_of(value),
            **self._rounding(value, call.op, call.operands),
        )

    def _emit_call(self, value: ir.Value, producer: ir.Node) -> None:
        lowered = self.lowered[producer]
        operands = self._operand_indices(producer)
        if lowered.op == "concat":
            name = f"{producer.name}/operands"
            operands = (self._append({"kind": Kind.TUPLE, "name": name, "operands": operands}),)
        call = self._call(producer, operands)
        rounding = self._rounding(value, lowered.op, operands)
        if lowered.bias is None:
            call.update(rounding)
            self.index[value] = self._append(call)
            return
        conv = self._append({**call, "value": f"{value.name}/acc"})
        self._visit(lowered.bias)
        call.update(
            rounding,
            name=f"{producer.name}/bias",
            op="add",
            operands=(conv, self.index[lowered.bias]),
            access=(Access.FULL, bias_access(call["shape"])),
            attrs={},
            owner=conv,
        )
        self.index[value] = self._append(call)

    def _rounding(self, value: ir.Value, op: str, operands: tuple[int, ...]) -> dict[str, Any]:
        """Fields about the quantisation of a value computed from these operands."""
        result = _rounding(value)
        if result["quant"] is None and op in KEEPS_INTEGERS:
            result["quant"] = self.nodes[operands[0]].quant
        return result

    def _operand_indices(self, producer: ir.Node) -> tuple[int, ...]:
        return tuple([self.index[v] for v in self.lowered[producer].operands])

    def _call(self, producer: ir.Node, operands: tuple[int, ...]) -> dict[str, Any]:
        """Fields of the call for a canonical node, all but the quantisation."""
        lowered = self.lowered[producer]
        outputs = producer.outputs
        single = outputs[0] if len(outputs) == 1 else None
        whole = self.composites.get(producer)
        body = whole.nodes if whole else ()
        source = [s for n in body or (producer,) for s in sources_of(n)]
        return {
            "kind": Kind.CALL,
            "name": producer.name or "",
            "op": lowered.op,
            "operands": operands,
            "access": lowered.access,
            "shape": shape_of(single) if single else (),
            "type": type_of(single) if single else None,
            "value": (single.name or "") if single else "",
            "attrs": lowered.attrs,
            "source": tuple(dict.fromkeys(source)),
            "own": own_name(producer, producer.name or "", source, self.known),
            "ir_node": producer,
            "body": body,
        }

    def _add(self, kind: Kind, value: ir.Value, **fields: Any) -> None:
        name = value.name or ""
        known = {"kind": kind, "name": name, "value": name, "own": self._own(value)}
        self.index[value] = self._append(known | _rounding(value) | fields)

    def _own(self, value: ir.Value) -> str:
        """The user's name of a value: its own, or that of the node that computes it."""
        name, producer = value.name or "", value.producer()
        if self.known is None or name in self.known:
            return name
        if UNROUNDED_KEY in value.meta:
            return value.meta[UNROUNDED_KEY]
        if producer is None:
            return ""
        return own_name(producer, producer.name or "", sources_of(producer), self.known)

    def _append(self, fields: Mapping[str, Any]) -> int:
        node = Node(index=len(self.nodes), **fields)
        self.nodes.append(node)
        return node.index


def sources_of(node: ir.Node) -> list[str]:
    """Names of the nodes of the user's model that a canonical node represents."""
    names = node.metadata_props.get(SOURCE_KEY) or node.name or ""
    return [name for name in names.split(",") if name]


def _lowered_norm(norm: Norm) -> Lowered:
    single = [v for v in norm.constants if const_array(v).size == 1]  # type: ignore[union-attr]  # constants
    access = [Access.PER_TENSOR if v in single else Access.PER_CHANNEL for v in norm.constants]
    operands = norm.source, *norm.constants
    return Lowered(op=norm.op, operands=operands, access=(Access.FULL, *access), attrs=norm.attrs)


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _rounding(value: ir.Value) -> dict[str, Any]:
    """Annotations of a value's quantisation."""
    known = value.meta.data  # the dict inside: the other view is slow
    return {"quant": known.get(META_KEY), "tensor": known.get(TENSOR_KEY, "")}
