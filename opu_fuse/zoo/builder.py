"""Building float networks whose activations neither vanish nor explode with random weights.

Weights are drawn from one seeded generator. While the graph grows, the expected mean and variance
of every tensor is tracked (independent normal elements assumed), and weights and batch norm
statistics are scaled by it, so that no layer explodes or dies whatever the depth. Every filter has
mean zero: otherwise the positive mean that relu leaves would drown the image in a constant per
channel after a few layers.
"""

from math import sqrt

import numpy as np

from opu_fuse.zoo import moments
from opu_fuse.zoo.graph import Feature, Graph, Pads, sides, window_shape
from opu_fuse.zoo.moments import Moments

__all__ = ["Feature", "Net"]


class Net(Graph):
    """A graph with the operators that compute."""

    def conv(
        self,
        x: Feature,
        name: str,
        *,
        out: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pads: Pads = 0,
        groups: int = 1,
        bias: bool = False,
        batch_norm: str = "",
        gain: float = 1.0,
        centred: bool = True,
    ) -> Feature:
        """Convolution; with `batch_norm` (the name of its node) followed by one. Result: mean 0,
        deviation `gain`. centred=False where the input is nearly constant (global pooling)."""
        kh, kw = (kernel, kernel) if isinstance(kernel, int) else kernel
        shape = window_shape(x, out, (kh, kw), stride, pads)
        target = 1.0 if batch_norm else gain
        weight = moments.filters(
            self._rng,
            (out, x.channels // groups, kh, kw),
            x.moments,
            target=target,
            centred=centred,
            seen=_seen(x, (kh, kw), stride, pads) if groups == x.channels > 1 else 1.0,
        )
        inputs = [x.value, self._const(f"{name}.weight", weight)]
        if bias:
            inputs.append(self._const(f"{name}.bias", self._rng.normal(0.0, 0.1 * target, out)))
        value = self._node(
            "Conv",
            name,
            inputs,
            shape,
            kernel_shape=[kh, kw],
            strides=[stride, stride],
            pads=list(sides(pads)),
            dilations=[1, 1],
            group=groups,
        )
        y = Feature(value=value, shape=shape, mean=0.0, var=target**2)
        return self.batch_norm(y, batch_norm, gain=gain) if batch_norm else y

    def conv_bn(
        self,
        x: Feature,
        name: str,
        *,
        out: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
    ) -> Feature:
        """Convolution with padding for equal sizes, then batch norm `name.bn`."""
        return self.conv(
            x,
            name,
            out=out,
            kernel=kernel,
            stride=stride,
            pads=kernel // 2,
            groups=groups,
            batch_norm=f"{name}.bn",
        )

    def conv_swish(self, x: Feature, name: str, *, out: int, **window: int) -> Feature:
        """`conv_bn` with its options, then swish `name.swish`."""
        return self.swish(self.conv_bn(x, name, out=out, **window), f"{name}.swish")

    def dense(self, x: Feature, name: str, *, out: int, centred: bool = True) -> Feature:
        """Fully connected layer (Gemm, transB=1); centred as in `conv`."""
        weight = moments.filters(self._rng, (out, x.channels), x.moments, centred=centred)
        bias = self._rng.normal(0.0, 0.1, out)
        shape = (1, out)
        inputs = [x.value, self._const(f"{name}.weight", weight), self._const(f"{name}.bias", bias)]
        value = self._node("Gemm", name, inputs, shape, alpha=1.0, beta=1.0, transA=0, transB=1)
        return Feature(value=value, shape=shape, mean=0.0, var=1.0)

    def batch_norm(self, x: Feature, name: str, *, gain: float = 1.0) -> Feature:
        """Result: mean 0, deviation `gain`."""
        deviation = sqrt(x.var)
        c = x.channels
        statistics = {
            "gamma": self._rng.uniform(0.8, 1.2, c) * gain,
            "beta": self._rng.normal(0.0, 0.1 * gain, c),
            "mean": self._rng.normal(x.mean, 0.1 * deviation, c),
            "var": self._rng.uniform(0.8, 1.25, c) * x.var,
        }
        constants = (self._const(f"{name}.{key}", data) for key, data in statistics.items())
        value = self._node("BatchNormalization", name, [x.value, *constants], x.shape, epsilon=1e-5)
        return Feature(value=value, shape=x.shape, mean=0.0, var=gain**2)

    def relu(self, x: Feature, name: str) -> Feature:
        return self._unary(x, "Relu", name, moments.relu(*x.moments))

    def relu6(self, x: Feature, name: str) -> Feature:
        """Clip to 0 … 6, which hardly ever cuts at 6."""
        limits = [
            self._const(f"{name}.{key}", np.array(v)) for key, v in (("min", 0.0), ("max", 6.0))
        ]
        value = self._node("Clip", name, [x.value, *limits], x.shape)
        mean, var = moments.relu(*x.moments)
        return Feature(value=value, shape=x.shape, mean=mean, var=var)

    def leaky_relu(self, x: Feature, name: str, *, alpha: float) -> Feature:
        mean, square = moments.rectified(*x.moments)
        mean = (1.0 - alpha) * mean + alpha * x.mean
        square = (1.0 - alpha**2) * square + alpha**2 * (x.mean**2 + x.var)
        value = self._node("LeakyRelu", name, [x.value], x.shape, alpha=alpha)
        return Feature(value=value, shape=x.shape, mean=mean, var=square - mean**2)

    def sigmoid(self, x: Feature, name: str) -> Feature:
        return self._unary(x, "Sigmoid", name, moments.smooth(_sigmoid, *x.moments))

    def swish(self, x: Feature, name: str) -> Feature:
        """Input times its sigmoid: nodes `name.sigmoid` and `name`."""
        gate = self.sigmoid(x, f"{name}.sigmoid")
        value = self._node("Mul", name, [x.value, gate.value], x.shape)
        mean, var = moments.smooth(lambda v: v * _sigmoid(v), *x.moments)
        return Feature(value=value, shape=x.shape, mean=mean, var=var)

    def add(self, a: Feature, b: Feature, name: str) -> Feature:
        value = self._node("Add", name, [a.value, b.value], a.shape)
        return Feature(value=value, shape=a.shape, mean=a.mean + b.mean, var=a.var + b.var)

    def multiply(self, a: Feature, b: Feature, name: str) -> Feature:
        """Element by element, or a feature map by a factor per channel [1, c, 1, 1]."""
        value = self._node("Mul", name, [a.value, b.value], a.shape)
        mean, var = moments.product(a.moments, b.moments)
        return Feature(value=value, shape=a.shape, mean=mean, var=var)

    def _unary(self, x: Feature, op_type: str, name: str, after: Moments) -> Feature:
        value = self._node(op_type, name, [x.value], x.shape)
        return Feature(value=value, shape=x.shape, mean=after[0], var=after[1])


def _seen(x: Feature, kernel: tuple[int, int], stride: int, pads: Pads) -> float:
    """Share of a depthwise filter's products that count: with so few, those with padding and the
    one that centring costs are missed."""
    share = 1.0 - 1.0 / (kernel[0] * kernel[1])
    for size, k, before, after in zip(
        x.shape[2:], kernel, sides(pads)[:2], sides(pads)[2:], strict=True
    ):
        starts = np.arange(-before, size + after - k + 1, stride)
        inside = np.minimum(starts + k, size) - np.maximum(starts, 0)
        share *= float(inside.mean()) / k
    return share


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))
