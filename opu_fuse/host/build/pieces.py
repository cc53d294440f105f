"""Host operators -> a host segment: fused kernels, and models for what ONNX Runtime keeps."""

from collections.abc import Callable, Collection, Mapping, Sequence

import onnx

from opu_fuse.bundle.kernel_json import kernel_to_json
from opu_fuse.bundle.program import (
    KERNEL_SUFFIX,
    Cut,
    HostedOp,
    HostPiece,
    HostSegment,
    PieceOp,
)
from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.value_types import ValueType
from opu_fuse.host.build.linalg.chain import HostPlan
from opu_fuse.host.build.linalg.lower import generic_of
from opu_fuse.host.build.linalg.pointwise import POINTWISE
from opu_fuse.host.build.linalg.site import constants_of, types_of
from opu_fuse.host.build.linalg.split import HostPiece as Part
from opu_fuse.host.build.linalg.split import split_host_model
from opu_fuse.host.build.linalg.views import VIEWS
from opu_fuse.host.build.segment import HostModel, constant_model, host_model

INEXACT = "{op}: numpy and ONNX Runtime round it differently"
FORM = "{op}: not with these types, shapes and attributes"
UNKNOWN = "{op}: kernels have no such operator"
ALONE = "no neighbour may be fused with it"


def host_segment(
    dfg: Dfg,
    nodes: Sequence[int],
    reasons: Mapping[int, str],
    number: int,
    types: dict[str, ValueType],
) -> tuple[HostSegment, dict[str, bytes]]:
    """The segment of some DFG nodes in order, and its members by name.

    reasons: why a node is on the host; number: of the segment among those of the host; types: see
    `host_model`.
    """
    name = f"{number:03d}"
    whole = host_model(dfg, nodes, f"host_{name}", types)
    parts, plan = split_host_model(whole.model)
    members = [_member(f"host/{name}.{position}", part) for position, part in enumerate(parts)]
    why_not = _why_not(whole.model)
    pieces = [
        HostPiece(
            member=member,
            inputs=part.inputs,
            outputs=part.outputs,
            ops=_operators(dfg, whole, part, why_not),
        )
        for (member, _), part in zip(members, parts, strict=True)
    ]
    segment = HostSegment(
        inputs=whole.inputs,
        outputs=whole.outputs,
        ops=tuple(HostedOp(dfg[n].name, dfg[n].op, reasons[n]) for n in nodes),
        pieces=tuple(pieces),
        cuts=_cuts(whole, plan),
        rounded=whole.rounded,
    )
    return segment, dict(members)


def constant_segment(
    dfg: Dfg, nodes: Sequence[int], number: int
) -> tuple[HostSegment, dict[str, bytes]]:
    """The segment that shows outputs of the model which are constants."""
    whole = constant_model(dfg, nodes, f"host_{number:03d}")
    member = f"host/{number:03d}.0.onnx"
    names = tuple(name for name, _ in whole.outputs)
    piece = HostPiece(member=member, inputs=(), outputs=names, ops=())
    segment = HostSegment(inputs=(), outputs=whole.outputs, ops=(), pieces=(piece,))
    return segment, {member: whole.model.SerializeToString(deterministic=True)}


def _member(stem: str, part: Part) -> tuple[str, bytes]:
    if part.kernel is not None:
        return stem + KERNEL_SUFFIX, kernel_to_json(part.kernel)
    assert part.model is not None
    return f"{stem}.onnx", part.model.SerializeToString(deterministic=True)


def _operators(
    dfg: Dfg, whole: HostModel, part: Part, why_not: Callable[[str], str]
) -> tuple[PieceOp, ...]:
    """Every operator with a node in the part, once, with the first such node's reason."""
    inside = set(part.nodes)
    results = {
        dfg[n].name: "" if part.kernel else why_not(name)
        for n, names in whole.nodes.items()
        for name in reversed(names)
        if name in inside
    }
    return tuple(PieceOp(name, reason) for name, reason in results.items())


def _why_not(model: onnx.ModelProto) -> Callable[[str], str]:
    """Why a node would be in no kernel, by its name."""
    types, constants = types_of(model), constants_of(model.graph)
    nodes = {node.name: node for node in model.graph.node}

    def why_not(name: str) -> str:
        node = nodes[name]
        if generic_of(node, types, constants) is not None:
            return ALONE
        if generic_of(node, types, constants, exact=False) is not None:
            return INEXACT.format(op=node.op_type)
        known = node.op_type in POINTWISE or node.op_type in VIEWS
        return (FORM if known else UNKNOWN).format(op=node.op_type)

    return why_not


def _cuts(whole: HostModel, plan: HostPlan) -> tuple[Cut, ...]:
    """Which pairs were not fused, and why."""
    operators = {name for names in whole.nodes.values() for name in names}
    cuts = []
    for producer, consumer, why in plan.refusals:
        short = {name: _short(name, operators) for name in (consumer, producer)}
        text = why.text
        for name, shorter in short.items():
            text = text.replace(name, shorter)
        cuts.append(Cut(short[producer], short[consumer], text))
    return tuple(cuts)


def _short(name: str, operators: Collection[str]) -> str:
    """Name of a fused kernel, without conversions where it has other operators."""
    return "+".join(part for part in name.split("+") if part in operators) or name
