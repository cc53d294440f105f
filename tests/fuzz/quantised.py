"""QDQ models as others make them: every kind of scale, zero point and place of a rounding.

`quantised` is the tests' own quantiser: it knows nothing of machines. Values get their scales from
one run of the float model. `by_onnxruntime` is ONNX Runtime's.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzz.onnxruntime_runs import values_of

_WEIGHTED = ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
_SHARING = ("MaxPool", "Reshape", "Flatten", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze")
_FLOAT_ONLY = ("Softmax", "ArgMax", "Erf", "Softplus", "Cast", "DequantizeLinear")


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How a model is quantised. pow2: all scales powers of two. kind: np.int8 or np.uint8 for
    activations; zeros: zero points other than the middle. per_channel: of weights. shared: values
    that only move keep their scale. direct: no rounding between a Conv and its Relu. everywhere:
    also what only floats should do. constants: those of Add, Mul … are rounded. weights: "int8",
    "uint8" with the middle as zero point, "zeros" near it, "anywhere" for zero points from one end
    of the type to the other, "rounded" by the model itself.
    bias: how its integers are scaled, a key of `_BIASES`. bare: zero points of 0 are left out.
    listed: one scale is a list of one. backwards: axes are counted from the end. again: every so
    manieth value is rounded once more, to another scale; 0: none is.
    """

    pow2: bool
    kind: type[np.int8] | type[np.uint8]
    zeros: bool
    per_channel: bool
    shared: bool
    direct: bool
    everywhere: bool
    constants: bool
    weights: str = "int8"
    bias: str = "sums"
    bare: bool = False
    listed: bool = False
    backwards: bool = False
    again: int = 0

    @property
    def exact(self) -> bool:
        """Whether the machines have every number as it is: not a bias between two of its sums."""
        return self.pow2 and self.bias in {"sums", "coarser"}


_BIASES = {
    "sums": 1.0,
    "coarser": 64.0,
    "finer": 0.37,
    "far finer": 1e-5,
    "far coarser": 1e12,
}
"""Scales of biases, in those of the sums that they are added to; "mixed" takes one a channel."""


_WEIGHTS = {"int8": 0.6, "uint8": 0.1, "zeros": 0.1, "anywhere": 0.1, "rounded": 0.1}


def draw_style(rng: np.random.Generator) -> Style:
    flags = iter(rng.random(8))
    rare = iter(rng.random(3) < 0.2)
    return Style(
        pow2=bool(next(flags) < 0.6),
        kind=np.uint8 if next(flags) < 0.3 else np.int8,
        zeros=bool(next(flags) < 0.3),
        per_channel=bool(next(flags) < 0.7),
        shared=bool(next(flags) < 0.5),
        direct=bool(next(flags) < 0.5),
        everywhere=bool(next(flags) < 0.3),
        constants=bool(next(flags) < 0.7),
        weights=str(rng.choice(list(_WEIGHTS), p=list(_WEIGHTS.values()))),
        bias=str(rng.choice([*_BIASES, "mixed"], p=[0.7, 0.08, 0.06, 0.05, 0.05, 0.06])),
        bare=bool(next(rare)),
        listed=bool(next(rare)),
        backwards=bool(next(rare)),
        again=int(rng.choice([0, 1, 2, 3], p=[0.6, 0.1, 0.15, 0.15])),
    )


def quantised(
    model: onnx.ModelProto, sample: Mapping[str, np.ndarray], style: Style
) -> onnx.ModelProto:
    """The QDQ form; the argument stays as it is. Float values that are no maps stay float."""
    return _Quantiser(model, values_of(model, sample), style).model()


class _Quantiser:
    """Goes through the nodes in order; `_now` says by what name a value is read from here on."""

    def __init__(
        self, model: onnx.ModelProto, values: Mapping[str, np.ndarray], style: Style
    ) -> None:
        self._source, self._values, self._style = model, values, style
        self._constants = {i.name: i for i in model.graph.initializer}
        self._outputs = {o.name for o in model.graph.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._now: dict[str, str] = {}
        self._params: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._added: dict[str, onnx.TensorProto] = {}
        self._rounded = 0

    def model(self) -> onnx.ModelProto:
        for port in self._source.graph.input:
            if port.type.tensor_type.elem_type == TensorProto.FLOAT:
                self._round(port.name, None)
        for node in self._source.graph.node:
            self._node(node)
        made = onnx.ModelProto()
        made.CopyFrom(self._source)
        graph = made.graph
        for output in graph.output:
            self._output(output.name)
        graph.ClearField("node")
        graph.ClearField("initializer")
        graph.ClearField("value_info")
        graph.node.extend(self._nodes)
        read = {name for n in self._nodes for name in n.input}
        tensors = {**self._constants, **self._added}
        graph.initializer.extend(t for name, t in tensors.items() if name in read)
        return made

    def _node(self, node: onnx.NodeProto) -> None:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        for i, name in enumerate(node.input):
            if name not in self._constants:
                made.input[i] = self._now.get(name, name)
            elif node.op_type in _WEIGHTED and i == 1:
                made.input[i] = self._weight(node, name)
            elif node.op_type in {"Conv", "ConvTranspose", "Gemm"} and i == 2:
                made.input[i] = self._bias(node, name, made.input[1])
            elif self._style.constants and node.op_type in {"Add", "Mul", "Sub", "Concat"}:
                made.input[i] = self._constant(name)
        for i, name in enumerate(node.output):
            if name in self._outputs:  # an output keeps its name behind its rounding
                made.output[i] = f"{name}/float"
        self._nodes.append(made)
        for name in node.output:
            self._round(name, node)

    def _round(self, name: str, node: onnx.NodeProto | None) -> None:
        real = f"{name}/float" if node is not None and name in self._outputs else name
        if not self._is_rounded(name, node):
            if real != name:
                self._now[name] = real
            return
        scale, zero = self._params_of(name, node)
        self._params[name] = scale, zero
        if self._style.listed:
            scale, zero = scale.reshape(1), zero.reshape(1)
        names = [self._tensor(f"{name}/scale", scale), self._tensor(f"{name}/zero", zero)]
        q, dq = f"{name}/q", f"{name}/dq"
        self._nodes.append(helper.make_node("QuantizeLinear", [real, *names], [q]))
        self._nodes.append(helper.make_node("DequantizeLinear", [q, *names], [dq]))
        self._now[name] = f"{name}/dq"
        self._rounded += 1
        if self._style.again and self._rounded % self._style.again == 0:
            self._round_again(name, scale, zero)

    def _round_again(self, name: str, scale: np.ndarray, zero: np.ndarray) -> None:
        """To a coarser scale or a finer one, and another zero point where there are any."""
        factors = (2.0, 0.5, 4.0) if self._style.pow2 else (1.3, 0.8, 3.7)
        scale = (scale * factors[self._rounded % 3]).astype(np.float32)
        if self._style.zeros:
            zero = (zero.astype(np.int32) // 2 + 7).astype(zero.dtype)
        self._params[name] = scale, zero
        names = [self._tensor(f"{name}/scale2", scale), self._tensor(f"{name}/zero2", zero)]
        q, dq = f"{name}/q2", f"{name}/dq2"
        self._nodes.append(helper.make_node("QuantizeLinear", [self._now[name], *names], [q]))
        self._nodes.append(helper.make_node("DequantizeLinear", [q, *names], [dq]))
        self._now[name] = dq

    def _is_rounded(self, name: str, node: onnx.NodeProto | None) -> bool:
        value = self._values.get(name)
        if value is None or value.dtype != np.float32 or not np.isfinite(value).all():
            return False
        if node is None:
            return True
        if node.op_type in _FLOAT_ONLY and not self._style.everywhere:
            return False
        readers = self._readers.get(name, [])
        fused = self._style.direct and len(readers) == 1 and name not in self._outputs
        return not (fused and node.op_type in _WEIGHTED and readers[0].op_type in {"Relu", "Clip"})

    def _params_of(self, name: str, node: onnx.NodeProto | None) -> tuple[np.ndarray, np.ndarray]:
        source = node.input[0] if node is not None else ""
        shares = self._style.shared and node is not None and node.op_type in _SHARING
        if shares and source in self._params:
            return self._params[source]
        data, kind = self._values[name], self._style.kind
        middle = 128 if kind is np.uint8 else 0
        if self._style.zeros:
            low, high = min(float(data.min()), 0.0), max(float(data.max()), 0.0)
            scale = self._scale((high - low) / 255)
            zero = round(-low / scale) - 128 + middle
        else:
            scale, zero = self._scale(float(np.abs(data).max()) / 127), middle
        return np.array(scale, np.float32), np.array(zero, kind)

    def _scale(self, step: float) -> float:
        step = step or 2.0**-7
        return float(2.0 ** np.ceil(np.log2(step))) if self._style.pow2 else step

    def _weight(self, node: onnx.NodeProto, name: str) -> str:
        data = numpy_helper.to_array(self._constants[name])
        axis = 1 if node.op_type in {"ConvTranspose", "MatMul"} else 0
        if node.op_type == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute):
            axis = 1
        group = next((a.i for a in node.attribute if a.name == "group"), 1)
        alone = node.op_type == "ConvTranspose" and group > 1 and data.shape[1] == 1
        if not self._style.per_channel or alone or node.op_type == "Einsum":
            return self._integers(name, data, np.array(self._scale(np.abs(data).max() / 127)), 0)
        others = tuple(i for i in range(data.ndim) if i != axis)
        steps = [self._scale(float(n) / 127) for n in np.abs(data).max(axis=others)]
        return self._integers(name, data, np.array(steps), axis)

    def _bias(self, node: onnx.NodeProto, name: str, weight: str) -> str:
        """int32 in the scale of the sums or another, where that is known; else float."""
        x = self._params.get(node.input[0])
        if x is None or f"{weight}/scale" not in self._added:
            return name
        scale = numpy_helper.to_array(self._added[f"{weight}/scale"]) * x[0]
        data = numpy_helper.to_array(self._constants[name])
        if 1 < scale.size < data.size:  # one scale for each filter of a group
            scale = np.tile(scale, data.size // scale.size)
        if self._style.bias == "mixed":
            scale = scale * np.resize(list(_BIASES.values()), data.shape)
        else:
            scale = scale * _BIASES[self._style.bias]
        scale = scale.astype(np.float32)
        steps = np.rint(data.astype(np.float64) / scale)
        ints = np.clip(steps, -(2**31) + 1, 2**31 - 1).astype(np.int32)
        ints[ints == 0] = np.sign(data).astype(np.int32)[ints == 0]  # however coarse the scale
        whole = f"{node.name}/bias"
        names = [self._tensor(whole, ints), self._tensor(f"{whole}/scale", scale)]
        self._nodes.append(helper.make_node("DequantizeLinear", names, [f"{whole}/dq"], axis=0))
        return f"{whole}/dq"

    def _constant(self, name: str) -> str:
        data = numpy_helper.to_array(self._constants[name])
        if data.dtype != np.float32:
            return name
        step = np.array(self._scale(float(np.abs(data).max()) / 127))
        return self._integers(name, data, step, 0)

    def _integers(self, name: str, data: np.ndarray, scale: np.ndarray, axis: int) -> str:
        """int8 in this scale behind a DequantizeLinear; made once for a constant."""
        whole = f"{name}/dq{axis}"
        if f"{whole}/scale" in self._added:
            return whole
        scale = scale.astype(np.float32)
        shape = [1] * data.ndim
        if scale.ndim:
            shape[axis] = scale.size
        elif self._style.listed:
            scale = scale.reshape(1)
        kind, low, high, zero = np.int8, -127, 127, np.zeros(scale.shape, np.int8)
        if self._style.weights == "uint8":
            kind, low, high, zero = np.uint8, 1, 255, np.full(scale.shape, 128, np.uint8)
        elif self._style.weights == "zeros":
            zero = (np.arange(scale.size).reshape(scale.shape) % 7 - 3).astype(np.int8)
        elif self._style.weights == "anywhere":
            kind, (low, high) = self._style.kind, _ends(self._style.kind)
            zero = (low + (np.arange(scale.size) * 41 + data.size) % 256).astype(kind)
            zero, scale = zero.reshape(scale.shape), scale / np.float32(2)  # up to 255 of its steps
        form: dict[str, Any] = (
            {"axis": axis - data.ndim * self._style.backwards} if scale.size > 1 else {}
        )
        params = [self._tensor(f"{whole}/scale", scale), self._tensor(f"{whole}/zero", zero)]
        ints = f"{name}/int{axis}"
        if self._style.weights == "rounded":
            self._nodes.append(helper.make_node("QuantizeLinear", [name, *params], [ints], **form))
        else:
            steps = np.rint(data / scale.reshape(shape)) + zero.reshape(shape)
            self._tensor(ints, np.clip(steps, low, high).astype(kind))
        if self._style.bare and not zero.any():
            del params[1]
        self._nodes.append(helper.make_node("DequantizeLinear", [ints, *params], [whole], **form))
        return whole

    def _output(self, name: str) -> None:
        """The last name of an output's value becomes its own again."""
        now = self._now.get(name, name)
        if now == name:
            return
        if name in self._values and any(i.name == name for i in self._source.graph.input):
            self._nodes.append(helper.make_node("Identity", [now], [name]))
            return
        for node in self._nodes:
            for names in (node.input, node.output):
                for i, found in enumerate(names):
                    if found == now:
                        names[i] = name

    def _tensor(self, name: str, data: np.ndarray) -> str:
        kept = data.astype(np.float32) if data.dtype == np.float64 else data
        self._added[name] = numpy_helper.from_array(np.asarray(kept), name)
        return name


def _require_end(quantizer: Any) -> None:
    """ValueError where ONNX Runtime's quantiser would go round for ever: tensors take over the
    parameters of others, and it waits for those of what is not rounded.
    """
    known = set(quantizer.quantized_value_map)
    waiting = {
        name: info.quant_para_provider.input_name if info.quant_para_provider else None
        for name, info in quantizer.tensors_to_quantize.items()
    }
    while found := [name for name, provider in waiting.items() if provider in known]:
        known.update(found)
        for name in found:
            del waiting[name]
    if waiting:
        raise ValueError(f"{sorted(waiting)} share the parameters of what is not rounded")


def _ends(kind: type[np.int8] | type[np.uint8]) -> tuple[int, int]:
    return np.iinfo(kind).min, np.iinfo(kind).max


def by_onnxruntime(
    model: onnx.ModelProto,
    sample: Mapping[str, np.ndarray],
    *,
    unsigned: bool,
    symmetric: bool,
    weights: str,
) -> onnx.ModelProto:
    """What ONNX Runtime's static quantiser makes of it, alone. weights: "int8" per channel, "uint8"
    per tensor, or "asymmetric" int8 per tensor; the last two have zero points.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    class Once(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter([dict(sample)])

        def get_next(self) -> Any:
            return next(self._left, None)

    given = onnx.load_from_string(model.SerializeToString())  # it moves weights to files
    share = "_quantize_sharing_param_tensors"
    original = getattr(QDQQuantizer, share)

    def ending(quantizer: Any) -> None:
        _require_end(quantizer)
        original(quantizer)

    with tempfile.TemporaryDirectory() as folder, patch.object(QDQQuantizer, share, ending):
        path = Path(folder) / "int8.onnx"
        quantize_static(
            given,
            path,
            Once(),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8 if unsigned else QuantType.QInt8,
            weight_type=QuantType.QUInt8 if weights == "uint8" else QuantType.QInt8,
            per_channel=weights == "int8",
            extra_options={
                "ActivationSymmetric": symmetric,
                "WeightSymmetric": weights == "int8",
            },
        )
        return onnx.load(path)
