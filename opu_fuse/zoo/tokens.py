"""Operators of networks with attention, on tokens (1, n, channels), as PyTorch exports them."""

from math import erf, sqrt

import numpy as np
from msgspec.structs import replace

from opu_fuse.zoo import moments
from opu_fuse.zoo.builder import Feature, Net


class TokenNet(Net):
    """A graph with dense layers, normalisations and attention of tokens."""

    def tokens(self, x: Feature, name: str) -> Feature:
        """Pixels of a map (1, c, h, w) as tokens (1, h·w, c)."""
        _, c, rows, cols = x.shape
        x = self.reshape(x, f"{name}.flatten", (1, c, rows * cols))
        return self.transpose(x, f"{name}.transpose", (0, 2, 1))

    def linear(self, x: Feature, name: str, *, out: int) -> Feature:
        """MatMul and Add over the last axis. Result: mean 0, deviation 1."""
        weight = moments.filters(self._rng, (out, x.shape[-1]), x.moments).T
        shape = (*x.shape[:-1], out)
        weights = self._const(f"{name}.weight", np.ascontiguousarray(weight))
        value = self._node("MatMul", f"{name}.matmul", [x.value, weights], shape)
        bias = self._const(f"{name}.bias", self._rng.normal(0.0, 0.1, out))
        value = self._node("Add", name, [bias, value], shape)
        return Feature(value=value, shape=shape, mean=0.0, var=1.0)

    def layer_norm(self, x: Feature, name: str) -> Feature:
        """Over the last axis."""
        c = x.shape[-1]
        scale = self._const(f"{name}.weight", self._rng.uniform(0.8, 1.2, c))
        shift = self._const(f"{name}.bias", self._rng.normal(0.0, 0.1, c))
        inputs = [x.value, scale, shift]
        value = self._node("LayerNormalization", name, inputs, x.shape, axis=-1, epsilon=1e-6)
        return Feature(value=value, shape=x.shape, mean=0.0, var=1.0)

    def gelu(self, x: Feature, name: str) -> Feature:
        """X / 2 · (1 + erf(x / √2)), five nodes."""
        y = self._scaled("Div", x, f"{name}.div", sqrt(2.0))
        y = replace(y, value=self._node("Erf", f"{name}.erf", [y.value], x.shape))
        y = self._scaled("Add", y, f"{name}.add", 1.0)
        value = self._node("Mul", f"{name}.mul", [x.value, y.value], x.shape)
        y = self._scaled("Mul", replace(x, value=value), name, 0.5)
        mean, var = moments.smooth(_gelu, *x.moments)
        return replace(y, mean=mean, var=var)

    def plus_constant(self, x: Feature, name: str, *, deviation: float) -> Feature:
        """Add a trained map of x's shape, such as positions."""
        data = self._rng.normal(0.0, deviation, x.shape)
        value = self._node("Add", name, [x.value, self._const(f"{name}.table", data)], x.shape)
        return replace(x, value=value, var=x.var + deviation**2)

    def with_token(self, x: Feature, name: str) -> Feature:
        """A trained token in front of all others."""
        token = self._const(f"{name}.token", self._rng.normal(0.0, 1.0, (1, 1, x.shape[-1])))
        shape = (1, x.shape[1] + 1, x.shape[-1])
        return self._moved(x, self._node("Concat", name, [token, x.value], shape, axis=1), shape)

    def take(self, x: Feature, name: str, index: int, *, axis: int) -> Feature:
        """One slice of an axis, which disappears (Gather)."""
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        number = self._const(f"{name}.index", np.array(index, np.int64))
        value = self._node("Gather", name, [x.value, number], shape, axis=axis)
        return self._moved(x, value, shape)

    def softmax(self, x: Feature, name: str, *, axis: int = -1) -> Feature:
        value = self._node("Softmax", name, [x.value], x.shape, axis=axis)
        n = x.shape[axis]
        # Of a normal distribution, the squared share of each of n values is about exp(var) / n².
        return replace(x, value=value, mean=1 / n, var=(np.exp(x.var) - 1) / n**2)

    def scaled(self, x: Feature, name: str, factor: float) -> Feature:
        y = self._scaled("Mul", x, name, factor)
        return replace(y, mean=x.mean * factor, var=x.var * factor**2)

    def matmul(self, a: Feature, b: Feature, name: str) -> Feature:
        """Two computed operands, the last two axes of each."""
        shape = (*a.shape[:-1], b.shape[-1])
        terms = a.shape[-1]
        mean, var = moments.product(a.moments, b.moments)
        value = self._node("MatMul", name, [a.value, b.value], shape)
        return Feature(value=value, shape=shape, mean=mean * terms, var=var * terms)

    def attention(self, x: Feature, name: str, *, heads: int) -> Feature:
        """Multi-head attention of tokens (batch, n, c); one layer computes Q, K and V."""
        batch, n, c = x.shape
        d = c // heads
        qkv = self.linear(x, f"{name}.qkv", out=3 * c)
        qkv = self.reshape(qkv, f"{name}.qkv.split", (batch, n, 3, heads, d))
        qkv = self.transpose(qkv, f"{name}.qkv.heads", (2, 0, 3, 1, 4))
        q, k, v = (self.take(qkv, f"{name}.{part}", i, axis=0) for i, part in enumerate("qkv"))
        q = self.scaled(q, f"{name}.q.scale", d**-0.5)
        k = self.transpose(k, f"{name}.k.transpose", (0, 1, 3, 2))
        weights = self.softmax(self.matmul(q, k, f"{name}.scores"), f"{name}.softmax")
        # Tokens share a part that averages keep, more of it in every layer: half of the variance.
        y = replace(self.matmul(weights, v, f"{name}.values"), mean=v.mean, var=v.var / 2)
        y = self.transpose(y, f"{name}.join", (0, 2, 1, 3))
        return self.linear(self.reshape(y, f"{name}.rows", (batch, n, c)), f"{name}.proj", out=c)

    def expectation(self, x: Feature, name: str) -> Feature:
        """Of the indices of axis 1, whose values are probabilities: a 1 x 1 convolution."""
        bins = x.channels
        weight = self._const(f"{name}.weight", np.arange(bins, dtype=float).reshape(1, bins, 1, 1))
        shape = (1, 1, *x.shape[2:])
        value = self._node("Conv", name, [x.value, weight], shape, kernel_shape=[1, 1])
        return Feature(value=value, shape=shape, mean=(bins - 1) / 2, var=bins / 2)

    def subtract(self, a: Feature, b: Feature, name: str) -> Feature:
        value = self._node("Sub", name, [a.value, b.value], a.shape)
        return Feature(value=value, shape=a.shape, mean=a.mean - b.mean, var=a.var + b.var)

    def constant(self, data: np.ndarray, name: str) -> Feature:
        """Numbers that are no weights, such as anchors."""
        mean, var = float(data.mean()), float(data.var())
        return Feature(value=self._const(name, data), shape=data.shape, mean=mean, var=var)

    def encoder_layer(self, x: Feature, name: str, *, heads: int, hidden: int) -> Feature:
        """Attention and an MLP with GELU, each after a norm, each added to the residual stream."""
        y = self.attention(self.layer_norm(x, f"{name}.norm1"), f"{name}.attn", heads=heads)
        x = self.add(x, y, f"{name}.add1")
        y = self.linear(self.layer_norm(x, f"{name}.norm2"), f"{name}.mlp.fc1", out=hidden)
        y = self.linear(self.gelu(y, f"{name}.mlp.act"), f"{name}.mlp.fc2", out=x.shape[-1])
        return self.add(x, y, f"{name}.add2")

    def _scaled(self, op_type: str, x: Feature, name: str, number: float) -> Feature:
        constant = self._const(f"{name}.constant", np.array(number))
        return replace(x, value=self._node(op_type, name, [x.value, constant], x.shape))


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1.0 + np.vectorize(erf)(x / sqrt(2.0)))
