"""Replaces a node by a decomposition into standard operators.

The names of the new nodes derive from the user's node, which is recorded as their origin, so that
reports name operators of the file. Types and shapes have to be inferred afterwards.
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


class Replacement:
    """Builder of the nodes that replace one node. They are inserted before it, in order.

    dtype: element type of the operator's arithmetic. opset: standard opset of the model.
    shared: what replacements of later nodes may use, by a key of its decomposition.
    """

    def __init__(
        self,
        node: ir.Node,
        *,
        dtype: ir.DataType = ir.DataType.FLOAT,
        opset: int = 0,
        shared: dict[Any, Any] | None = None,
    ) -> None:
        assert isinstance(node.graph, ir.Graph)
        self.shared = {} if shared is None else shared
        self.node, self.graph, self.dtype, self.opset = node, node.graph, dtype, opset
        self._counts: Counter[str] = Counter()
        self._made: set[ir.Node | None] = set()

    def operand(self, index: int) -> ir.Value:
        """A present operand; see `has`."""
        value = operand(self.node, index)
        assert value is not None
        return value

    def has(self, index: int) -> bool:
        """Whether an operand is present."""
        return operand(self.node, index) is not None

    def make(
        self,
        op_type: str,
        *operands: ir.Value | None,
        name: str | None = None,
        **attributes: Any,
    ) -> ir.Value:
        """Insert a node with one result; return that."""
        return self.make_several(op_type, 1, *operands, name=name, **attributes)[0]

    def make_several(
        self,
        op_type: str,
        results: int,
        *operands: ir.Value | None,
        name: str | None = None,
        **attributes: Any,
    ) -> Sequence[ir.Value]:
        """Insert a node; return its results. name: of the user's node, for the main new node."""
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
        """Add a scalar constant of the operator's element type."""
        return self.constant(np.asarray(value, self.dtype.numpy()))

    def constant(self, data: np.ndarray) -> ir.Value:
        """Add a constant."""
        return add_constant(self.graph, f"{self.node.name}/constant", data)

    def replace(self, *results: ir.Value | None) -> None:
        """Replace the results of the node by `results` and remove the node.

        The new results take over the readers and names of the old ones. None: a result without
        readers.
        """
        for old, new in zip(self.node.outputs, results, strict=False):
            if new is None:
                continue
            name, was_output, is_new = old.name, old.is_graph_output(), new.producer() in self._made
            replace_value(old, new)
            # An output has passed on its name already. A value of the user's model keeps its own.
            if is_new and not was_output:
                old.name, new.name = None, name
            new.type, new.shape = new.type or old.type, new.shape or old.shape
        detach(self.node)


def has_kinds(node: ir.Node, kinds: Mapping[str, ir.AttributeType]) -> bool:
    """Whether attributes of these names have these types.

    onnx does not check attributes of operators of other domains.
    """
    return all(a.type is kinds.get(a.name, a.type) for a in node.attributes.values())


def is_read(value: ir.Value) -> bool:
    """Whether a value has a reader or is a model output."""
    return bool(value.uses()) or value.is_graph_output()
