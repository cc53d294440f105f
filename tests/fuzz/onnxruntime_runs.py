"""ONNX Runtime as the judge uses it: the graph as it is written, every value shown on request."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime

Arrays = dict[str, np.ndarray]


def run(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], names: Sequence[str] | None = None
) -> Arrays:
    """Values by name; names: None for the graph's outputs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = [o.name for o in session.get_outputs()] if names is None else list(names)
    known = {i.name for i in session.get_inputs()}
    found = session.run(wanted, {n: a for n, a in feeds.items() if n in known})
    return dict(zip(wanted, map(np.asarray, found), strict=True))


def showing(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy whose outputs are these values too."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    known = {o.name for o in model.graph.output}
    for name in names:
        if name not in known:
            shown.graph.output.append(onnx.ValueInfoProto(name=name))
    return shown


def cut(model: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A copy where these values are inputs, `<name>/machine`; their own are still computed."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for node in made.graph.node:
        for i, name in enumerate(node.input):
            if name in given:
                node.input[i] = f"{name}/machine"
    for name, data in given.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(data.dtype)
        info = onnx.helper.make_tensor_value_info(f"{name}/machine", kind, data.shape)
        made.graph.input.append(info)
    return made


def roundings(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    """The QuantizeLinears by the names of their integers; those of constants are not among them."""
    constants = {i.name for i in model.graph.initializer}
    constants |= {n.output[0] for n in model.graph.node if n.op_type == "Constant"}
    return {
        n.output[0]: n
        for n in model.graph.node
        if n.op_type == "QuantizeLinear" and n.input[0] not in constants
    }


def standard(model: onnx.ModelProto) -> None:
    """ONNX knows no shapes of ONNX Runtime's own pairs: they become the standard's, in place."""
    for node in model.graph.node:
        if node.op_type in {"QuantizeLinear", "DequantizeLinear"}:
            node.domain = ""


def values_of(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Everything that the nodes of a model make, and its inputs."""
    names = [v for n in model.graph.node for v in n.output if v]
    outputs = [o.name for o in model.graph.output if o.name in feeds]
    return dict(feeds) | run(showing(model, names), feeds, [*names, *outputs])
