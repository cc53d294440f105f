"""A program as an ONNX model for ONNX Runtime: `EPContext` nodes and the operators of the host.

Each machine segment is a node of domain com.microsoft, which the provider runs; its attribute
`ep_cache_context` is the program of that segment, a program file like any other. Programs inside
the model have their constants once: those of the first one, which all others refer to by their
CRC. Host segments are the ONNX operators that they were compiled from. Inputs and outputs are
those of the model.

Names: `segment<n>` for the nodes, `opu/<value>:int8` for maps that are passed between segments,
`host<n>/…` for what is inside a host segment.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from opu_fuse.bundle.context_ports import element_type, from_value, to_value
from opu_fuse.bundle.file import DRAM, to_bytes
from opu_fuse.bundle.program import UNKNOWN, Bundle, HostSegment, Port
from opu_fuse.bundle.segment_programs import SegmentProgram, segment_programs
from opu_fuse.errors import ProgramError
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.process.atomic_files import whole_file

PROVIDER = "OpuFuseExecutionProvider"
"""Name of the provider in ONNX Runtime; `source` of its nodes."""
DOMAIN, NODE = "com.microsoft", "EPContext"
CONSTANTS = "constants_crc32"
"""Attribute of a node without constants: the CRC of those that it needs."""
IR_VERSION = 10
PREDICTED = "predicted_cycles"
"""Attribute of a node: the cycles of its groups, for profiles."""
_LARGEST = (1 << 31) - (1 << 20)
"""Bytes that a model with its programs inside may have: protobuf counts in 31 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextModel:
    """model: the ONNX model. files: programs to write next to it, by name; none where they are
    inside.
    """

    model: onnx.ModelProto
    files: Mapping[str, bytes]

    def data(self) -> bytes:
        """The model as `save` writes it."""
        return self.model.SerializeToString(deterministic=True)

    def save(self, path: str | Path) -> None:
        """Write the model, and its programs next to it. Raises ProgramError."""
        path = Path(path)
        try:
            for name, content in {**self.files, path.name: self.data()}.items():
                with whole_file(path.with_name(name)) as temporary:
                    temporary.write_bytes(content)
        except OSError as error:
            what = f"cannot be written ({error.strerror})"
            raise ProgramError(str(path), what, "choose another output file") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """Parts of the graph. names: value of the program -> its name in the graph."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    infos: list[onnx.ValueInfoProto] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)


def context_model(
    bundle: Bundle, hw: HwSpec, hosts: Sequence[onnx.ModelProto], *, stem: str = ""
) -> ContextModel:
    """The model of a program.

    hosts: the ONNX model of each host segment, whole, with the names of the segment. stem: programs
    are files `<stem>_segment<n>.opu`, "" for programs inside the model.

    Raises ProgramError for a program that cannot be written so.
    """
    if bundle.batch > 1 and hosts:
        raise ProgramError(
            bundle.model,
            f"runs {bundle.batch} images together, and its host operators one",
            "compile with --batch 1",
        )
    draft, files = _Draft(opsets={"": 17, DOMAIN: 1}), dict[str, bytes]()
    _inputs(draft, bundle)
    programs = {p.number: p for p in segment_programs(bundle)}
    models = iter(hosts)
    shown: set[str] = set()
    for number, segment in enumerate(bundle.segments):
        if isinstance(segment, HostSegment):
            _host(draft, segment, next(models), f"host{number}")
            continue
        program = programs[number]
        shown |= {port.name for port in _users_ports(program)}
        first = number == min(programs)
        name = f"{stem}_segment{number}.opu" if stem else ""
        if name:
            files[name] = to_bytes(program.bundle, hw)
            context = _file_context(name)
        else:
            context = _inside_context(program.bundle, hw, first=first)
        node = _node(draft, program, hw, context)
        draft.nodes.extend(_with_casts(node, bundle, program))
    for port in bundle.outputs:
        if port.name not in shown:
            source = draft.names[port.value]
            _add(draft, *from_value(port, source, is_int8=source == _map(port.value)))
    return ContextModel(model=_finished(draft, bundle), files=files)


def _inputs(draft: _Draft, bundle: Bundle) -> None:
    """Values that host segments read are computed from the inputs as the engines do."""
    read = {v for s in bundle.segments if isinstance(s, HostSegment) for _, v in s.inputs}
    read |= {port.value for port in bundle.outputs}
    maps = {t.name: t for t in bundle.tensors}
    for port in bundle.inputs:
        if port.value in read:
            is_int8 = port.value in maps or port.scale is not None
            name = _map(port.value) if is_int8 else _inner(port.value)
            shape = maps[port.value].shape if port.value in maps else None
            _add(draft, *to_value(port, name, is_int8=is_int8, shape=shape))
            draft.names[port.value] = name
        if port.unrounded in read - {""}:
            as_given = replace(port, scale=None, turn=None, table=None)
            name = _inner(port.unrounded)
            _add(draft, *to_value(as_given, name, is_int8=False))
            draft.names[port.unrounded] = name


def _host(draft: _Draft, segment: HostSegment, model: onnx.ModelProto, prefix: str) -> None:
    """Append the operators of a host segment under names of their own."""
    inputs = {name: draft.names[value] for name, value in segment.inputs}
    outputs = {name: _inner(name) for name, _ in segment.outputs}
    inside = {t.name for t in model.graph.initializer}
    inside |= {name for node in model.graph.node for name in node.output}
    names = {name: f"{prefix}/{name}" for name in inside} | inputs | outputs

    def renamed(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    renamed(inner)

    own = onnx.ModelProto()
    own.CopyFrom(model)
    renamed(own.graph)
    for tensor in own.graph.initializer:
        tensor.name = names[tensor.name]
    for node in own.graph.node:
        node.name = f"{prefix}/{node.name}"
    for info in own.graph.value_info:
        if info.name in names:
            info.name = names[info.name]
            draft.infos.append(info)
    _add(draft, own.graph.node, own.graph.initializer)
    for opset in own.opset_import if own.graph.node else ():
        draft.opsets[opset.domain] = max(opset.version, draft.opsets.get(opset.domain, 1))
    draft.names.update((value, outputs[name]) for name, value in segment.outputs)


def _file_context(name: str) -> dict[str, Any]:
    """Attributes of a node whose program is next to the model."""
    return {"main_context": 1, "embed_mode": 0, "ep_cache_context": name.encode()}


def _inside_context(bundle: Bundle, hw: HwSpec, *, first: bool) -> dict[str, Any]:
    """Attributes of a node with its program inside."""
    left_out = () if first else (DRAM,)
    attributes: dict[str, Any] = {
        "main_context": int(first),
        "embed_mode": 1,
        "ep_cache_context": to_bytes(bundle, hw, without=left_out),
    }
    if not first:
        attributes[CONSTANTS] = zlib.crc32(np.ascontiguousarray(bundle.constants).data)
    return attributes


def _node(
    draft: _Draft, program: SegmentProgram, hw: HwSpec, context: Mapping[str, Any]
) -> onnx.NodeProto:
    """The node of a machine segment. context: its attributes about the program."""
    users_in = program.bundle.inputs[: len(program.bundle.inputs) - len(program.maps_in)]
    outputs = [port.name for port in _users_ports(program)]
    first_map = len(outputs)
    for name, port in zip(program.maps_out, program.bundle.outputs[first_map:], strict=True):
        inner = _map(name)
        draft.infos.append(helper.make_tensor_value_info(inner, TensorProto.INT8, port.shape))
        draft.names[name] = inner
        outputs.append(inner)
    node = helper.make_node(
        NODE,
        [*(port.name for port in users_in), *(draft.names[name] for name in program.maps_in)],
        outputs,
        name=f"segment{program.number}",
        domain=DOMAIN,
        **context,
        source=PROVIDER,
        partition_name=f"segment{program.number}",
        ep_sdk_version=f"opu-fuse {program.bundle.tool_version}",
        hardware_architecture=f"{hw.name} {hw.spec_hash:011x}",
    )
    cycles = sum(group.cycles for group in program.bundle.groups)
    node.attribute.append(helper.make_attribute(PREDICTED, cycles))
    return node


def _with_casts(
    node: onnx.NodeProto, bundle: Bundle, program: SegmentProgram
) -> list[onnx.NodeProto]:
    """The node, with casts where a port of the model has a type that its program has not."""
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    users = {port.name: port.dtype for port in (*bundle.inputs, *bundle.outputs)}
    for names, ports in (
        (node.input, program.bundle.inputs),
        (node.output, program.bundle.outputs),
    ):
        for n, port in enumerate(ports):
            own = users.get(names[n], port.dtype)
            if own == port.dtype:
                continue
            user, inner = names[n], f"{node.name}/{names[n]}"
            names[n] = inner
            if names is node.input:
                before.append(_cast(user, inner, port.dtype))
            else:
                after.append(_cast(inner, user, own))
    return [*before, node, *after]


def _cast(source: str, target: str, dtype: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], name=target, to=element_type(dtype))


def _users_ports(program: SegmentProgram) -> tuple[Port, ...]:
    """Outputs of the model that a segment shows."""
    return program.bundle.outputs[: len(program.bundle.outputs) - len(program.maps_out)]


def _inner(name: str) -> str:
    return f"opu/{name}"


def _map(name: str) -> str:
    """Name of a value that is rounded."""
    return f"{_inner(name)}:int8"


def _add(
    draft: _Draft, nodes: Sequence[onnx.NodeProto], initializers: Sequence[TensorProto]
) -> None:
    draft.nodes.extend(nodes)
    draft.initializers.extend(initializers)


def _finished(draft: _Draft, bundle: Bundle) -> onnx.ModelProto:
    graph = helper.make_graph(
        draft.nodes,
        bundle.model,
        [_info(port, bundle.batch) for port in bundle.inputs],
        [_info(port, bundle.batch) for port in bundle.outputs],
        draft.initializers,
        value_info=draft.infos,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(d, v) for d, v in draft.opsets.items()],
        ir_version=IR_VERSION,
        producer_name="opu-fuse",
        producer_version=bundle.tool_version,
    )
    if model.ByteSize() > _LARGEST:
        raise ProgramError(
            bundle.model,
            f"its programs make a model of {model.ByteSize()} bytes, {_LARGEST} are the limit",
            "write the programs next to the model (--context-files)",
        )
    return model


def _info(port: Port, batch: int) -> onnx.ValueInfoProto:
    shape = [None if size == UNKNOWN else size for size in port.shape]
    if batch > 1:
        shape[0] = batch
    return helper.make_tensor_value_info(port.name, element_type(port.dtype), shape)
