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
from opu_fuse.model.operator_sets import NORM_OPERATORS
from opu_fuse.number_text import counted
from opu_fuse.quant import QuantParams
from opu_fuse.summaries import summary


class Kind(StrEnum):
    """Kind of a node; tuples are operand lists of concat, tuple_gets single results of calls with
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


PRODUCTS = frozenset({"matmul", "transpose"})
"""Operators whose operands have whole words for themselves: the array sums their unused lanes."""

WRITES_ZEROS = frozenset(
    {*PRODUCTS, "conv", "dense", "transposed_conv", "shuffle", *NORM_OPERATORS.values()}
)
"""Operators whose unused lanes stand for zero whatever their operands have there."""


class Node(Struct, frozen=True, kw_only=True):
    """One node.

    index: position in `Dfg.nodes`.
    kind: call, var, const, tuple or tuple_get.
    name: name in the user's model; a var has the input's, an owned bias `<conv>/bias`.
    op: operator name, "" unless a call.
    operands: node indices in operand order.
    access: how each operand is read (same length as `operands`).
    shape: of the (only) result, batch 1 included, e.g. (1, c, h, w).
    type: ONNX type in the model, None where inference does not know it.
    value: name of the result in the canonical model. An owned bias takes the conv's value name;
        the conv then gets `<value>/acc`.
    tensor: name of the int8 tensor in the QDQ model, "" without (to compare with ONNX Runtime).
    quant: set when the result is rounded to int8; None on accumulators, floats and float models.
    const: data of a const (weights int8 or float, biases int32 or float).
    owner: index of the conv that owns this bias.
    attrs: attributes by operator, listed below.
    source: names of the original nodes that this node represents.
    ir_node: the canonical ONNX node; host operators are executed from it.
    body: all canonical nodes of a table or shuffle in order, ir_node last, () elsewhere.
    own: the user's name for it ("": none, None: same as `name`).

    Attributes:
    conv: kernel, strides, dilations (2-tuples), pads (top, left, bottom, right), group; choice,
        only where its weights are a one-hot selection or ones of a sum; divisor, of a mean whose
        weights are ones with scale 1 / divisor.
    pools: kernel, strides, dilations, pads, count_include_pad; ceil_mode is resolved into pads and
        shape.
    leaky_relu: alpha. clip: min, max.
    pad: value (real), pads (top, left, bottom, right), which crop where negative.
    table: functions (its ONNX operators in order). shuffle: groups. split: axis, sizes.
    concat: axis. add: minus (the operand that is subtracted, if one is).
    matmul: none; operands are the map and the one that the array reads as weights
        (`model/products.py`), by rows if that has several.
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

    def __repr__(self) -> str:
        what = self.op or str(self.kind)
        return summary(self, f"{self.index} {self.name}", what, f"shape {list(self.shape)}")

    @property
    def called(self) -> Name:
        """The name, and what the user calls it."""
        return Name(self.name, self.own)

    @property
    def title(self) -> str:
        """Operator name for messages: `conv`, or the ONNX name where opu-fuse has none."""
        if self.is_requantisation:
            return "requantise"
        return "+".join(self.attrs.get("functions", ())) or self.op.removeprefix("host:")

    @property
    def is_turned_layer(self) -> bool:
        """Whether it multiplies by constants before it exchanges channels and pixels."""
        return self.op == "transpose" and len(self.operands) == 2

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

    @property
    def passes_lanes(self) -> bool:
        """True where the unused lanes of the result come from those of the operands."""
        if self.kind is not Kind.CALL:
            return self.kind in {Kind.TUPLE, Kind.TUPLE_GET}
        return not self.is_host and self.op not in WRITES_ZEROS


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

    def reals_of(self, array: np.ndarray) -> np.ndarray:
        """The real numbers, float32, that bytes (1, channels, rows, columns) represent."""
        indices = array[0, list(self.channels)].astype(np.int16) - self.lowest
        return np.stack([row[p] for row, p in zip(self.reals, indices, strict=True)])[np.newaxis]

    def rounded(self, quant: QuantParams) -> ByteTable:
        rows = quant.quantize(self.reals).tolist()
        return ByteTable(
            channels=self.channels, lowest=self.lowest, values=tuple(tuple(row) for row in rows)
        )


class Border(Struct, frozen=True, kw_only=True):
    """An input or output whose port does more than rounding.

    name, type: name and ONNX type of the user's array.
    written: quantisation of its integers, where one of the nodes declares it.
    value: the value inside the graph.
    quant: quantisation of `value`.
    turn: axis permutation between the two, None where both have the same element order.
    lookup: real numbers that bytes represent, where the model computes them.
    nodes: canonical nodes that the port implements, in order.
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
    """The data-flow graph of one model.

    nodes: in post-DFS order.
    users: users[i] are the indices of the calls and tuples that read node i, ascending, each once.
    inputs, outputs: indices of var nodes and of result nodes, in model order.
    entries, exits: what ports of inputs and outputs do in addition to rounding, or None.
    quantised: weights and activations are integers.
    prequantised: the user's model was already quantised.
    """

    name: str
    nodes: tuple[Node, ...]
    users: tuple[tuple[int, ...], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    entries: tuple[Border | None, ...]
    exits: tuple[Border | None, ...]
    quantised: bool
    prequantised: bool = True

    def __repr__(self) -> str:
        return summary(self, self.name, counted(len(self.calls), "operator"))

    def __getitem__(self, index: int) -> Node:
        return self.nodes[index]

    @property
    def calls(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if n.kind is Kind.CALL)

    def base(self, index: int) -> int:
        """The node whose bytes a value shares: changes of view are looked through.

        Not beyond the last map a machine can hold: after a value of another rank, which only the
        host computes, the host computes the view too and it has bytes of its own. So has a view of
        floats that is rounded after it.
        """
        return self._bases[index]

    def producer(self, index: int) -> int:
        """The node that computes a value: of one of several results, their operator."""
        node = self[index]
        return node.operands[0] if node.kind is Kind.TUPLE_GET else index

    def read_by_products(self, index: int) -> bool:
        """Whether a product of two maps reads a value, or what other operators make of its lanes,
        so that its unused lanes have to be zero. Turned layers multiply these by zeros.
        """
        return index in self._summed

    @cached_property
    def _summed(self) -> frozenset[int]:
        results: set[int] = set()
        for node in reversed(self.nodes):
            readers = [self[i] for i in self.users[node.index]]
            sums = (r.op in PRODUCTS and not r.is_turned_layer for r in readers)
            if any(sums) or any(r.passes_lanes and r.index in results for r in readers):
                results.add(node.index)
        return frozenset(results)

    @cached_property
    def _bases(self) -> tuple[int, ...]:
        """Base of every node; operands come before the nodes that read them."""
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
