"""Operators that are made of others, by ONNX or by unrolling: their bodies in their place, with
what is known of them computed.
"""

import logging
from collections.abc import Collection, Mapping

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from opu_fuse.dfg.ort_operator import run_graph
from opu_fuse.host.build.linalg.site import TensorType, constants_of, types_of
from opu_fuse.host.build.steps.recurrent import unrolled

log = logging.getLogger(__name__)

_SIZES = frozenset({"Shape", "Size"})


def with_bodies(model: onnx.ModelProto, operators: Collection[str]) -> onnx.ModelProto | None:
    """The model with the bodies of these operators; None where none of them has one."""
    if (longer := _without_recurrence(model)) is not None:
        return folded(longer)
    names = [("", operator) for operator in operators]
    try:
        inlined = onnx.inliner.inline_selected_functions(
            _with_defaults(model, operators), names, exclude=False, inline_schema_functions=True
        )
    except Exception as error:  # noqa: BLE001  a body that onnx cannot build for these attributes
        log.info("no body of %s: %s", ", ".join(operators), error)
        return None
    count = sum(node.op_type in operators for node in model.graph.node)
    if sum(node.op_type in operators for node in inlined.graph.node) == count:
        return None
    return folded(inlined)


def _without_recurrence(model: onnx.ModelProto) -> onnx.ModelProto | None:
    types, constants = types_of(model), constants_of(model.graph)
    nodes: list[onnx.NodeProto] = []
    known: dict[str, np.ndarray] = {}
    for node in model.graph.node:
        found = unrolled(node, types, constants)
        nodes += [node] if found is None else found.nodes
        known |= {} if found is None else found.constants
    return _with(model, nodes, known) if known else None


def _with_defaults(model: onnx.ModelProto, operators: Collection[str]) -> onnx.ModelProto:
    """The model with all attributes of these operators said: bodies read them as they are."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    for node in (n for n in result.graph.node if n.op_type in operators):
        said = {a.name for a in node.attribute}
        for name, about in onnx.defs.get_schema(node.op_type, version, "").attributes.items():
            if name not in said and about.default_value.type:
                node.attribute.append(about.default_value)
    return result


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without nodes whose results are known: sizes, and what is computed of constants."""
    opsets = {o.domain: o.version for o in model.opset_import}
    while True:
        types, constants = types_of(model), constants_of(model.graph)
        known: dict[str, np.ndarray] = {}
        kept: list[onnx.NodeProto] = []
        for node in model.graph.node:
            data = _known(node, types, constants | known, opsets)
            if data is None:
                kept.append(node)
            else:
                known |= data
        if not known:
            return model
        model = _with(model, kept, known)


def _with(
    model: onnx.ModelProto, nodes: list[onnx.NodeProto], known: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.graph.ClearField("node")
    result.graph.node.extend(nodes)
    result.graph.initializer.extend(numpy_helper.from_array(d, n) for n, d in known.items())
    return result


def _known(
    node: onnx.NodeProto,
    types: Mapping[str, TensorType],
    constants: Mapping[str, np.ndarray],
    opsets: Mapping[str, int],
) -> dict[str, np.ndarray] | None:
    """Data of a node's results, where they do not depend on the model's inputs."""
    inputs, outputs = [n for n in node.input if n], [n for n in node.output if n]
    if node.op_type == "Constant" or not inputs or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in _SIZES and (kind := types.get(inputs[0])) and kind.shape is not None:
        values = {inputs[0]: np.zeros(kind.shape, kind.dtype)}
    elif all(name in constants for name in inputs):
        values = {name: constants[name] for name in inputs}
    else:
        return None
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in values.items()
    ]
    graph = helper.make_graph(
        [node], "known", given, [helper.make_empty_tensor_value_info(name) for name in outputs]
    )
    try:
        return dict(zip(outputs, run_graph(graph, opsets, values), strict=True))
    except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own
        log.info("%s: ONNX Runtime does not run it: %s", node.name or node.op_type, error)
        return None
