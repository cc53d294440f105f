"""A host segment's ONNX nodes -> generic kernels, and the nodes left to ONNX Runtime.

The plan's steps are in the order in which they run. ONNX Runtime's nodes are gathered into as few
steps as the dependencies allow.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx
from msgspec import Struct

from opu_fuse.host.build.linalg.control import Control, at_most_ops
from opu_fuse.host.build.linalg.driver import (
    Fused,
    Member,
    Opaque,
    fuse_greedily,
    reads_of,
    writes_of,
)
from opu_fuse.host.build.linalg.lower import generic_of
from opu_fuse.host.build.linalg.rules import Refusal
from opu_fuse.host.build.linalg.site import TensorType
from opu_fuse.host.kernel import GenericOp, Kernel

MAX_PAYLOAD = 64
"""Instructions of a payload at which the driver stops, so that a kernel is readable and fusing a
long chain takes time in proportion to its length."""


class KernelStep(Struct, frozen=True, kw_only=True):
    """A fused chain. nodes: positions of the ONNX nodes it replaces."""

    kernel: Kernel
    nodes: tuple[int, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        """Values it needs."""
        return self.kernel.reads

    @property
    def writes(self) -> tuple[str, ...]:
        """Values it computes."""
        return tuple(r.value for r in self.kernel.op.results)


class RuntimeStep(Struct, frozen=True, kw_only=True):
    """Nodes for ONNX Runtime, by position, ascending. reads, writes: values that cross its border,
    constants left out.
    """

    nodes: tuple[int, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class HostPlan(Struct, frozen=True, kw_only=True):
    """steps in running order; refusals: (producer, consumer, why not fused), by node names joined
    with `+`, kernels included that were too small to be written.
    """

    steps: tuple[KernelStep | RuntimeStep, ...]
    refusals: tuple[tuple[str, str, Refusal], ...]


def fuse_host_chain(
    nodes: Sequence[onnx.NodeProto],
    *,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray],
    outputs: Collection[str],
    control: Control | None = None,
    min_nodes: int = 2,
    exact: bool = True,
) -> HostPlan:
    """Plan for nodes in topological order.

    types: of all values, where known (`types_of`)
    constants: by name (`constants_of`)
    outputs: values needed afterwards
    control: at most `MAX_PAYLOAD` instructions if None
    min_nodes: ONNX Runtime runs what a kernel of fewer nodes would replace
    exact: as in `generic_of`
    """
    control = control or at_most_ops(MAX_PAYLOAD)
    computed = [i for i, node in enumerate(nodes) if not _known(node, constants, outputs)]
    members: list[Member] = []
    for i in computed:
        op = generic_of(nodes[i], types, constants, exact=exact)
        members.append(op or _opaque(nodes[i]))
    fused = first = fuse_greedily(members, outputs, control=control, constants=constants)
    while single := _too_small(fused, min_nodes):
        for at in single:
            members[at] = _opaque(nodes[computed[at]])
        fused = fuse_greedily(members, outputs, control=control, constants=constants)
    return HostPlan(
        steps=_steps(fused, computed, constants, outputs),
        refusals=first.refusals,
    )


def _known(
    node: onnx.NodeProto, constants: Mapping[str, np.ndarray], outputs: Collection[str]
) -> bool:
    name = node.output[0]
    return node.op_type == "Constant" and name in constants and name not in outputs


def _opaque(node: onnx.NodeProto) -> Opaque:
    return Opaque(
        name=node.name or f"{node.op_type}:{node.output[0]}",
        reads=names_read(node),
        writes=tuple(name for name in node.output if name),
    )


def names_read(node: onnx.NodeProto) -> tuple[str, ...]:
    """Names a node reads, each once, those its subgraphs capture included."""
    read, inner = dict.fromkeys(node.input), {""}
    graphs = _subgraphs(node)
    while graphs:
        graph = graphs.pop()
        inner.update(x.name for x in (*graph.input, *graph.initializer))
        read |= dict.fromkeys(o.name for o in graph.output)
        for part in graph.node:
            inner.update(part.output)
            read |= dict.fromkeys(part.input)
            graphs += _subgraphs(part)
    return tuple(name for name in read if name not in inner)  # ONNX forbids equal names inside


def _subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    results = [graph for a in node.attribute for graph in a.graphs]
    return results + [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


def _too_small(fused: Fused, min_nodes: int) -> list[int]:
    """Positions of members whose kernel replaces too few nodes."""
    result = set()
    for member, origins in zip(fused.members, fused.origins, strict=True):
        if isinstance(member, GenericOp) and len(origins) < min_nodes:
            result.update(origins)
    return sorted(result)


def _steps(
    fused: Fused,
    computed: Sequence[int],
    constants: Mapping[str, np.ndarray],
    outputs: Collection[str],
) -> tuple[KernelStep | RuntimeStep, ...]:
    """All kernels that can run, one step each; then all nodes that can run, one step; and so on."""
    order = _alternating(fused.members)
    step_of = {at: number for number, group in enumerate(order) for at in group}
    read_by: dict[str, set[int]] = {}
    for at, member in enumerate(fused.members):
        for value in reads_of(member):
            read_by.setdefault(value, set()).add(step_of[at])
    steps: list[KernelStep | RuntimeStep] = []
    for number, group in enumerate(order):
        member = fused.members[group[0]]
        nodes = tuple(sorted(computed[i] for at in group for i in fused.origins[at]))
        if isinstance(member, GenericOp):
            own = {n: constants[n] for n in reads_of(member) if n in constants}
            steps.append(KernelStep(kernel=Kernel(op=member, constants=own), nodes=nodes))
            continue
        inside = [fused.members[at] for at in group]
        written = dict.fromkeys(v for m in inside for v in writes_of(m))
        read = dict.fromkeys(v for m in inside for v in reads_of(m))
        needed = {v for v in written if v in outputs or read_by.get(v, set()) - {number}}
        steps.append(
            RuntimeStep(
                nodes=nodes,
                reads=tuple(v for v in read if v not in written and v not in constants),
                writes=tuple(v for v in written if v in needed),
            )
        )
    return tuple(steps)


def _alternating(members: Sequence[Member]) -> list[list[int]]:
    """Positions by step: kernels that can run, alone; then all other nodes that can run, together;
    and so on.
    """
    producer_of = {v: at for at, m in enumerate(members) for v in writes_of(m)}
    readers: dict[int, list[int]] = {}
    waiting = []
    for at, member in enumerate(members):
        producers = {producer_of[v] for v in reads_of(member) if v in producer_of}
        waiting.append(len(producers))
        for m in producers:
            readers.setdefault(m, []).append(at)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for at, member in enumerate(members):
        if waiting[at] == 0:
            ready[isinstance(member, GenericOp)].append(at)
    order: list[list[int]] = []
    kernels = True
    while ready[True] or ready[False]:
        now = []
        while ready[kernels]:
            at = heapq.heappop(ready[kernels])
            now.append(at)
            for reader in readers.get(at, ()):
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(ready[isinstance(members[reader], GenericOp)], reader)
        order += [[at] for at in now] if kernels else [now] if now else []
        kernels = not kernels
    return order
