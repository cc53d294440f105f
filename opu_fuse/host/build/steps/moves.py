"""ONNX operators that only move elements: asked where each element of a result comes from.

ONNX Runtime runs the operator on the numbers of its operand's elements. So every mode of every such
operator is what ONNX Runtime makes of it.
"""

import logging
import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opu_fuse.dfg.ort_operator import run_graph
from opu_fuse.host.build.linalg.site import TensorType
from opu_fuse.host.build.steps.nest import Nest, Operand, plain, row_major

log = logging.getLogger(__name__)

MOVES = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice"),
        *("Gather", "GatherElements", "GatherND", "Expand", "Tile", "Split"),
        *("DepthToSpace", "SpaceToDepth", "Resize", "Upsample", "ReverseSequence", "Pad"),
    }
)
"""Operators with one operand that is moved; others are shapes, axes or indices."""
_EXACT = 1 << 24
"""Integers below are exact in float32, the one type that all these operators take."""


def moves(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray],
    opsets: Mapping[str, int],
) -> list[Nest] | None:
    """A nest for each result; None where positions depend on data or are no sum over the axes."""
    resized = node.op_type in ("Resize", "Upsample")
    source, others = node.input[0], [name for name in node.input[1:] if name]
    shape = types[source].shape
    if shape is None or any(name not in constants for name in others):
        return None
    small = math.prod(shape) < _EXACT
    if resized and (_mode(node, "nearest") != "nearest" or not small):
        return None
    if node.op_type == "Pad" and _mode(node, "constant") == "constant":
        return None  # not all elements come from the operand
    numbers = np.arange(math.prod(shape), dtype=np.float32 if small else np.int64).reshape(shape)
    try:
        positions = _run(
            node, {source: numbers}, {name: constants[name] for name in others}, opsets
        )
    except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own
        log.info("%s: ONNX Runtime does not move %s: %s", node.name, numbers.dtype, error)
        return None
    nests: list[Nest] = []
    for name, found in zip([n for n in node.output if n], positions, strict=True):
        dtype = types[source].dtype
        operand = _operand(source, dtype, found.astype(np.int64))
        if operand is None or 0 in found.shape:
            return None
        result = plain(name, dtype, found.shape)
        nests.append(Nest(extents=found.shape, inputs=(operand,), results=(result,)))
    return nests


def concat(node: onnx.NodeProto, types: Mapping[str, TensorType], axis: int) -> list[Nest]:
    """A nest for each operand."""
    target = types[node.output[0]]
    assert target.shape is not None
    steps, first, nests = row_major(target.shape), 0, list[Nest]()
    for name in node.input:
        shape = types[name].shape
        assert shape is not None
        result = Operand(
            value=node.output[0],
            dtype=target.dtype,
            offset=first * steps[axis],
            strides=steps,
        )
        operand = plain(name, target.dtype, shape)
        if 0 not in shape:
            nests.append(Nest(extents=shape, inputs=(operand,), results=(result,)))
        first += shape[axis]
    return nests


def _mode(node: onnx.NodeProto, default: str) -> str:
    for attribute in node.attribute:
        if attribute.name == "mode":
            return attribute.s.decode()
    return default


def _run(
    node: onnx.NodeProto,
    values: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray],
    opsets: Mapping[str, int],
) -> list[np.ndarray]:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in values.items()
    ]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    known = [numpy_helper.from_array(data, name) for name, data in constants.items()]
    graph = helper.make_graph([node], "moves", inputs, results, known)
    return run_graph(graph, opsets, values)


def _operand(value: str, dtype: str, positions: np.ndarray) -> Operand | None:
    """The operand whose positions are a sum over the axes of a result."""
    if positions.size == 0:
        return None
    first, strides, tables = int(positions.flat[0]), list[int](), dict[int, tuple[int, ...]]()
    total = np.full(positions.shape, first, np.int64)
    for axis, size in enumerate(positions.shape):
        line = (
            positions[tuple(slice(None) if n == axis else 0 for n in range(positions.ndim))] - first
        )
        step = int(line[1]) if size > 1 else 0
        if np.array_equal(line, np.arange(size) * step):
            strides.append(step)
        else:
            strides.append(0)
            tables[axis] = tuple(int(x) for x in line)
        total += line.reshape([-1 if n == axis else 1 for n in range(positions.ndim)])
    if not np.array_equal(total, positions):
        return None
    return Operand(value=value, dtype=dtype, offset=first, strides=tuple(strides), tables=tables)
