"""Ports as ONNX operators: what packing does to the user's arrays, where the host reads or writes
them (`sim/ports.py` does the same to arrays).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from msgspec import Struct, field
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.bundle.program import UNKNOWN, Port
from opu_fuse.dtypes import NARROW, container_dtype, numpy_dtype
from opu_fuse.io_layout import BYTES, ByteTable
from opu_fuse.quant import UINT8_SHIFT

Operators = tuple[Sequence[onnx.NodeProto], Sequence[TensorProto]]
"""Nodes in order, and constants that they read."""


def element_type(dtype: str) -> int:
    """The ONNX type of a dtype's name."""
    return int(ir.DataType.from_numpy(numpy_dtype(dtype)))


def to_value(
    port: Port, target: str, *, is_int8: bool, shape: Sequence[int] | None = None
) -> Operators:
    """The value inside, from an input of the model. shape: of a map."""
    chain = _Chain(port.name, target)
    if port.turn is not None:
        turn = port.turn
        chain.reshape([turn.axes[axis] for axis in turn.order])
        chain.then("Transpose", perm=np.argsort(turn.order).tolist())
        chain.reshape(turn.value)
    if port.table is not None:
        _look_up(chain, port.table)
    elif not is_int8:
        if port.dtype in NARROW:
            chain.cast(container_dtype(port.dtype))
    elif port.dtype == "uint8":
        chain.cast("int32")
        chain.then("Sub", np.int32(UINT8_SHIFT))
        chain.cast("int8")
    elif port.dtype != "int8":
        if port.dtype != "float32":
            chain.cast("float32")
        chain.then("QuantizeLinear", np.float32(port.scale or 0), np.int8(port.zero_point))
    if shape is not None and (port.turn or tuple(shape) != port.shape):
        chain.reshape(shape)
    return chain.finished()


def from_value(port: Port, source: str, *, is_int8: bool) -> Operators:
    """An output of the model, from the value inside."""
    chain = _Chain(source, port.name)
    if port.turn is not None:
        turn = port.turn
        chain.reshape(turn.axes)
        chain.then("Transpose", perm=list(turn.order))
    if UNKNOWN not in port.shape:
        chain.reshape(port.shape)
    if not is_int8:
        if port.dtype in NARROW:
            chain.cast(port.dtype)
    elif port.dtype == "uint8":
        chain.cast("int32")
        chain.then("Add", np.int32(UINT8_SHIFT))
        chain.cast("uint8")
    elif port.dtype != "int8":
        chain.then("DequantizeLinear", np.float32(port.scale or 0), np.int8(port.zero_point))
        if port.dtype != "float32":
            chain.cast(port.dtype)
    return chain.finished()


def _look_up(chain: "_Chain", table: ByteTable) -> None:
    """Rows of the table one after the other, indexed by channel and byte."""
    rows = np.array(table.values, np.int8)
    offsets = np.arange(len(rows), dtype=np.int32) * BYTES - table.lowest
    if list(table.channels) != sorted(table.channels):
        chain.then("Gather", np.array(table.channels, np.int64), axis=1)
    chain.cast("int32")
    chain.then("Add", offsets.reshape(1, -1, 1, 1))
    chain.then("Gather", rows.reshape(-1), first=True)


class _Chain(Struct):
    """Operators one after the other, from a value to another."""

    source: str
    target: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)

    def then(
        self,
        op: str,
        *constants: np.ndarray | np.generic,
        first: bool = False,
        **attributes: Any,
    ) -> None:
        """Append an operator of the last result. constants: its other operands; first: they are
        before that result.
        """
        number = len(self.nodes)
        tensors = [
            numpy_helper.from_array(np.asarray(c), f"{self.target}/{number}.{k}")
            for k, c in enumerate(constants)
        ]
        last = self.nodes[-1].output[0] if self.nodes else self.source
        others = [t.name for t in tensors]
        operands = [*others, last] if first else [last, *others]
        result = f"{self.target}/{number}"
        self.nodes.append(helper.make_node(op, operands, [result], name=result, **attributes))
        self.constants.extend(tensors)

    def cast(self, dtype: str) -> None:
        """To a type that holds all values."""
        self.then("Cast", to=element_type(dtype))

    def reshape(self, shape: Sequence[int]) -> None:
        """The same elements in another shape."""
        self.then("Reshape", np.array(shape, np.int64))

    def finished(self) -> Operators:
        """The operators; the last one gives the target."""
        if not self.nodes:
            self.then("Identity")
        self.nodes[-1].output[0] = self.target
        return self.nodes, self.constants
