"""The data-flow graph: what the matcher, the golden model and the code generator read.

One node per node of the canonical model, in post-DFS order (operands before users; `index` is the
position). Operator names are those of the hardware spec's operator map (`conv`, `dense`, `add`,
`relu`, …), `reshape` for changes of view, and `host:<OpType>` for everything else.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import Struct, field

from opu_fuse.dfg.value_types import ValueType
from opu_fuse.io_layout import AxisPermutation, ByteTable
from opu_fuse.model.names import Name
from opu_fuse.quant import QuantParams


class Kind(StrEnum):
    """What a node is; tuples are operand lists of concat, tuple_gets single results of calls with
    several.
    """

    CALL = "call"
    VAR = "var"
    CONST = "const"
    TUPLE = "tuple"
    TUPLE_GET = "tuple_get"


class Access(StrEnum):
    """How an operand is read, derived from its indexing map and shape."""

    PER_TENSOR = "per_tensor"
    PER_CHANNEL = "per_channel"
    FULL = "full"
    UNSUPPORTED = "unsupported"


class Node(Struct, frozen=True, kw_only=True):
    """One node.

    name: name in the user's model (of a var the input's, an owned bias is `<conv>/bias`); op:
    operator name ("" unless a call). operands: indices in operand order; access: how each operand
    is read (same length). shape: of the (only) result, batch 1 included, e.g. (1, c, h, w); type:
    its type in the model, None where inference does not know it; value names the result in the
    canonical model (an owned bias takes the conv's value name, the conv then gets `<value>/acc`).
    quant: set when the result is rounded to int8 there; None on accumulators, floats and float
    models. tensor: name of the int8 tensor in the QDQ model (for comparisons with ONNX Runtime), ""
    without. const: data of a const (weights int8 or float, biases int32 or float). owner: index of
    the conv that owns this bias. attrs of conv: kernel, strides, dilations (2-tuples), pads (top,
    left, bottom, right), group, choice (only where its weights choose values or are ones of a sum),
    divisor (of a mean whose weights are ones in a scale of one over it); of pools: kernel,
    strides, dilations, pads, count_include_pad, ceil_mode resolved into pads/shape; of leaky_relu:
    alpha; of clip: min, max; of pad: pads (top, left, bottom, right), value (real); of table:
    functions (its ONNX operators in order); of shuffle: groups; of split: axis, sizes; of concat:
    axis; of add: minus (the operand that is subtracted, if one is). source: original node names
    this node stands for. ir_node: the canonical ONNX node (host operators are executed from it);
    body: all canonical nodes of a table or shuffle in order, ir_node last, () elsewhere. own: what
    the user calls it ("": nothing, None: as `name`).
    """

    index: int
    kind: Kind
    name: str
    op: str = ""
    operands: tuple[int, ...] = ()
    access: tuple[Access, ...] = ()
    shape: tuple[int, ...] = ()
    type: ValueType | None = None
    value: str = ""
    tensor: str = ""
    quant: QuantParams | None = None
    const: np.ndarray | None = None
    owner: int | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    source: tuple[str, ...] = ()
    ir_node: ir.Node | None = None
    body: tuple[ir.Node, ...] = ()
    own: str | None = None

    @property
    def called(self) -> Name:
        """The name, and what the user calls it."""
        return Name(self.name, self.own)

    @property
    def title(self) -> str:
        """What people call the operator: `conv`, and ONNX names where there are none of ours."""
        if self.is_requantisation:
            return "requantise"
        return "+".join(self.attrs.get("functions", ())) or self.op.removeprefix("host:")

    @property
    def is_host(self) -> bool:
        """True for operators no machine knows."""
        return self.op.startswith("host:")

    @property
    def is_requantisation(self) -> bool:
        """True for a clip without bounds: it rounds to another scale, and does nothing else."""
        bounds = (self.attrs.get("min"), self.attrs.get("max"))
        return self.op == "clip" and bounds == (-math.inf, math.inf)

    @property
    def is_virtual(self) -> bool:
        """True for changes of view: no work, no bytes moved."""
        return self.op == "reshape"


def real_data(node: Node) -> np.ndarray:
    """Real numbers of a constant."""
    assert node.const is not None
    data = node.const if node.quant is None else node.quant.dequantize(node.const)
    return np.asarray(data, order="C")


class Lookup(Struct, frozen=True, kw_only=True, eq=False):
    """channels, lowest: as in `ByteTable`; reals: float32 (channels, 256), not rounded."""

    channels: tuple[int, ...]
    lowest: int
    reals: np.ndarray

    def of(self, array: np.ndarray) -> np.ndarray:
        """The numbers that bytes (1, channels, rows, columns) stand for."""
        places = array[0, list(self.channels)].astype(np.int16) - self.lowest
        return np.stack([row[p] for row, p in zip(self.reals, places, strict=True)])[np.newaxis]

    def rounded(self, quant: QuantParams) -> ByteTable:
        rows = quant.quantize(self.reals).tolist()
        return ByteTable(
            channels=self.channels, lowest=self.lowest, values=tuple(tuple(row) for row in rows)
        )


class Border(Struct, frozen=True, kw_only=True):
    """An input or output whose port does more than rounding.

    name, type: of the user's array; written: what its integers stand for, where one of the nodes
    says so. value: what it is inside; quant: how that is rounded; turn: None where its elements lie
    as the user's do; lookup: the numbers that bytes stand for, where the model computes them.
    nodes: canonical nodes that the port stands for, in order.
    """

    name: str
    type: ValueType
    written: QuantParams | None
    value: ir.Value
    quant: QuantParams | None
    turn: AxisPermutation | None
    nodes: tuple[ir.Node, ...]
    lookup: Lookup | None = None


class Dfg(Struct, frozen=True, kw_only=True, dict=True):
    """nodes in post-DFS order; users[i]: indices of the calls and tuples that read node i
    (ascending, each once); inputs: var nodes in model order; outputs: result nodes in model order;
    entries, exits: what their ports do besides rounding, None for nothing, in the same orders;
    quantised: weights and activations are integers; given: they came so.
    """

    name: str
    nodes: tuple[Node, ...]
    users: tuple[tuple[int, ...], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    entries: tuple[Border | None, ...]
    exits: tuple[Border | None, ...]
    quantised: bool
    given: bool = True

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    @property
    def calls(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.kind is Kind.CALL)

    def base(self, index: int) -> int:
        """The node whose bytes a value shares: changes of view are looked through.

        Not beyond the last map a machine can hold: after a value of another rank, which only the
        host makes, the view is made there too and has bytes of its own. So has a view of floats
        that is rounded after it.
        """
        return self._bases[index]

    @cached_property
    def _bases(self) -> tuple[int, ...]:
        """Of every node; operands come before the nodes that read them."""
        results: list[int] = []
        for node in self.nodes:
            results.append(node.index)
            if not node.is_virtual:
                continue
            source = self[node.operands[0]]
            rounded = node.quant is not None and source.quant is None
            if not rounded and (results[source.index] != source.index or is_map(source.shape)):
                results[-1] = results[source.index]
        return tuple(results)


def is_map(shape: Sequence[int]) -> bool:
    """(1, c, h, w) or (1, n)."""
    return len(shape) in {2, 4} and shape[0] == 1


def users_of(nodes: Sequence[Node]) -> tuple[tuple[int, ...], ...]:
    """Per node the indices of those that read it, ascending, each once."""
    users: list[list[int]] = [[] for _ in nodes]
    for node in nodes:
        for operand in dict.fromkeys(node.operands):
            users[operand].append(node.index)
    return tuple(tuple(u) for u in users)
