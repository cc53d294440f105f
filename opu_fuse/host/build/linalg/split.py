"""A host segment's ONNX model cut into kernels and smaller models (`split_host_model`)."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from msgspec import Struct
from onnx import helper

from opu_fuse.host.build.linalg.chain import (
    HostPlan,
    KernelStep,
    RuntimeStep,
    fuse_host_chain,
    names_read,
)
from opu_fuse.host.build.linalg.control import Control
from opu_fuse.host.build.linalg.site import TensorType, constants_of, types_of
from opu_fuse.host.kernel import DTYPES, Kernel


class HostPiece(Struct, frozen=True, kw_only=True):
    """Exactly one of kernel and model is set. inputs, outputs: value names of the whole model;
    nodes: names of the nodes it replaces.
    """

    kernel: Kernel | None
    model: onnx.ModelProto | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]


def split_host_model(
    model: onnx.ModelProto,
    *,
    control: Control | None = None,
    min_nodes: int = 2,
    exact: bool = True,
) -> tuple[tuple[HostPiece, ...], HostPlan]:
    """Pieces in running order that together compute what the model computes, with the same bits
    (exact) as ONNX Runtime running it node by node; and the plan that they follow.

    The model comes back as one piece where nothing is fused, where a value that would cross a
    border has no known type, or one that numpy has not, and where a result is an input or a
    constant as it is. Options: as in `fuse_host_chain`.
    """
    graph = model.graph
    constants, types = constants_of(graph), types_of(model)
    outputs = [o.name for o in graph.output]
    plan = fuse_host_chain(
        graph.node,
        types=types,
        constants=constants,
        outputs=outputs,
        control=control,
        min_nodes=min_nodes,
        exact=exact,
    )
    crossing = {v for step in plan.steps for v in step.reads}
    typed = all(value in types and types[value].dtype in DTYPES for value in crossing)
    complete = set(outputs) <= {v for step in plan.steps for v in step.writes}
    fused = any(isinstance(step, KernelStep) for step in plan.steps)
    if not (typed and complete and fused):
        whole = HostPiece(
            kernel=None,
            model=model,
            inputs=tuple(i.name for i in graph.input if i.name not in constants),
            outputs=tuple(outputs),
            nodes=tuple(node.name for node in graph.node),
        )
        return (whole,), plan
    return tuple(_piece(model, step, types) for step in plan.steps), plan


def _piece(
    model: onnx.ModelProto, step: KernelStep | RuntimeStep, types: Mapping[str, TensorType]
) -> HostPiece:
    nodes = [model.graph.node[i] for i in step.nodes]
    kernel = step.kernel if isinstance(step, KernelStep) else None
    return HostPiece(
        kernel=kernel,
        model=None if kernel else _part(model, nodes, step, types),
        inputs=step.reads,
        outputs=step.writes,
        nodes=tuple(node.name for node in nodes),
    )


def _part(
    model: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    step: KernelStep | RuntimeStep,
    types: Mapping[str, TensorType],
) -> onnx.ModelProto:
    """A model of some nodes, with the constants they read."""
    read = {name for node in nodes for name in names_read(node)}
    graph = model.graph
    constant = [n for n in graph.node if n.op_type == "Constant" and n.output[0] in read]
    part = helper.make_graph(
        [*constant, *nodes],
        graph.name,
        [_info(name, types[name]) for name in step.reads],
        [helper.make_empty_tensor_value_info(name) for name in step.writes],
        [t for t in graph.initializer if t.name in read],
    )
    return helper.make_model(
        part,
        opset_imports=model.opset_import,
        functions=model.functions,
        ir_version=model.ir_version,
    )


def _info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
    return helper.make_tensor_value_info(name, dtype, kind.shape)
