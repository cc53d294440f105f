"""Building float networks whose activations stay alive with random weights.

Weights are drawn from one seeded generator. While the graph grows, the expected mean and variance
of every tensor is tracked (independent normal elements assumed), and weights and batch norm
statistics are scaled by it, so that no layer explodes or dies whatever the depth. Every filter has
mean zero: otherwise the positive mean that relu leaves would drown the image in a constant per
channel after a few layers.
"""

from dataclasses import dataclass
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np
import onnx_ir as ir

OPSET = 17
IR_VERSION = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A tensor of the network being built: its value, shape (batch 1 included), expected mean and
    variance."""

    value: ir.Value
    shape: tuple[int, ...]
    mean: float
    var: float

    @property
    def channels(self) -> int:
        return self.shape[1]


class Net:
    """A network under construction. Every method appends nodes and returns the new feature; node
    names are unique and each result value is named like the node that makes it."""

    def __init__(self, name: str, *, seed: int) -> None:
        self._name = name
        self._rng = np.random.default_rng(seed)
        self._nodes: list[ir.Node] = []
        self._initializers: list[ir.Value] = []
        self._inputs: list[ir.Value] = []

    def input(self, name: str, shape: tuple[int, ...]) -> Feature:
        """A float input; standard normal data is expected."""
        value = ir.val(name, ir.DataType.FLOAT, shape)
        self._inputs.append(value)
        return Feature(value=value, shape=shape, mean=0.0, var=1.0)

    def conv(
        self,
        x: Feature,
        name: str,
        *,
        out: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pads: int | tuple[int, int, int, int] = 0,
        bias: bool = False,
        batch_norm: str = "",
        gain: float = 1.0,
    ) -> Feature:
        """Convolution; with `batch_norm` (the name of its node) followed by one. Result: mean 0,
        deviation `gain`."""
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        top, left, bottom, right = (pads,) * 4 if isinstance(pads, int) else pads
        oh = (x.shape[2] + top + bottom - kh) // stride + 1
        ow = (x.shape[3] + left + right - kw) // stride + 1
        shape = (1, out, oh, ow)
        target = 1.0 if batch_norm else gain
        inputs = [
            x.value,
            self._const(f"{name}.weight", self._filters((out, x.channels, kh, kw), x, target)),
        ]
        if bias:
            inputs.append(self._const(f"{name}.bias", self._rng.normal(0.0, 0.1 * target, out)))
        value = self._node(
            "Conv",
            name,
            inputs,
            shape,
            kernel_shape=[kh, kw],
            strides=[stride, stride],
            pads=[top, left, bottom, right],
            dilations=[1, 1],
            group=1,
        )
        y = Feature(value=value, shape=shape, mean=0.0, var=target**2)
        return self._batch_norm(y, batch_norm, gain) if batch_norm else y

    def dense(self, x: Feature, name: str, *, out: int, centred: bool = True) -> Feature:
        """Fully connected layer (Gemm, transB=1); centred=False where the input is nearly constant
        (global pooling)."""
        weight = self._filters((out, x.channels), x, 1.0, centred=centred)
        bias = self._rng.normal(0.0, 0.1, out)
        shape = (1, out)
        inputs = [x.value, self._const(f"{name}.weight", weight), self._const(f"{name}.bias", bias)]
        value = self._node("Gemm", name, inputs, shape, alpha=1.0, beta=1.0, transA=0, transB=1)
        return Feature(value=value, shape=shape, mean=0.0, var=1.0)

    def relu(self, x: Feature, name: str) -> Feature:
        mean, square = _rectified(x.mean, x.var)
        value = self._node("Relu", name, [x.value], x.shape)
        return Feature(value=value, shape=x.shape, mean=mean, var=square - mean**2)

    def leaky_relu(self, x: Feature, name: str, *, alpha: float) -> Feature:
        mean, square = _rectified(x.mean, x.var)
        mean = (1.0 - alpha) * mean + alpha * x.mean
        square = (1.0 - alpha**2) * square + alpha**2 * (x.mean**2 + x.var)
        value = self._node("LeakyRelu", name, [x.value], x.shape, alpha=alpha)
        return Feature(value=value, shape=x.shape, mean=mean, var=square - mean**2)

    def add(self, a: Feature, b: Feature, name: str) -> Feature:
        value = self._node("Add", name, [a.value, b.value], a.shape)
        return Feature(value=value, shape=a.shape, mean=a.mean + b.mean, var=a.var + b.var)

    def max_pool(
        self,
        x: Feature,
        name: str,
        *,
        kernel: int,
        stride: int,
        pads: int | tuple[int, int, int, int] = 0,
    ) -> Feature:
        top, left, bottom, right = (pads,) * 4 if isinstance(pads, int) else pads
        oh = (x.shape[2] + top + bottom - kernel) // stride + 1
        ow = (x.shape[3] + left + right - kernel) // stride + 1
        shape = (1, x.channels, oh, ow)
        attributes = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        value = self._node(
            "MaxPool", name, [x.value], shape, **attributes, pads=[top, left, bottom, right]
        )
        return Feature(value=value, shape=shape, mean=x.mean, var=x.var)

    def global_average_pool(self, x: Feature, name: str) -> Feature:
        shape = (1, x.channels, 1, 1)
        value = self._node("GlobalAveragePool", name, [x.value], shape)
        return Feature(value=value, shape=shape, mean=x.mean, var=x.var / (x.shape[2] * x.shape[3]))

    def flatten(self, x: Feature, name: str) -> Feature:
        shape = (1, int(np.prod(x.shape[1:])))
        value = self._node("Flatten", name, [x.value], shape, axis=1)
        return Feature(value=value, shape=shape, mean=x.mean, var=x.var)

    def finish(self, output: Feature, name: str = "output") -> ir.Model:
        """The finished model; its only output gets this name."""
        output.value.name = name
        graph = ir.Graph(
            self._inputs,
            [output.value],
            nodes=self._nodes,
            initializers=self._initializers,
            opset_imports={"": OPSET},
            name=self._name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="opu-fuse zoo")

    def _batch_norm(self, x: Feature, name: str, gain: float) -> Feature:
        deviation = sqrt(x.var)
        c = x.channels
        statistics = {
            "gamma": self._rng.uniform(0.8, 1.2, c) * gain,
            "beta": self._rng.normal(0.0, 0.1 * gain, c),
            "mean": self._rng.normal(x.mean, 0.1 * deviation, c),
            "var": self._rng.uniform(0.8, 1.25, c) * x.var,
        }
        inputs = [
            x.value,
            *(self._const(f"{name}.{key}", data) for key, data in statistics.items()),
        ]
        value = self._node("BatchNormalization", name, inputs, x.shape, epsilon=1e-5)
        return Feature(value=value, shape=x.shape, mean=0.0, var=gain**2)

    def _filters(
        self, shape: tuple[int, ...], x: Feature, target: float, *, centred: bool = True
    ) -> np.ndarray:
        terms = int(np.prod(shape[1:]))
        weights = self._rng.standard_normal(shape, dtype=np.float32)
        spread = x.var if centred else x.var + x.mean**2
        if centred and terms > 1:
            weights -= weights.mean(axis=tuple(range(1, len(shape))), keepdims=True)
        weights *= np.float32(target / sqrt(spread * terms))
        return weights

    def _const(self, name: str, data: np.ndarray) -> ir.Value:
        tensor = ir.tensor(data.astype(np.float32, copy=False), name=name)
        shape = ir.Shape(data.shape)
        value = ir.Value(
            name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=shape
        )
        self._initializers.append(value)
        return value

    def _node(
        self,
        op_type: str,
        name: str,
        inputs: list[ir.Value],
        shape: tuple[int, ...],
        **attributes: Any,
    ) -> ir.Value:
        node = ir.node(op_type, inputs, attributes or None, name=name)
        value = node.outputs[0]
        value.name, value.dtype, value.shape = name, ir.DataType.FLOAT, ir.Shape(shape)
        self._nodes.append(node)
        return value


def _rectified(mean: float, var: float) -> tuple[float, float]:
    """First and second moment of max(x, 0) for normal x."""
    s = sqrt(var)
    below = 0.5 * (1.0 + erf(mean / (s * sqrt(2.0))))
    density = exp(-0.5 * (mean / s) ** 2) / sqrt(2.0 * pi)
    return mean * below + s * density, (mean**2 + var) * below + mean * s * density
