"""Converter of a TFLite file to ONNX. `tflite.py` runs it in a process, as it imports TensorFlow.

    python -m opu_fuse.frontend.importing.tflite_process SOURCE.tflite REWRITTEN.tflite TARGET.onnx
    OPSET

Operators that tf2onnx does not support are first rewritten in the TFLite file:

1. Sparse weights (read through a DENSIFY) become dense.
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
"""SAME padding in the C interface of TensorFlow Lite. Its files write 0 for it."""
_STATE = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
_TYPES = {"FLOAT32": np.float32, "FLOAT16": np.float16, "INT8": np.int8}


def main() -> None:
    """Rewrite and convert a file. The last line of stderr says why it failed."""
    source, rewritten, target, opset = sys.argv[1:]
    Path(rewritten).write_bytes(rewrite(Path(source).read_bytes()))
    sys.argv[1:] = ["--tflite", rewritten, "--output", target, "--opset", opset]
    runpy.run_module("tf2onnx.convert", run_name="__main__", alter_sys=True)


def rewrite(data: bytes) -> bytes:
    """Rewrite the operators of a TFLite file that tf2onnx does not support.

    Returns `data` itself if nothing changes. Exits with a message if the network is stateful.
    """
    schema = importlib.import_module("tensorflow.lite.python.schema_py_generated")
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    if state := stateful(schema, model):
        sys.exit(f"it keeps something from one run to the next: {', '.join(state)}")
    changed = [_densify(schema, model), _replace_transposed(schema, model)]  # Case 1, Case 2
    if not any(changed):
        return data
    builder = importlib.import_module("flatbuffers").Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def stateful(schema: Any, model: Any) -> list[str]:
    """Names of the stateful operators of a network (streaming models). ONNX has none of them."""
    codes = {name: getattr(schema.BuiltinOperator, name) for name in _STATE}
    used = {op.opcodeIndex for graph in model.subgraphs for op in graph.operators}
    kinds = [model.operatorCodes[index] for index in used]
    used_codes = {max(kind.builtinCode, kind.deprecatedBuiltinCode) for kind in kinds}
    return [name for name, code in codes.items() if code in used_codes]


def _densify(schema: Any, model: Any) -> bool:
    """Case 1: expand sparse weights and remove DENSIFY. Return whether any changed."""
    types = {getattr(schema.TensorType, name): kind for name, kind in _TYPES.items()}
    changed = False
    for graph in model.subgraphs:
        sparse = [t for t in graph.tensors if t.sparsity is not None and t.type in types]
        for tensor in sparse:
            stored = np.asarray(model.buffers[tensor.buffer].data, np.uint8).view(
                types[tensor.type]
            )
            expanded = dense(stored, list(tensor.shape), tensor.sparsity)
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(expanded.tobytes(), np.uint8)
            tensor.buffer, tensor.sparsity = len(model.buffers), None
            model.buffers.append(buffer)
        source_by_result = {
            op.outputs[0]: op.inputs[0]
            for op in graph.operators
            if _is(model, op, schema.BuiltinOperator.DENSIFY)
        }
        graph.operators = [
            op for op in graph.operators if not _is(model, op, schema.BuiltinOperator.DENSIFY)
        ]
        for op in graph.operators if source_by_result else ():
            op.inputs = [source_by_result.get(i, i) for i in op.inputs]
        changed = changed or bool(sparse or source_by_result)
    return changed


def dense(values: np.ndarray, shape: Iterable[int], sparsity: Any) -> np.ndarray:
    """Expand a sparse tensor (TACO format) of stored `values` to a dense array of `shape`.

    Fields of sparsity:
    traversalOrder: the axes, outermost first. Block axes have numbers after those of the tensor.
    blockMap: the tensor axis that each block axis divides.
    dimMetadata: one level per axis in that order, either dense (format 0: denseSize) or CSR
    (format 1: arraySegments, arrayIndices).
    """
    shape = list(shape)
    order = list(sparsity.traversalOrder)
    blocks = [] if sparsity.blockMap is None else list(sparsity.blockMap)
    positions = np.zeros((1, 0), np.int64)  # [values, axes so far]
    offsets = np.zeros(1, np.int64)  # offset of each value within its level
    for level in sparsity.dimMetadata:
        if level.format == 0:
            size = level.denseSize
            inner = np.tile(np.arange(size), len(offsets))
            counts, offsets = np.full(len(offsets), size), np.repeat(offsets * size, size) + inner
        else:
            segments = np.asarray(level.arraySegments.values, np.int64)
            starts, counts = segments[offsets], segments[offsets + 1] - segments[offsets]
            first = np.repeat(starts - np.cumsum(counts) + counts, counts)
            offsets = first + np.arange(counts.sum())
            inner = np.asarray(level.arrayIndices.values, np.int64)[offsets]
        positions = np.column_stack([np.repeat(positions, counts, axis=0), inner])
    sizes = {axis: level.denseSize for axis, level in zip(order, sparsity.dimMetadata, strict=True)}
    index = [positions[:, order.index(axis)] for axis in range(len(shape))]
    for number, axis in enumerate(blocks):
        block = len(shape) + number
        index[axis] = index[axis] * sizes[block] + positions[:, order.index(block)]
    result = np.zeros(shape, values.dtype)
    result[tuple(index)] = values[: len(positions)]
    return result


def _replace_transposed(schema: Any, model: Any) -> bool:
    """Case 2: replace Convolution2DTransposeBias. Return whether any was replaced."""
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
    """Equivalent TRANSPOSE_CONV and ADD of a Convolution2DTransposeBias.

    options: padding, stride along the width and along the height, as three int32.
    """
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
    first.opcodeIndex = _add_operator_code(schema, model, schema.BuiltinOperator.TRANSPOSE_CONV)
    first.inputs, first.outputs = (
        [len(graph.tensors) - 1, weight, x],
        [len(graph.tensors) - 2],
    )
    chosen = schema.TransposeConvOptionsT()
    chosen.padding = schema.Padding.SAME if padding == _SAME else schema.Padding.VALID
    chosen.strideW, chosen.strideH = stride_w, stride_h
    first.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
    first.builtinOptions = chosen
    second.opcodeIndex = _add_operator_code(schema, model, schema.BuiltinOperator.ADD)
    second.inputs, second.outputs = [len(graph.tensors) - 2, bias], [y]
    second.builtinOptionsType = schema.BuiltinOptions.AddOptions
    second.builtinOptions = schema.AddOptionsT()
    return [first, second]


def _is(model: Any, op: Any, code: int) -> bool:
    kind = model.operatorCodes[op.opcodeIndex]
    return code == max(kind.builtinCode, kind.deprecatedBuiltinCode)


def _add_operator_code(schema: Any, model: Any, code: int) -> int:
    """Append an operator code to the file's table and return its index."""
    kind = schema.OperatorCodeT()
    kind.builtinCode = kind.deprecatedBuiltinCode = code
    kind.version = 1
    model.operatorCodes.append(kind)
    return len(model.operatorCodes) - 1


if __name__ == "__main__":
    main()
