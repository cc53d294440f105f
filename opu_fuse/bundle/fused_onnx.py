"""`fused.onnx` of a program file: the quantised model with groups as functions, weights by
reference.

Its large initialisers are ONNX external data in `qdq.onnx`: each names the byte offset of the same
initialiser's raw data in that file. So a program file stores the weights once. The two
members, unpacked into one folder, open in every ONNX tool.
"""

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from opu_fuse.bundle.file import FUSED, QDQ
from opu_fuse.bundle.manifest import damaged
from opu_fuse.bundle.program import Bundle
from opu_fuse.errors import ProgramError

BY_REFERENCE_BYTES = 1024
"""Initialisers below this size are stored in both files."""

# Field numbers of onnx.proto, and the wire types of protocol buffers.
_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def serialised(model: onnx.ModelProto) -> tuple[bytes, tuple[TensorProto, ...]]:
    """A model's bytes, and its initialisers.

    Large initialisers are references into those bytes, which avoids another copy of their data.
    """
    data = model.SerializeToString(deterministic=True)
    spans = raw_data_spans(data)
    return data, tuple(_referring(t, *spans.get(t.name, (0, 0))) for t in model.graph.initializer)


def _referring(tensor: TensorProto, offset: int, length: int) -> TensorProto:
    if length < BY_REFERENCE_BYTES:
        return tensor
    result = TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        data_location=TensorProto.EXTERNAL,
    )
    facts = {"location": QDQ, "offset": str(offset), "length": str(length)}
    for key, value in facts.items():
        result.external_data.add(key=key, value=value)
    return result


def load_fused(bundle: Bundle) -> onnx.ModelProto:
    """The fused model with all its weights inside.

    Raises ProgramError if the program holds no fused model, or a damaged one.
    """
    if not bundle.fused:
        raise ProgramError(bundle.model, f"holds no {FUSED}", "compile the model again")
    try:
        model = onnx.load_from_string(bundle.fused)
    except Exception as error:  # protobuf has its own error class, and is no dependency of ours
        raise damaged(bundle.model, f"{FUSED} is no ONNX model") from error
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.raw_data = _referred(tensor, bundle)
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    return model


def _referred(tensor: TensorProto, bundle: Bundle) -> bytes:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    numbers = [facts.get(key, "") for key in ("offset", "length")]
    if facts.get("location") != QDQ or not all(n.isascii() and n.isdigit() for n in numbers):
        raise damaged(bundle.model, f"{FUSED}: weights {tensor.name} are not stored in {QDQ}")
    first, length = map(int, numbers)
    if first + length > len(bundle.qdq):
        raise damaged(
            bundle.model,
            f"{FUSED}: weights {tensor.name} at bytes {first}..{first + length} of {QDQ}, "
            f"which has {len(bundle.qdq)}",
        )
    return bundle.qdq[first : first + length]


def raw_data_spans(model: bytes) -> dict[str, tuple[int, int]]:
    """Initialiser name -> (offset, length) of its raw data in a serialised ONNX model; those
    stored otherwise are left out.
    """
    results: dict[str, tuple[int, int]] = {}
    view = memoryview(model)
    for graph, first, end in _fields(view, 0, len(view)):
        if graph != _GRAPH:
            continue
        for field, start, stop in _fields(view, first, end):
            if field == _INITIALIZER:
                parts = {number: (a, b) for number, a, b in _fields(view, start, stop)}
                if _NAME in parts and _RAW_DATA in parts:
                    a, b = parts[_NAME]
                    data, after = parts[_RAW_DATA]
                    results[bytes(view[a:b]).decode()] = (data, after - data)
    return results


def _fields(view: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(field number, first byte, end) of every field of length-delimited type in a message."""
    while at < end:
        tag, at = _varint(view, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(view, at)
            yield tag >> 3, at, at + length
            at += length
        elif kind == _VARINT:
            _, at = _varint(view, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} at byte {at}")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
