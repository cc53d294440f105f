"""The same network written in another way, as exporters and optimisers do.

Saved by ONNX Runtime's optimiser (operators of its own), with sparse weights, with sequences for
Splits, with constant conditions and loops around nodes. What is loaded of it has to compute what
ONNX Runtime makes of the file.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.frontend.importing.load import load_model
from tests.fuzz.onnxruntime_runs import run

_ONE_TO_ONE = (
    "Relu",
    "LeakyRelu",
    "Sigmoid",
    "HardSigmoid",
    "HardSwish",
    "Tanh",
    "Elu",
    "Softplus",
)
_SLACK = 1e-4
"""Of floats that other operators have computed: relative to the largest."""
_SPLIT_HAS_AN_OPERAND = 13


def saved(model: onnx.ModelProto, _: np.random.Generator) -> onnx.ModelProto:
    """By ONNX Runtime's optimiser, at level extended."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "saved.onnx")
        data = model.SerializeToString()
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def with_sparse_weights(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Some float weights, with places counted or listed by axis."""
    kept = []
    for tensor in model.graph.initializer:
        data = numpy_helper.to_array(tensor)
        if data.dtype != np.float32 or not data.ndim or rng.random() < 0.5:
            kept.append(tensor)
            continue
        places = np.argwhere(data) if rng.random() < 0.5 else np.flatnonzero(data)
        values = numpy_helper.from_array(data[data != 0], tensor.name)
        indices = numpy_helper.from_array(places.astype(np.int64), f"{tensor.name}/places")
        made = helper.make_sparse_tensor(values, indices, list(data.shape))
        model.graph.sparse_initializer.append(made)
    kept = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    model.graph.ClearField("initializer")
    model.graph.initializer.extend(kept)
    return model


def with_sequences(model: onnx.ModelProto, _: np.random.Generator) -> onnx.ModelProto:
    """SplitToSequence and SequenceAt for every Split of listed lengths."""
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        lengths = constants.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type != "Split" or node.domain or lengths is None:
            nodes.append(node)
            continue
        name, split = f"{node.output[0]}/parts", node.input[1]
        equal = len(set(lengths.tolist())) == 1
        if equal:
            split = f"{name}/length"
            model.graph.initializer.append(numpy_helper.from_array(lengths[0], split))
        axis = {a.name: a.i for a in node.attribute}.get("axis", 0)
        nodes.append(helper.make_node("SplitToSequence", [node.input[0], split], [name], axis=axis))
        for index, output in enumerate(node.output):
            if output:
                place = f"{name}/{index}"
                constant = numpy_helper.from_array(np.asarray(index, np.int64), place)
                model.graph.initializer.append(constant)
                nodes.append(helper.make_node("SequenceAt", [name, place], [output]))
    _replace_nodes(model, nodes)
    return model


def with_control_flow(model: onnx.ModelProto, rng: np.random.Generator) -> onnx.ModelProto:
    """Some nodes in a branch that is always taken, or in a loop of one or two rounds."""
    types = _float_values(model)
    yes, nodes = "always", []
    for count, node in enumerate(model.graph.node):
        known = [name for name in node.output if name in types]
        whole = len(known) == len(node.output) and not any(a.HasField("g") for a in node.attribute)
        if not whole or rng.random() < 0.7:
            nodes.append(node)
        elif node.op_type in _ONE_TO_ONE and rng.random() < 0.5:
            nodes.append(_in_a_loop(model, node, yes, count, int(rng.integers(1, 3))))
        else:
            nodes.append(_in_a_branch(node, yes, count))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), yes))
    _replace_nodes(model, nodes)
    return model


def _float_values(model: onnx.ModelProto) -> set[str]:
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    every = (*inferred.value_info, *inferred.output)
    return {v.name for v in every if v.type.tensor_type.elem_type == TensorProto.FLOAT}


def _in_a_branch(node: onnx.NodeProto, yes: str, count: int) -> onnx.NodeProto:
    branches = []
    for side in ("then", "else"):
        inner = onnx.NodeProto.FromString(node.SerializeToString())
        inner.name = f"{node.name}/{side}" if node.name else ""
        inner.output[:] = [f"{name}/{side}/{count}" for name in node.output]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in inner.output]
        branches.append(helper.make_graph([inner], side, [], results))
    then, other = branches
    return helper.make_node(
        "If", [yes], list(node.output), node.name or None, then_branch=then, else_branch=other
    )


def _in_a_loop(
    model: onnx.ModelProto, node: onnx.NodeProto, yes: str, count: int, rounds: int
) -> onnx.NodeProto:
    trips, value = f"trips/{count}", f"carried/{count}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(rounds, np.int64), trips))
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    inner.input[0], inner.output[:] = value, [f"{value}/next"]
    continues_accumulation = helper.make_node("Identity", [f"{value}/go"], [f"{value}/on"])
    body = helper.make_graph(
        [continues_accumulation, inner],
        "body",
        [
            helper.make_tensor_value_info(f"{value}/trip", TensorProto.INT64, ()),
            helper.make_tensor_value_info(f"{value}/go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(value, TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info(f"{value}/on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info(f"{value}/next", TensorProto.FLOAT, None),
        ],
    )
    operands = [trips, yes, node.input[0]]
    return helper.make_node("Loop", operands, list(node.output), node.name or None, body=body)


def _replace_nodes(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> None:
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    model.graph.ClearField("node")
    model.graph.node.extend(copies)


WRITINGS: Mapping[str, Callable[[onnx.ModelProto, np.random.Generator], onnx.ModelProto]] = {
    "saved": saved,
    "sparse": with_sparse_weights,
    "sequences": with_sequences,
    "control flow": with_control_flow,
}
_SHARES = {"": 0.6, "saved": 0.2, "sparse": 0.05, "sequences": 0.05, "control flow": 0.1}


def draw_writing(rng: np.random.Generator) -> str:
    """A key of `WRITINGS`, mostly none."""
    return str(rng.choice(list(_SHARES), p=list(_SHARES.values())))


def written(model: onnx.ModelProto, writing: str, seed: int) -> onnx.ModelProto:
    """The model in a writing; as it is where that is none, or ONNX Runtime takes it so only."""
    if not writing:
        return model
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    try:
        found = WRITINGS[writing](copy, np.random.default_rng([seed, 0xA17]))
        onnx.checker.check_model(found)
        onnxruntime.InferenceSession(
            found.SerializeToString(), _quiet(), providers=["CPUExecutionProvider"]
        )
    except Exception:  # noqa: BLE001 classes of libraries
        return model
    return found


def _quiet() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def misread(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[str]:
    """Outputs that the loaded model computes otherwise than ONNX Runtime does from the file."""
    wanted, got = run(model, inputs), run(ir.to_proto(load_model(model)), inputs)
    wrong = []
    for name, right in wanted.items():
        largest = np.abs(right).max(initial=0.0)
        if right.shape != got[name].shape or not np.allclose(
            got[name], right, rtol=_SLACK, atol=_SLACK * largest
        ):
            wrong.append(f"output {name!r}: the loaded model computes other numbers than the file")
    return wrong
