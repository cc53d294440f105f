"""Host pieces -> loop nests. An operator without a form in C is refused by its name."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from msgspec import Struct, structs

from opu_fuse.bundle.kernel_json import kernel_from_json
from opu_fuse.bundle.program import KERNEL_SUFFIX, HostPiece
from opu_fuse.bundle.runtime_member import NUMBER_OF_DTYPE
from opu_fuse.errors import ModelError
from opu_fuse.host.build.linalg.lower import generic_of
from opu_fuse.host.build.linalg.site import TensorType, constants_of, site_of, types_of
from opu_fuse.host.build.steps.bodies import folded, with_bodies
from opu_fuse.host.build.steps.indices import top
from opu_fuse.host.build.steps.interpolation import interpolated
from opu_fuse.host.build.steps.moves import MOVES, concat, moves
from opu_fuse.host.build.steps.nest import LOOPS, Nest, Operand, TopK, copy, nests_of, simplified
from opu_fuse.host.build.steps.operators import OPERATORS
from opu_fuse.host.build.steps.reductions import softmax

_LEVER = "compile without --host c, or leave the operator out of the model and do it in C"
_MOVED = {"float16": "uint16"}
"""Types of which libopu only moves elements."""
_NO_ARITHMETIC = frozenset({"uint64", *_MOVED})


class Lowered(Struct, frozen=True, kw_only=True):
    """Steps in running order; types and constants of the values that they name."""

    steps: tuple[Nest | TopK, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, np.ndarray]


def lowered(piece: HostPiece, data: bytes) -> Lowered:
    """The steps of a piece. Raises ModelError for an operator that has no form in C."""
    return _kernel(piece, data) if piece.member.endswith(KERNEL_SUFFIX) else _model(piece, data)


def _kernel(piece: HostPiece, data: bytes) -> Lowered:
    kernel = kernel_from_json(data, piece.member)
    operands = (*kernel.op.inputs, *kernel.op.results)
    types = {x.value: TensorType(shape=x.shape, dtype=x.dtype) for x in operands}
    nests = tuple(_checked(nest, kernel.op.name) for nest in nests_of(kernel.op))
    return Lowered(steps=nests, types=types, constants=kernel.constants)


def _model(piece: HostPiece, data: bytes) -> Lowered:
    model = folded(onnx.load_from_string(data))
    while True:
        types, constants = types_of(model), constants_of(model.graph)
        opsets = {o.domain: o.version for o in model.opset_import}
        steps: list[Nest | TopK] = []
        missing: list[onnx.NodeProto] = []
        for node in model.graph.node:
            if node.op_type == "Constant" or all(n in constants for n in node.output if n):
                continue
            known = _node(node, types, constants, opsets)
            if known is None:
                missing.append(node)
            else:
                steps += [_checked(step, _named(piece, node)) for step in known]
        if not missing:
            return Lowered(
                steps=(*steps, *_shown(piece, steps, constants)), types=types, constants=constants
            )
        deeper = with_bodies(model, {node.op_type for node in missing})
        if deeper is None:
            what = f"{missing[0].op_type} has no C form, with these types, shapes and attributes"
            raise ModelError(f"host operator {_named(piece, missing[0])}", what, _LEVER)
        model = deeper


def _shown(
    piece: HostPiece, steps: Sequence[Nest | TopK], constants: Mapping[str, np.ndarray]
) -> Iterator[Nest]:
    """Results that are constants of the model."""
    computed = {r.value for step in steps if isinstance(step, Nest) for r in step.results}
    for name in piece.outputs:
        if name in constants and name not in computed:
            data = constants[name]
            yield copy(name, f"{name}:shown", str(data.dtype), data.size)


def _node(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray],
    opsets: Mapping[str, int],
) -> Sequence[Nest | TopK] | None:
    names = [n for n in (*node.input, *node.output) if n]
    if any(n not in types or types[n].shape is None for n in names):
        return None
    if node.domain not in ("", "ai.onnx"):
        return None
    generic = generic_of(node, types, constants, exact=False)
    if generic is not None:
        return nests_of(generic)
    if node.op_type in MOVES and (found := moves(node, types, constants, opsets)) is not None:
        return found
    if node.op_type == "TopK":
        return top(node, types, constants)
    site = site_of(_without_empty(node, constants), types, constants)
    if site is None:
        return None
    if node.op_type == "Concat":
        return concat(node, types, site.integer("axis", 0) % len(site.result_shape))
    if node.op_type in ("Softmax", "LogSoftmax"):
        return softmax(site, opsets.get("", 1), log=node.op_type == "LogSoftmax")
    if node.op_type == "Resize":
        return interpolated(site, opsets)
    lower = OPERATORS.get(node.op_type)
    return None if lower is None else lower(site)


def _without_empty(node: onnx.NodeProto, constants: Mapping[str, np.ndarray]) -> onnx.NodeProto:
    """The node without its empty operands, where the operator takes them for missing ones."""
    if node.op_type != "Resize":
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    empty = [name in constants and constants[name].size == 0 for name in node.input]
    result.input[:] = ["" if e else n for n, e in zip(node.input, empty, strict=True)]
    return result


def _named(piece: HostPiece, node: onnx.NodeProto) -> str:
    """The user's operator where the piece names one alone."""
    names = [op.name for op in piece.ops]
    return names[0] if len(names) == 1 else node.name or node.op_type


def _checked(step: Nest | TopK, name: str) -> Nest | TopK:
    """The step, simplified. Raises ModelError for what libopu's records do not hold."""
    if isinstance(step, TopK):
        _require(step.dtype, name, moved=False)
        return step
    small = simplified(step)
    operands = (*small.inputs, *small.results)
    moved = not small.body
    for dtype in {*(x.dtype for x in operands), *(i.dtype for i in small.body)}:
        _require(dtype, name, moved=moved)
    if len(small.extents) > LOOPS:
        what = f"has {len(small.extents)} loops, libopu takes {LOOPS}"
        raise ModelError(f"host operator {name}", what, _LEVER)
    if moved:
        small = structs.replace(
            small, inputs=tuple(map(_bits, small.inputs)), results=tuple(map(_bits, small.results))
        )
    return small


def _require(dtype: str, name: str, *, moved: bool) -> None:
    if dtype not in NUMBER_OF_DTYPE or (dtype in _NO_ARITHMETIC and not moved):
        what = f"computes with {dtype}, which libopu does not"
        raise ModelError(f"host operator {name}", what, _LEVER)


def _bits(x: Operand) -> Operand:
    return structs.replace(x, dtype=_MOVED.get(x.dtype, x.dtype))


def bytes_of(kind: TensorType) -> int:
    """Bytes of a value."""
    assert kind.shape is not None
    return math.prod(kind.shape) * np.dtype(kind.dtype).itemsize


def written(steps: Sequence[Nest | TopK]) -> Iterator[tuple[str, str, int]]:
    """(value, dtype, elements) of what steps write that no type is known of: their own values."""
    for step in steps:
        if isinstance(step, TopK):
            count = step.rows * step.k
            yield step.indices, "int64", count
            if step.values:
                yield step.values, step.dtype, count
            continue
        for x in step.results:
            last = x.offset + sum(
                (n - 1) * max(s, 0) for n, s in zip(step.extents, x.strides, strict=True)
            )
            yield x.value, x.dtype, last + 1
