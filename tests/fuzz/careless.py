"""QDQ models as a careless tool makes them: pairs wherever it likes.

Around layers alone or around everything, in front of a function or behind it, on a value or for one
of its readers, twice in a row; weights and biases in any form. `carelessness.py` has the numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.carelessness import Careless, Params, limits
from tests.fuzz.onnxruntime_runs import run, values_of

_WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_BIASED = ("Conv", "ConvTranspose", "Gemm")
_MOVING = (
    *("MaxPool", "Reshape", "Flatten", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze"),
    *("Relu", "Gather", "Resize", "SpaceToDepth", "DepthToSpace", "Concat", "Pad", "Identity"),
)
_FUNCTIONS = (
    *("Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu"),
    *("Add", "Mul", "BatchNormalization", "MaxPool"),
)
_ROUNDED_CONSTANTS = ("Add", "Mul", "Sub", "Div", "Concat")
_OLD, _NEW = (10, 11, 12), (19, 21, 22, 23)
_RUNNABLE = 9
"""IR version that every ONNX Runtime takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manner:
    """Where a tool rounds. rate: share of the values that get pairs. fused: none between a layer
    and what it takes for a part of it. operands: only what layers read. kept: moved values have the
    scale that they had. weights, biases: how often each form is taken.
    """

    rate: float
    fused: bool
    operands: bool
    kept: bool
    weights: tuple[float, ...]
    biases: tuple[float, ...]


_WEIGHT_FORMS = ("integers", "rounded", "baked", "floats")
_BIAS_FORMS = ("sums", "nearly", "finer", "coarser", "bytes", "floats")


def _manner(tool: Careless) -> _Manner:
    spread = tool.rng.dirichlet
    weights = [1.0, 0.0, 0.0, 0.0] if tool.chance(0.35) else spread([2.0, 0.7, 0.8, 0.15])
    biases = [1.0, 0, 0, 0, 0, 0] if tool.chance(0.3) else spread([1.0, 0.4, 0.4, 0.3, 0.2, 0.8])
    return _Manner(
        rate=float(tool.pick(0.4, 0.8, 0.95, 1.0, 1.0)),
        fused=tool.chance(0.45),
        operands=tool.chance(0.15),
        kept=tool.chance(0.7),
        weights=tuple(weights),
        biases=tuple(biases),
    )


def careless(
    model: onnx.ModelProto, sample: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[onnx.ModelProto, bool]:
    """The QDQ form, and whether all of its scales are powers of two. The argument stays as it is.
    Raises what ONNX Runtime does.
    """
    values = values_of(model, sample)
    model = _in_another_set(model, sample, rng)
    tool = Careless(rng, model.opset_import[0].version)
    return _Placing(model, values, tool).model(), tool.pow2


def _in_another_set(
    model: onnx.ModelProto, sample: Mapping[str, np.ndarray], rng: np.random.Generator
) -> onnx.ModelProto:
    """Now and then an old or a new operator set, where the same nodes mean the same in it."""
    if rng.random() < 0.5:
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import[0].version = int(rng.choice(_OLD if rng.random() < 0.3 else _NEW))
    try:
        onnx.checker.check_model(made, full_check=True)
        found, expected = run(made, sample), run(model, sample)
    except Exception:  # noqa: BLE001 both have classes of their own
        return model
    same = all(np.array_equal(found[n], a, equal_nan=True) for n, a in expected.items())
    return made if same else model


class _Placing:
    """Goes through the nodes in order; `_reads` says what a node's operand is from here on."""

    def __init__(
        self, model: onnx.ModelProto, values: Mapping[str, np.ndarray], tool: Careless
    ) -> None:
        self._source, self._values, self._tool = model, values, tool
        self._manner = _manner(tool)
        self._constants = {i.name: i for i in model.graph.initializer}
        self._inputs = {i.name for i in model.graph.input}
        self._outputs = {o.name for o in model.graph.output}
        self._readers: dict[str, list[tuple[int, int]]] = {}
        for place, node in enumerate(model.graph.node):
            for index, name in enumerate(node.input):
                self._readers.setdefault(name, []).append((place, index))
        self._reads: dict[tuple[int, int], str] = {}
        self._shown: dict[str, str] = {}
        self._params: dict[str, Params] = {}
        self._weights: dict[str, tuple[str, Params | None]] = {}
        self._types: dict[str, int] = {}
        self._source_params: Params | None = None

    def model(self) -> onnx.ModelProto:
        for port in self._source.graph.input:
            if port.type.tensor_type.elem_type == TensorProto.FLOAT:
                self._input(port.name)
        for place, node in enumerate(self._source.graph.node):
            self._node(place, node)
        return self._made()

    def _made(self) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(self._source)
        graph, nodes = made.graph, self._tool.nodes
        for name, last in self._shown.items():
            _rename(nodes, last, name)
        for port in (*graph.input, *graph.output):
            if port.name in self._types:
                port.type.tensor_type.elem_type = self._types[port.name]
        for field in ("node", "initializer", "value_info"):
            graph.ClearField(field)
        graph.node.extend(nodes)
        read = {name for n in nodes for name in n.input}
        tensors = {**self._constants, **self._tool.tensors}
        graph.initializer.extend(t for name, t in tensors.items() if name in read)
        if any(n.domain for n in nodes):
            made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        made.ir_version = max(made.ir_version, _RUNNABLE)
        return made

    def _input(self, name: str) -> None:
        tool = self._tool
        plain = self._drawn_params(name, None)
        whole = plain.scale.size == 1 and plain.kind.itemsize == 1 and name not in self._outputs
        if whole and tool.odd("integers"):
            self._types[name] = helper.np_dtype_to_tensor_dtype(plain.kind)
            number = tool.dequantize(name, plain)
            self._params[number] = plain
            self._give(name, number)
        else:
            self._place(name, name, None)

    def _node(self, place: int, node: onnx.NodeProto) -> None:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        for index, name in enumerate(node.input):
            if name not in self._constants:
                made.input[index] = self._reads.get((place, index), name)
        for index, name in enumerate(node.input):
            if name in self._constants:
                made.input[index] = self._constant(node, made, index, name)
        for index, name in enumerate(node.output):
            if name in self._outputs:
                made.output[index] = f"{name}/real"
        self._tool.nodes.append(made)
        self._source_params = self._params.get(made.input[0])
        for index, name in enumerate(node.output):
            if name:
                self._place(name, made.output[index], node)

    def _place(self, name: str, real: str, node: onnx.NodeProto | None) -> None:
        """Pairs behind a value, for some or all of its readers."""
        tool, readers = self._tool, self._readers.get(name, [])
        if not self._is_rounded(name, node):
            self._give(name, real)
            return
        params = self._drawn_params(name, node)
        way = tool.rng.choice(_WAYS, p=_WAY_SHARES)
        if way == "whole":
            self._give(name, self._pair(real, params, name))
        elif way == "twice":
            again = params if tool.chance(0.5) else self._drawn_params(name, None)
            self._give(name, self._pair(self._pair(real, params, name), again, name))
        elif way == "some":
            self._give(name, real)
            number = self._pair(real, params, name)
            for reader in readers:
                if tool.chance(0.5):
                    self._reads[reader] = number
        elif way == "each":
            self._give(name, real)
            for reader in readers:
                if tool.chance(0.2):
                    params = self._drawn_params(name, None)
                self._reads[reader] = self._pair(real, params, name)
            if name in self._outputs:
                self._shown[name] = self._pair(real, params, name)
        else:
            integers = tool.quantize(real, params)
            behind = [tool.dequantize(integers, params) for _ in range(len(readers) + 1)]
            self._params |= dict.fromkeys(behind, params)
            self._give(name, behind[-1])
            self._reads |= dict(zip(readers, behind, strict=False))
        if name in self._outputs and tool.odd("integers"):
            self._end_in_integers(name, real, params)

    def _give(self, name: str, number: str) -> None:
        """All readers of a value, and the outside, read this."""
        self._reads |= dict.fromkeys(self._readers.get(name, []), number)
        if name in self._outputs and name not in self._inputs:
            self._shown[name] = number

    def _end_in_integers(self, name: str, real: str, params: Params) -> None:
        if params.kind.itemsize == 1 and params.scale.size == 1 and name in self._shown:
            self._shown[name] = self._tool.quantize(real, params)
            self._types[name] = helper.np_dtype_to_tensor_dtype(params.kind)

    def _pair(self, real: str, params: Params, name: str) -> str:
        number = self._tool.pair(real, params, self._tool.name(f"{name}/q"))
        self._params[number] = params
        return number

    def _is_rounded(self, name: str, node: onnx.NodeProto | None) -> bool:
        value, manner, tool = self._values.get(name), self._manner, self._tool
        if value is None or value.dtype != np.float32 or not np.isfinite(value).all():
            return False
        if not value.size or (node is None and name in self._outputs):
            return False
        readers = [self._source.graph.node[place] for place, _ in self._readers.get(name, [])]
        if manner.operands and not any(r.op_type in _WEIGHTED for r in readers):
            return tool.chance(0.1)
        if manner.fused and node is not None and len(readers) == 1 and name not in self._outputs:
            part = node.op_type in {*_WEIGHTED, *_FUNCTIONS} and readers[0].op_type in _FUNCTIONS
            if part and tool.chance(0.85):
                return False
        return tool.chance(manner.rate)

    def _drawn_params(self, name: str, node: onnx.NodeProto | None) -> Params:
        """How a value is rounded: as what it is moved from, or by its own numbers."""
        moves = node is not None and node.op_type in _MOVING and self._manner.kept
        known = self._source_params if moves and self._tool.chance(0.9) else None
        if known is not None and known.scale.size == 1:
            return known
        readers = [self._source.graph.node[place] for place, _ in self._readers.get(name, [])]
        channels = bool(readers) and all(_is_depthwise(n, self._constants) for n in readers)
        return self._tool.activation(self._values[name], channels=channels)

    def _constant(self, node: onnx.NodeProto, made: onnx.NodeProto, index: int, name: str) -> str:
        data = numpy_helper.to_array(self._constants[name])
        if data.dtype != np.float32 or not data.size:
            return name
        if node.op_type in _WEIGHTED and index == 1:
            return self._weight(node, name, data)
        if node.op_type in _BIASED and index == 2:
            return self._bias(made, name, data)
        if node.op_type in _ROUNDED_CONSTANTS and self._tool.chance(0.4):
            form = str(self._tool.pick("integers", "rounded", "baked"))
            params = self._tool.weight(data, 0)
            if params.scale.size == 1:
                return self._rounded(name, data, params, form)
        return name

    def _weight(self, node: onnx.NodeProto, name: str, data: np.ndarray) -> str:
        """Layers that share a weight share its pair, or have one each."""
        tool = self._tool
        if name in self._weights and tool.chance(0.6):
            return self._weights[name][0]
        form = str(tool.rng.choice(_WEIGHT_FORMS, p=self._manner.weights))
        if form == "floats":
            return name
        if tool.odd("dead"):
            data = data.copy()
            data[np.arange(len(data)) % 3 == 0] = 0.0
        params = tool.blocks(data) or tool.weight(data, _output_axis(node, data))
        if tool.odd("dead") and params.scale.ndim and form == "integers":
            others = tuple(i for i in range(data.ndim) if i != params.axis)
            if not params.block:
                empty = ~data.any(axis=others)
                params = replace(params, scale=np.where(empty, np.float32(0), params.scale))
        number = self._rounded(name, data, params, form)
        known = params if form != "baked" else None
        self._weights[name] = number, known
        self._weights[number] = number, known
        return number

    def _rounded(self, name: str, data: np.ndarray, params: Params, form: str) -> str:
        """A constant as integers behind a DQ, as floats between Q and DQ, or as rounded floats."""
        tool = self._tool
        if form == "rounded" and params.kind.itemsize == 1 and limits(params.kind)[1] > 15:
            kept = tool.constant(data.astype(np.float32), f"{name}/kept")
            return tool.dequantize(tool.quantize(kept, replace(params, bare=False)), params)
        integers = params.integers(data)
        if form == "baked":
            return tool.constant(params.numbers(integers), f"{name}/baked")
        return tool.dequantize(tool.constant(integers, f"{name}/integers"), params)

    def _bias(self, made: onnx.NodeProto, name: str, data: np.ndarray) -> str:
        tool = self._tool
        form = str(tool.rng.choice(_BIAS_FORMS, p=self._manner.biases))
        x, weight = self._params.get(made.input[0]), self._weights.get(made.input[1])
        if form == "floats":
            return name
        if form == "bytes":
            params = replace(tool.weight(data, 0), axis=0)
            return self._rounded(name, data, params, "integers")
        if x is None or weight is None or weight[1] is None or x.scale.size > 1:
            return name
        scale = weight[1].scale
        if weight[1].block or scale.size not in {1, data.size} or not scale.all():
            return name
        if scale.size > 1 and (data.ndim != 1 or tool.opset < 13):
            return name
        factor = {
            "sums": 1.0,
            "nearly": float(tool.pick(1 + 1e-6, 1 + 3e-5, 1.001, 1.01)),
            "finer": float(tool.pick(0.5, 0.25, 2.0**-5, 0.37, 2.0**-14)),
            "coarser": float(tool.pick(2.0, 64.0, 1.7, 2.0**12)),
        }[form]
        scale = (scale.reshape(-1) if scale.size > 1 else scale.reshape(())) * x.scale.reshape(())
        scale = (scale * factor).astype(np.float32)
        if not np.all((scale > 0) & np.isfinite(scale)):
            return name
        zero = np.zeros(scale.shape, np.int32)
        params = Params(scale=scale, zero=zero, bare=tool.chance(0.5))
        return self._rounded(name, data, params, "integers")


_WAYS = ("whole", "some", "each", "shared", "twice")
_WAY_SHARES = (0.72, 0.08, 0.07, 0.06, 0.07)
"""A pair for all readers; for some; one each; one Q with a DQ each; two pairs in a row."""


def _rename(nodes: list[onnx.NodeProto], old: str, new: str) -> None:
    """A value gets the name that the outside knows."""
    for node in nodes:
        for names in (node.input, node.output):
            for i, found in enumerate(names):
                if found == old:
                    names[i] = new


def _is_depthwise(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    group = next((a.i for a in node.attribute if a.name == "group"), 1)
    weight = constants.get(node.input[1]) if node.op_type == "Conv" else None
    return weight is not None and group > 1 and weight.dims[1] == 1


def _output_axis(node: onnx.NodeProto, data: np.ndarray) -> int:
    if node.op_type == "Gemm":
        return int(not any(a.name == "transB" and a.i for a in node.attribute))
    return data.ndim - 1 if node.op_type == "MatMul" else int(node.op_type == "ConvTranspose")
