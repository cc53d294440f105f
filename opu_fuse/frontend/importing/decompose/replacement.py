"""An operator of another library becomes operators of the standard, under its own name.

The new nodes are called after the user's node and remember it as their origin, so that reports
speak of what the file holds. Their types and shapes have to be inferred.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.editing import (
    add_constant,
    attributes_of,
    detach,
    merge_sources,
    operand,
    replace_value,
)


class Spelling:
    """The nodes that stand for one; they are put in its place one after the other.

    dtype: of the numbers that its operator computes with; opset: the model's standard operators.
    """

    def __init__(
        self, node: ir.Node, *, dtype: ir.DataType = ir.DataType.FLOAT, opset: int = 0
    ) -> None:
        assert isinstance(node.graph, ir.Graph)
        self.node, self.graph, self.dtype, self.opset = node, node.graph, dtype, opset
        self._counts: Counter[str] = Counter()
        self._made: set[ir.Node | None] = set()

    def operand(self, index: int) -> ir.Value:
        """One that is there; see `has`."""
        value = operand(self.node, index)
        assert value is not None
        return value

    def has(self, index: int) -> bool:
        """Whether an operand is there."""
        return operand(self.node, index) is not None

    def make(
        self,
        op_type: str,
        *operands: ir.Value | None,
        name: str | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """The result of a new node."""
        return self.make_several(op_type, 1, *operands, name=name, **attributes)[0]

    def make_several(
        self,
        op_type: str,
        results: int,
        *operands: ir.Value | None,
        name: str | None = None,
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """The results of a new node. name: the user's, where it is the main one of those made."""
        new = ir.Node(
            "",
            op_type,
            operands,
            attributes_of(attributes).values(),
            num_outputs=results,
            name=name or self._name(op_type),
        )
        for index, value in enumerate(new.outputs):
            value.name = f"{self.node.name}/{op_type}.{self._counts[op_type]}.{index}"
        merge_sources(new, [self.node])
        self.graph.insert_before(self.node, new)
        self._made.add(new)
        return new.outputs

    def _name(self, op_type: str) -> str:
        count = self._counts[op_type]
        self._counts[op_type] += 1
        return f"{self.node.name}/{op_type}{f'_{count}' if count else ''}"

    def number(self, value: float) -> ir.Value:
        """A constant of the operator's type."""
        return self.constant(np.asarray(value, self.dtype.numpy()))

    def constant(self, data: np.ndarray) -> ir.Value:
        """A constant."""
        return add_constant(self.graph, f"{self.node.name}/constant", data)

    def replace(self, *results: ir.Value | None) -> None:
        """Those that read the node's results read these, which take over their names; the node
        goes. None: of a result that nobody reads.
        """
        for old, new in zip(self.node.outputs, results, strict=False):
            if new is None:
                continue
            name, was_output, made = old.name, old.is_graph_output(), new.producer() in self._made
            replace_value(old, new)
            if made and not was_output:  # else it has that name, or is the user's
                old.name, new.name = None, name
            new.type, new.shape = new.type or old.type, new.shape or old.shape
        detach(self.node)


def has_kinds(node: ir.Node, kinds: Mapping[str, ir.AttributeType]) -> bool:
    """Whether attributes of these names are of these kinds: nobody checks those of other
    libraries.
    """
    return all(a.type is kinds.get(a.name, a.type) for a in node.attributes.values())


def is_read(value: ir.Value) -> bool:
    """Whether a node reads a value, or the model hands it out."""
    return bool(value.uses()) or value.is_graph_output()
