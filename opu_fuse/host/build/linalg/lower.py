"""ONNX nodes as generic operators (`generic_of`)."""

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

from opu_fuse.affine import Affine, AffineMap, identity_map
from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.pointwise import POINTWISE
from opu_fuse.host.build.linalg.site import Site, TensorType, site_of
from opu_fuse.host.build.linalg.views import VIEWS
from opu_fuse.host.kernel import DTYPES, GenericOp, Input, Iterator, Loop, Result
from opu_fuse.host.kernel_check import first_mistake
from opu_fuse.model.operator_sets import PAIRS


def generic_of(
    node: onnx.NodeProto | ir.Node,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    exact: bool = True,
) -> GenericOp | None:
    """The generic operator that computes what the node computes; None where there is none.

    types: of all operands and results; constants: data of operands known now. exact: only where the
    results have the bits of ONNX Runtime's.
    """
    proto = ir.serde.serialize_node(node) if isinstance(node, ir.Node) else node
    if proto.domain not in ("", "ai.onnx"):
        return None
    site = site_of(proto, types, constants or {})
    if site is None or site.result.dtype not in DTYPES:
        return None
    if proto.op_type in VIEWS:
        if any(site.has(n) and site.constant(n) is None for n in range(1, len(site.inputs))):
            return None  # the shape of its result is what the file declares, true or not
        return _view(site, VIEWS[proto.op_type](site))
    known = POINTWISE.get(proto.op_type)
    if known is None or (exact and not known.exact) or not site.inputs:
        return None
    dtypes = [t.dtype for t in site.inputs if t is not None]
    if (exact and dtypes[0] not in known.dtypes) or not set(dtypes) <= set(DTYPES):
        return None
    return _pointwise(site, dtypes)


def _pointwise(site: Site, dtypes: list[str]) -> GenericOp | None:
    operands = [n for n in range(len(site.inputs)) if site.has(n)]
    per_channel = site.node.op_type in PAIRS
    spread = operands[:1] if per_channel else operands
    if _broadcast([site.shape(n) for n in spread]) != site.result_shape:
        return None  # declared wrong
    payload = Payload([*dtypes, site.result.dtype])
    value = POINTWISE[site.node.op_type].lower(site, payload, tuple(range(len(operands))))
    if value is None:
        return None
    maps = [_channel_map(site, n) if n and per_channel else site.spread(n) for n in operands]
    inputs = tuple(_input(site, n, m) for n, m in zip(operands, maps, strict=True))
    return _meaningful(_generic(site, inputs, payload, value))


def _view(site: Site, index: AffineMap | None) -> GenericOp | None:
    """Other operands (a shape, axes) must be known: they are not read when running."""
    others = range(1, len(site.inputs))
    if index is None or any(site.has(n) and site.constant(n) is None for n in others):
        return None
    inputs = (_input(site, 0, index),)
    return _meaningful(_generic(site, inputs, Payload([site.result.dtype] * 2), 0))


def _meaningful(op: GenericOp) -> GenericOp | None:
    """None for types that do not go together: they come from a model that declares them wrong."""
    return op if first_mistake(op) is None else None


def _input(site: Site, n: int, index: AffineMap) -> Input:
    kind = site.inputs[n]
    assert kind is not None
    return Input(value=site.node.input[n], shape=site.shape(n), dtype=kind.dtype, map=index)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _channel_map(site: Site, n: int) -> AffineMap:
    """Map of the scales and zero points of QuantizeLinear and DequantizeLinear."""
    shape, rank = site.shape(n), len(site.result_shape)
    axis = site.integer("axis", 1)
    moving = Affine(terms=((axis % rank, 1),)) if shape and shape[0] > 1 else Affine()
    return AffineMap(dims=rank, results=(moving,) * len(shape))


def _generic(site: Site, inputs: tuple[Input, ...], payload: Payload, value: int) -> GenericOp:
    name = next(name for name in site.node.output if name)
    shape = site.result_shape
    identity = identity_map(len(shape))
    result = Result(value=name, shape=shape, dtype=site.result.dtype, map=identity)
    return GenericOp(
        name=site.node.name or f"{site.node.op_type}:{name}",
        loops=tuple(Loop(kind=Iterator.PARALLEL, extent=extent) for extent in shape),
        inputs=inputs,
        results=(result,),
        body=payload.instructions,
        yields=(value,),
    )
