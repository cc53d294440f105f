"""What converts a TFLite file, in a process of its own (`tflite.py`): it imports TensorFlow.

    python -m opu_fuse.frontend.importing.tflite_process GIVEN.tflite REWRITTEN.tflite MADE.onnx
    OPSET

What tf2onnx does not know is written in other words first, in the file itself:

1. Weights stored sparse, behind a DENSIFY, become dense.
2. MediaPipe's own Convolution2DTransposeBias becomes TRANSPOSE_CONV and ADD.
"""

import importlib
import runpy
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

_SAME = 1
"""Of the C interface of TensorFlow Lite, 0 in its files."""
_STATE = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
_TYPES = {"FLOAT32": np.float32, "FLOAT16": np.float16, "INT8": np.int8}


def main() -> None:
    """Rewrite and convert; what goes wrong is the last line of the error output."""
    given, rewritten, made, opset = sys.argv[1:]
    Path(rewritten).write_bytes(rewrite(Path(given).read_bytes()))
    sys.argv[1:] = ["--tflite", rewritten, "--output", made, "--opset", opset]
    runpy.run_module("tf2onnx.convert", run_name="__main__", alter_sys=True)


def rewrite(data: bytes) -> bytes:
    """The same network without what tf2onnx does not know; the same bytes where there is nothing
    to change.
    """
    schema = importlib.import_module("tensorflow.lite.python.schema_py_generated")
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    if state := stateful(schema, model):
        sys.exit(f"it keeps something from one run to the next: {', '.join(state)}")
    changed = [_densify(schema, model), _spell_out_transposed(schema, model)]  # Case 1, Case 2
    if not any(changed):
        return data
    builder = importlib.import_module("flatbuffers").Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def stateful(schema: Any, model: Any) -> list[str]:
    """Operators with which a network remembers, as streaming ones do; ONNX has none."""
    codes = {name: getattr(schema.BuiltinOperator, name) for name in _STATE}
    used = {op.opcodeIndex for graph in model.subgraphs for op in graph.operators}
    kinds = [model.operatorCodes[index] for index in used]
    found = {max(kind.builtinCode, kind.deprecatedBuiltinCode) for kind in kinds}
    return [name for name, code in codes.items() if code in found]


def _densify(schema: Any, model: Any) -> bool:
    types = {getattr(schema.TensorType, name): kind for name, kind in _TYPES.items()}
    changed = False
    for graph in model.subgraphs:
        sparse = [t for t in graph.tensors if t.sparsity is not None and t.type in types]
        for tensor in sparse:
            stored = np.asarray(model.buffers[tensor.buffer].data, np.uint8).view(
                types[tensor.type]
            )
            whole = dense(stored, list(tensor.shape), tensor.sparsity)
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(whole.tobytes(), np.uint8)
            tensor.buffer, tensor.sparsity = len(model.buffers), None
            model.buffers.append(buffer)
        plain = {
            op.outputs[0]: op.inputs[0]
            for op in graph.operators
            if _is(model, op, schema.BuiltinOperator.DENSIFY)
        }
        graph.operators = [
            op for op in graph.operators if not _is(model, op, schema.BuiltinOperator.DENSIFY)
        ]
        for op in graph.operators if plain else ():
            op.inputs = [plain.get(i, i) for i in op.inputs]
        changed = changed or bool(sparse or plain)
    return changed


def dense(values: np.ndarray, shape: Iterable[int], sparsity: Any) -> np.ndarray:
    """All numbers of a tensor whose file holds `values` and where they belong.

    sparsity: traversalOrder, the axes from the outermost to the innermost, those of blocks behind
    those of the tensor; blockMap, the axis that each of these divides; dimMetadata, for each in
    that order denseSize, or segments and indices (arraySegments, arrayIndices; format 1).
    """
    shape = list(shape)
    order = list(sparsity.traversalOrder)
    blocks = [] if sparsity.blockMap is None else list(sparsity.blockMap)
    places = np.zeros((1, 0), np.int64)  # one row for each number, one column for each axis so far
    at = np.zeros(1, np.int64)  # its place among those of its level
    for level in sparsity.dimMetadata:
        if level.format == 0:
            size = level.denseSize
            inner = np.tile(np.arange(size), len(at))
            counts, at = np.full(len(at), size), np.repeat(at * size, size) + inner
        else:
            segments = np.asarray(level.arraySegments.values, np.int64)
            starts, counts = segments[at], segments[at + 1] - segments[at]
            first = np.repeat(starts - np.cumsum(counts) + counts, counts)
            at = first + np.arange(counts.sum())
            inner = np.asarray(level.arrayIndices.values, np.int64)[at]
        places = np.column_stack([np.repeat(places, counts, axis=0), inner])
    sizes = {axis: level.denseSize for axis, level in zip(order, sparsity.dimMetadata, strict=True)}
    index = [places[:, order.index(axis)] for axis in range(len(shape))]
    for number, axis in enumerate(blocks):
        block = len(shape) + number
        index[axis] = index[axis] * sizes[block] + places[:, order.index(block)]
    found = np.zeros(shape, values.dtype)
    found[tuple(index)] = values[: len(places)]
    return found


def _spell_out_transposed(schema: Any, model: Any) -> bool:
    changed = False
    for graph in model.subgraphs:
        operators = []
        for op in graph.operators:
            code = model.operatorCodes[op.opcodeIndex].customCode
            options = b"" if op.customOptions is None else bytes(bytearray(op.customOptions))
            if code != b"Convolution2DTransposeBias" or len(options) != 3 * 4:
                operators.append(op)
                continue
            operators += _transposed(schema, model, graph, op, options)
            changed = True
        graph.operators = operators
    return changed


def _transposed(schema: Any, model: Any, graph: Any, op: Any, options: bytes) -> list[Any]:
    """TRANSPOSE_CONV and ADD for the convolution and its bias."""
    padding, stride_w, stride_h = struct.unpack("<3i", options)
    x, weight, bias = op.inputs
    (y,) = op.outputs
    inner = schema.TensorT()
    inner.shape, inner.type = graph.tensors[y].shape, graph.tensors[y].type
    inner.name, inner.buffer = (graph.tensors[y].name or b"y") + b"/products", 0
    size = schema.TensorT()
    size.shape, size.type = np.array([4], np.int32), schema.TensorType.INT32
    size.name, size.buffer = (graph.tensors[y].name or b"y") + b"/shape", len(model.buffers)
    shape = schema.BufferT()
    shape.data = np.frombuffer(np.asarray(inner.shape, np.int32).tobytes(), np.uint8)
    model.buffers.append(shape)
    graph.tensors += [inner, size]
    first, second = schema.OperatorT(), schema.OperatorT()
    first.opcodeIndex = _code(schema, model, schema.BuiltinOperator.TRANSPOSE_CONV)
    first.inputs, first.outputs = (
        [len(graph.tensors) - 1, weight, x],
        [len(graph.tensors) - 2],
    )
    chosen = schema.TransposeConvOptionsT()
    chosen.padding = schema.Padding.SAME if padding == _SAME else schema.Padding.VALID
    chosen.strideW, chosen.strideH = stride_w, stride_h
    first.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
    first.builtinOptions = chosen
    second.opcodeIndex = _code(schema, model, schema.BuiltinOperator.ADD)
    second.inputs, second.outputs = [len(graph.tensors) - 2, bias], [y]
    second.builtinOptionsType = schema.BuiltinOptions.AddOptions
    second.builtinOptions = schema.AddOptionsT()
    return [first, second]


def _is(model: Any, op: Any, code: int) -> bool:
    kind = model.operatorCodes[op.opcodeIndex]
    return code == max(kind.builtinCode, kind.deprecatedBuiltinCode)


def _code(schema: Any, model: Any, code: int) -> int:
    """Where a new operator's code stands in the file's list."""
    kind = schema.OperatorCodeT()
    kind.builtinCode = kind.deprecatedBuiltinCode = code
    kind.version = 1
    model.operatorCodes.append(kind)
    return len(model.operatorCodes) - 1


if __name__ == "__main__":
    main()
