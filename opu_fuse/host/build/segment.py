"""The ONNX model of a host segment; `host_pieces.py` cuts it into what runs.

Inside such a model values are real numbers under their own names; int8 values enter and leave as
`<name>:int8` through DequantizeLinear and QuantizeLinear, and a result the model rounds is
rounded and shown in it. Values of types that numpy has not enter and leave as `<name>:wide`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
from msgspec import Struct
from onnx import helper, numpy_helper

from opu_fuse.dfg.graph import Dfg, Kind, Node, real_data
from opu_fuse.dfg.ort_operator import body_of, result_types
from opu_fuse.dfg.value_types import ValueType
from opu_fuse.dtypes import container_dtype
from opu_fuse.errors import ModelError
from opu_fuse.model.opsets import KNOWN
from opu_fuse.quant import QuantParams

IR_VERSION = 10
"""IR version of the models. Newer ones have no feature that is needed here."""


class HostModel(Struct, frozen=True, kw_only=True):
    """inputs, outputs: (name in the ONNX model, value name of the DFG); rounded: (value name,
    int8 tensor of the QDQ model) of every result that is rounded; nodes: DFG node -> names of the
    model's nodes that compute it."""

    model: onnx.ModelProto
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    rounded: tuple[tuple[str, str], ...]
    nodes: Mapping[int, tuple[str, ...]]


class _Draft(Struct):
    dfg: Dfg
    types: Mapping[str, ValueType]
    nodes: list[onnx.NodeProto]
    initializers: dict[str, onnx.TensorProto]
    inputs: dict[str, onnx.ValueInfoProto]
    names: dict[str, str]
    known: set[int]
    rounded: dict[str, str]
    results: list[onnx.ValueInfoProto]


def host_model(
    dfg: Dfg, nodes: Sequence[int], name: str, types: dict[str, ValueType] | None = None
) -> HostModel:
    """The model of one host segment: its nodes in order, values from outside as inputs, values
    read outside and rounded results as outputs.

    types: of values that earlier segments computed and inference does not know, by name; those of
    this one are added. Raises ModelError where nobody knows the type of an input.
    """
    types = {} if types is None else types
    inside = set(nodes)
    parts = {u for n in nodes for u in dfg.users[n] if dfg[u].kind is Kind.TUPLE_GET}
    draft = _Draft(dfg, types, [], {}, {}, {}, inside | parts, {}, [])
    names: dict[ir.Node, tuple[str, ...]] = {}
    for index in nodes:
        node = dfg[index]
        for operand in _operands(dfg, node):
            if operand not in draft.known:
                _add_input(draft, dfg[operand])
        if node.ir_node is None or node.ir_node in names or not _is_last_of(dfg, node, inside):
            continue
        names[node.ir_node] = (*(part.name or "" for part in node.body[:-1]), node.name)
        _append(draft, node)
    leaving = {i for i in inside | parts if _leaves(dfg, i, inside)}
    leaving |= {dfg.base(i) for i in leaving} & (inside | parts)  # the machine reads these
    outputs = [dfg[i] for i in sorted(leaving)]
    for node in outputs:
        if _is_narrow(node):
            assert node.type is not None
            _cast(draft, node.value, _boundary_name(node), node.type.container)
    shown = dict.fromkeys(
        [*map(_boundary_name, outputs), *(f"{value}:int8" for value in draft.rounded)]
    )
    graph = helper.make_graph(
        draft.nodes,
        name,
        list(draft.inputs.values()),
        [helper.make_empty_tensor_value_info(result) for result in shown],
        list(draft.initializers.values()),
        value_info=draft.results,
    )
    opsets = [helper.make_opsetid(d, v) for d, v in _opsets(dfg, nodes).items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    if any(n.type is None for n in outputs):
        types |= result_types(model)
    return HostModel(
        model=model,
        inputs=tuple(draft.names.items()),
        outputs=tuple((_boundary_name(n), n.value) for n in outputs),
        rounded=tuple(draft.rounded.items()),
        nodes={n: names[ir_node] for n in nodes if (ir_node := dfg[n].ir_node) in names},
    )


def constant_model(dfg: Dfg, nodes: Sequence[int], name: str) -> HostModel:
    """The model of outputs that are constants: it has no inputs and no operators."""
    outputs = {dfg[i].value: real_data(dfg[i]) for i in nodes}
    tensors = [
        numpy_helper.from_array(data.astype(container_dtype(data.dtype.name)), value)
        for value, data in outputs.items()
    ]
    shown = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    graph = helper.make_graph([], name, [], shown, tensors)
    opsets = [helper.make_opsetid("", KNOWN)]
    return HostModel(
        model=helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION),
        inputs=(),
        outputs=tuple((value, value) for value in outputs),
        rounded=(),
        nodes={},
    )


def _operands(dfg: Dfg, node: Node) -> Iterable[int]:
    """Operands with tuples looked through, each once."""
    results: dict[int, None] = {}
    stack = list(reversed(node.operands))
    while stack:
        operand = dfg[stack.pop()]
        if operand.kind is Kind.TUPLE:
            stack.extend(reversed(operand.operands))
        else:
            results[operand.index] = None
    return results


def _boundary_name(node: Node) -> str:
    if node.quant is not None:
        return f"{node.value}:int8"
    return f"{node.value}:wide" if _is_narrow(node) else node.value


def _is_narrow(node: Node) -> bool:
    return node.quant is None and node.type is not None and node.type.is_narrow


def _is_last_of(dfg: Dfg, node: Node, inside: Collection[int]) -> bool:
    """A conv and its owned bias are one ONNX node: it is at the position of the bias."""
    return not any(dfg[u].owner == node.index for u in dfg.users[node.index] if u in inside)


def _leaves(dfg: Dfg, index: int, inside: Collection[int]) -> bool:
    if not dfg[index].value or any(dfg[u].kind is Kind.TUPLE_GET for u in dfg.users[index]):
        return False
    return index in dfg.outputs or any(r not in inside for r in _readers(dfg, index))


def _readers(dfg: Dfg, index: int) -> Iterable[int]:
    stack = list(dfg.users[index])
    while stack:
        user = stack.pop()
        if dfg[user].kind is Kind.TUPLE:
            stack.extend(dfg.users[user])
        else:
            yield user


def _add_input(draft: _Draft, node: Node) -> None:
    """A constant becomes an initialiser of real numbers, a computed value an input."""
    draft.known.add(node.index)
    if node.kind is Kind.CONST:
        draft.initializers[node.value] = numpy_helper.from_array(real_data(node), node.value)
        return
    name = _boundary_name(node)
    known = node.type or draft.types.get(node.value)
    if known is None:
        raise ModelError(
            node.name,
            f"the type of {node.value!r} is not known: neither onnx nor ONNX Runtime infers it",
            "declare it in the model (value_info)",
        )
    draft.names[name] = node.value
    if node.quant is not None:
        draft.inputs[name] = known.info(name, ir.DataType.INT8)
        _convert(draft, "DequantizeLinear", name, node.value, node.quant)
        return
    draft.inputs[name] = known.info(name, known.container)
    if _is_narrow(node):
        _cast(draft, name, node.value, known.dtype)


def _append(draft: _Draft, node: Node) -> None:
    assert node.ir_node is not None
    nodes, constants = body_of(node, draft.initializers)
    draft.initializers |= {tensor.name: tensor for tensor in constants}
    proto = nodes[-1]
    proto.name = node.name
    results = [node]
    if len(node.ir_node.outputs) > 1:
        results = [
            draft.dfg[u] for u in draft.dfg.users[node.index] if draft.dfg[u].kind is Kind.TUPLE_GET
        ]
    draft.nodes += nodes
    for result in results:
        raw = result.value if result.quant is None else f"{result.value}:raw"
        if result.type is not None:  # where kernels begin and end, inference may not know it
            draft.results.append(result.type.info(raw))
        if result.quant is None:
            continue
        if result.tensor:
            draft.rounded[result.value] = result.tensor
        position = list(proto.output).index(result.value)
        proto.output[position] = raw
        _convert(draft, "QuantizeLinear", raw, f"{result.value}:int8", result.quant)
        _convert(draft, "DequantizeLinear", f"{result.value}:int8", result.value, result.quant)


def _convert(draft: _Draft, op: str, source: str, target: str, quant: QuantParams) -> None:
    scale, zero = f"{target}:scale", f"{target}:zero"
    values = {
        scale: np.array(quant.per_tensor, np.float32),
        zero: np.array(quant.zero_point, np.int8),
    }
    draft.initializers |= {name: numpy_helper.from_array(v, name) for name, v in values.items()}
    draft.nodes.append(helper.make_node(op, [source, scale, zero], [target], name=f"{target}:{op}"))


def _cast(draft: _Draft, source: str, target: str, dtype: ir.DataType) -> None:
    """A Cast that is exact in both directions; infinities of 8-bit floats remain infinities."""
    node = helper.make_node("Cast", [source], [target], name=f"{target}:Cast", to=int(dtype))
    if dtype.name.startswith("FLOAT8"):
        node.attribute.append(helper.make_attribute("saturate", 0))
    draft.nodes.append(node)


def _opsets(dfg: Dfg, nodes: Sequence[int]) -> dict[str, int]:
    results: dict[str, int] = {}
    for index in nodes:
        ir_node = dfg[index].ir_node
        if ir_node is not None and ir_node.graph is not None:
            results |= dict(ir_node.graph.opset_imports)
    return results or {"": 17}
