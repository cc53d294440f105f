"""Smaller networks that may fail in the same way: fewer extras, outputs, nodes, rows, channels."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.network_case import NetworkCase, rounds
from tests.fuzz.onnxruntime_runs import standard
from tests.fuzz.sketch import needed

_PLAIN = {
    "rtl": False,
    "cycle": False,
    "file": False,
    "canonical": False,
    "shuffle": None,
    "batch": 1,
    "writing": "",
    "strategy": "matched",
}
_CHANNEL_CONSTANTS = ("BatchNormalization", "PRelu", "Add", "Sub", "Mul", "Div")


def smaller(case: NetworkCase) -> Iterator[NetworkCase]:
    """Candidates, the largest steps first; whoever judges them finds out which are networks."""
    for name, plain in _PLAIN.items():
        if getattr(case, name) != plain:
            yield replace(case, **{name: plain})
    model = case.proto()
    for proto in _models(model):
        finished = _finished(proto)
        if finished is not None and finished != case.model:
            yield replace(case, model=finished, quantised=case.quantised and rounds(proto))


def _models(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    if model.graph.value_info:
        bare = _copy(model)
        bare.graph.ClearField("value_info")
        yield bare
    shapes = _shapes(model)
    yield from _fewer_outputs(model)
    yield from _earlier_outputs(model, shapes)
    yield from _later_inputs(model, shapes)
    yield from _without_a_node(model, shapes)
    yield from _smaller_images(model)
    yield from _fewer_channels(model)


def _fewer_outputs(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    for i in range(len(model.graph.output)):
        if len(model.graph.output) > 2:
            yield _with_outputs(model, [model.graph.output[i]])
    for i in range(len(model.graph.output)):
        if len(model.graph.output) > 1:
            rest = [o for n, o in enumerate(model.graph.output) if n != i]
            yield _with_outputs(model, rest)


def _earlier_outputs(model: onnx.ModelProto, shapes: dict) -> Iterator[onnx.ModelProto]:
    """A value inside as the only output, the earliest that fails."""
    for node in model.graph.node:
        for name in node.output:
            if name in shapes and [o.name for o in model.graph.output] != [name]:
                yield _with_outputs(model, [helper.make_tensor_value_info(name, *shapes[name])])


def _later_inputs(model: onnx.ModelProto, shapes: dict) -> Iterator[onnx.ModelProto]:
    """A value inside as an input, the latest that fails."""
    for node in reversed(model.graph.node):
        for name in node.output:
            if name.endswith("/un"):  # an input already
                continue
            if name in shapes and shapes[name][0] == TensorProto.FLOAT:
                made = _copy(model)
                for other in made.graph.node:
                    other.output[:] = [f"{v}/un" if v == name else v for v in other.output]
                made.graph.input.append(helper.make_tensor_value_info(name, *shapes[name]))
                yield made


def _without_a_node(model: onnx.ModelProto, shapes: dict) -> Iterator[onnx.ModelProto]:
    """A node whose operand has its result's form is passed by; so is a rounding."""
    for i, node in enumerate(model.graph.node):
        result = node.output[0]
        for operand in dict.fromkeys(node.input):
            if shapes.get(operand) is None or shapes.get(operand) != shapes.get(result):
                continue
            yield _renamed(model, i, result, operand)
    rounding = {n.output[0]: n for n in model.graph.node if n.op_type == "QuantizeLinear"}
    for i, node in enumerate(model.graph.node):
        if node.op_type == "DequantizeLinear" and node.input[0] in rounding:
            yield _renamed(model, i, node.output[0], rounding[node.input[0]].input[0])


def _renamed(model: onnx.ModelProto, index: int, old: str, new: str) -> onnx.ModelProto:
    """Without the node; who read its result reads something else."""
    made = _copy(model)
    del made.graph.node[index]
    for node in made.graph.node:
        node.input[:] = [new if v == old else v for v in node.input]
    if old in {o.name for o in made.graph.output}:
        made.graph.node.append(helper.make_node("Identity", [new], [old]))
    return made


def _smaller_images(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """All images with fewer rows or columns."""
    sizes = {tuple(_dims(i)[2:]) for i in model.graph.input if len(_dims(i)) == 4}
    for size in sizes:
        for axis in (0, 1):
            n = size[axis]
            for less in dict.fromkeys((1, n // 2, n - 1)):
                if 0 < less < n:
                    made = _copy(model)
                    for port in made.graph.input:
                        if tuple(_dims(port)[2:]) == size:
                            port.type.tensor_type.shape.dim[2 + axis].dim_value = less
                    yield made


def _fewer_channels(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Inputs and convolutions with fewer channels; who reads them follows as far as possible."""
    places = [i.name for i in model.graph.input if len(_dims(i)) == 4]
    places += [n.output[0] for n in model.graph.node if n.op_type == "Conv"]
    for place in places:
        for divisor in (0, 2, 1):
            made = _copy(model)
            if _cut_channels(made, place, divisor):
                yield made


def _cut_channels(model: onnx.ModelProto, place: str, divisor: int) -> bool:
    """To 1, to half, or one less; False when there is nothing to cut."""
    constants = {i.name: i for i in model.graph.initializer}

    def fewer(n: int) -> int:
        return 1 if divisor == 0 else n // 2 if divisor == 2 else n - 1

    for port in model.graph.input:
        if port.name == place:
            n = _dims(port)[1]
            if fewer(n) in {0, n}:
                return False
            port.type.tensor_type.shape.dim[1].dim_value = fewer(n)
    for node in model.graph.node:
        if place in node.output:
            weight = constants.get(node.input[1])
            if weight is None or fewer(weight.dims[0]) in {0, weight.dims[0]}:
                return False
            if not constants.keys() >= set(node.input[1:]):  # a bias behind a pair
                return False
            for name in node.input[1:]:
                _slice(constants[name], 0, fewer(constants[name].dims[0]))
    return _follow(model, constants)


def _follow(model: onnx.ModelProto, constants: dict[str, onnx.TensorProto]) -> bool:
    """Constants fitted to the channels of what they meet, in the order of the nodes."""
    for _ in range(len(model.graph.node)):
        shapes = _shapes(model)
        if not any(_fit(node, constants, shapes) for node in model.graph.node):
            return True
    return True


def _fit(node: onnx.NodeProto, constants: dict, shapes: dict) -> bool:
    """Whether a constant of this node was too large and has been cut."""
    known = shapes.get(node.input[0] if node.input else "")
    if known is None or len(known[1]) < 2:
        return False
    c = known[1][1]
    if node.op_type == "Conv" and node.input[1] in constants:
        weight = constants[node.input[1]]
        group = next((a for a in node.attribute if a.name == "group"), None)
        if group is not None and group.i > 1:
            if group.i != weight.dims[0] or group.i == c:
                return False
            group.i = c
            done = [_slice(constants[v], 0, c) for v in node.input[1:] if v in constants]
            return all(done)
        return _slice(weight, 1, c)
    if node.op_type == "Gemm" and node.input[1] in constants:
        turned = any(a.name == "transB" and a.i for a in node.attribute)
        return _slice(constants[node.input[1]], int(turned), c)
    if node.op_type in _CHANNEL_CONSTANTS:
        done = False
        for name in node.input[1:]:
            if name in constants:
                dims = list(constants[name].dims)
                axis = next((i for i, n in enumerate(dims) if n > 1), -1)
                if axis >= 0 and (len(dims) - axis in {3, 1} or node.op_type[0] == "B"):
                    done |= _slice(constants[name], axis, c)
        return done
    return False


def _slice(tensor: onnx.TensorProto, axis: int, count: int) -> bool:
    data = numpy_helper.to_array(tensor)
    if data.ndim <= axis or data.shape[axis] <= count:
        return False
    kept = np.ascontiguousarray(np.take(data, range(count), axis))
    tensor.CopyFrom(numpy_helper.from_array(kept, tensor.name))
    return True


def _with_outputs(model: onnx.ModelProto, outputs: list) -> onnx.ModelProto:
    made = _copy(model)
    made.graph.ClearField("output")
    made.graph.output.extend(outputs)
    return made


def _finished(model: onnx.ModelProto) -> bytes | None:
    """Without what no output needs, outputs with their shapes; None when no node is left."""
    graph = model.graph
    kept = needed(list(graph.node), [o.name for o in graph.output])
    graph.ClearField("node")
    graph.node.extend(kept)
    read = {v for n in kept for v in n.input} | {o.name for o in graph.output}
    for things in (graph.initializer, graph.input, graph.value_info):
        for i in reversed(range(len(things))):
            if things[i].name not in read:
                del things[i]
    if not kept:
        return None
    shapes = _shapes(model)
    for output in graph.output:
        if output.name not in shapes or 0 in shapes[output.name][1]:
            return None
        output.CopyFrom(helper.make_tensor_value_info(output.name, *shapes[output.name]))
    return model.SerializeToString()


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, list[int]]]:
    """Type and shape of all values, from inference alone."""
    bare = _copy(model)
    bare.graph.ClearField("value_info")
    standard(bare)
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    graph = onnx.shape_inference.infer_shapes(bare, data_prop=True).graph
    return {
        v.name: (v.type.tensor_type.elem_type, _dims(v))
        for v in (*graph.input, *graph.output, *graph.value_info)
        if v.type.tensor_type.HasField("shape")
    }


def _dims(info: onnx.ValueInfoProto) -> list[int]:
    return [d.dim_value for d in info.type.tensor_type.shape.dim]


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made
