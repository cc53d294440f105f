"""A builder of graphs with attention, spelt as exporters spell them, with seeded weights."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Value = str
"""Name of a value in the graph."""
LAYER_NORMS = ("operator", "reduce", "square", "reciprocal")
"""Spellings of LayerNorm: the operator of opset 17, and those of older exporters."""
GELUS = ("erf", "tanh", "operator")


class Builder:
    """A graph that grows node by node; shapes are tracked.

    layer_norm, gelu: the spelling of each. gemm: dense layers of tokens are Gemms of rows.
    """

    def __init__(
        self, *, layer_norm: str = "operator", gelu: str = "erf", gemm: bool = False, seed: int = 0
    ) -> None:
        self.spelling, self.gelu_spelling, self.gemm = layer_norm, gelu, gemm
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[Value, tuple[int, ...]] = {}
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, *shape: int, dtype: int = TensorProto.FLOAT) -> Value:
        name = f"input{len(self.inputs) or ''}"
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        self.shapes[name] = shape
        return name

    def const(self, data: Any, dtype: Any = np.float32) -> Value:
        name = f"c{len(self.constants)}"
        array = np.asarray(data, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        self.shapes[name] = array.shape
        return name

    def normal(self, *shape: int, std: float = 1.0, mean: float = 0.0) -> Value:
        return self.const(self.rng.normal(mean, std, shape))

    def op(
        self, kind: str, *inputs: Value, shape: Sequence[int] | None = None, **attributes: Any
    ) -> Value:
        """A node with one result; shape: of the result, else that of broadcast operands."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        if shape is None:
            shape = np.broadcast_shapes(*(self.shapes[v] for v in inputs if v))
        self.shapes[name] = tuple(int(n) for n in shape)
        return name

    def reshape(self, x: Value, *shape: int) -> Value:
        known = math.prod(n for n in shape if n > 0)
        full = [n if n > 0 else math.prod(self.shapes[x]) // known for n in shape]
        return self.op("Reshape", x, self.const(shape, np.int64), shape=full)

    def transpose(self, x: Value, *order: int) -> Value:
        shape = [self.shapes[x][axis] for axis in order]
        return self.op("Transpose", x, shape=shape, perm=order)

    def split(self, x: Value, axis: int, count: int) -> list[Value]:
        shape = list(self.shapes[x])
        shape[axis] //= count
        names = [f"split_{len(self.nodes)}_{i}" for i in range(count)]
        sizes = self.const([shape[axis]] * count, np.int64)
        self.nodes.append(
            helper.make_node("Split", [x, sizes], names, name=names[0] + "n", axis=axis)
        )
        self.shapes.update(dict.fromkeys(names, tuple(shape)))
        return names

    def slice(self, x: Value, axis: int, first: int, last: int, step: int = 1) -> Value:
        shape = list(self.shapes[x])
        shape[axis] = len(range(shape[axis])[first:last:step])
        numbers = [self.const([n], np.int64) for n in (first, last, axis, step)]
        return self.op("Slice", x, *numbers, shape=shape)

    def concat(self, axis: int, *values: Value) -> Value:
        shape = list(self.shapes[values[0]])
        shape[axis] = sum(self.shapes[v][axis] for v in values)
        return self.op("Concat", *values, shape=shape, axis=axis)

    def conv(
        self, x: Value, out: int, kernel: int, stride: int = 1, pad: int = 0, groups: int = 1
    ) -> Value:
        n, c, h, w = self.shapes[x]
        std = 1.0 / math.sqrt(c // groups * kernel * kernel)
        weight = self.normal(out, c // groups, kernel, kernel, std=std)
        size = [(length + 2 * pad - kernel) // stride + 1 for length in (h, w)]
        return self.op(
            "Conv",
            *(x, weight, self.normal(out, std=0.1)),
            shape=(n, out, *size),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            group=groups,
        )

    def conv1d(self, x: Value, out: int, kernel: int, stride: int, pad: int) -> Value:
        """A convolution of lines (n, c, length)."""
        n, c, length = self.shapes[x]
        weight = self.normal(out, c, kernel, std=1.0 / math.sqrt(c * kernel))
        return self.op(
            "Conv",
            *(x, weight, self.normal(out, std=0.1)),
            shape=(n, out, (length + 2 * pad - kernel) // stride + 1),
            kernel_shape=[kernel],
            strides=[stride],
            pads=[pad] * 2,
        )

    def linear(self, x: Value, out: int, *, bias: bool = True) -> Value:
        """A dense layer of the last axis: MatMul and Add, or a Gemm of rows."""
        *lead, c = self.shapes[x]
        std = 1.0 / math.sqrt(c)
        if self.gemm and bias:
            rows = x if len(lead) == 1 else self.reshape(x, -1, c)
            inputs = (rows, self.normal(out, c, std=std), self.normal(out, std=0.1))
            y = self.op("Gemm", *inputs, shape=(math.prod(lead), out), transB=1)
            return y if len(lead) == 1 else self.reshape(y, *lead, out)
        y = self.op("MatMul", x, self.normal(c, out, std=std), shape=(*lead, out))
        return self.op("Add", self.normal(out, std=0.1), y) if bias else y

    def layer_norm(self, x: Value, *, epsilon: float = 1e-5) -> Value:
        shape = self.shapes[x]
        c, spelling = shape[-1], self.spelling
        scale, shift = self.normal(c, mean=1.0, std=0.2), self.normal(c, std=0.1)
        if spelling == "operator":
            inputs = (x, scale, shift)
            return self.op("LayerNormalization", *inputs, shape=shape, axis=-1, epsilon=epsilon)
        narrow = (*shape[:-1], 1)
        mean = self.op("ReduceMean", x, shape=narrow, axes=[-1])
        centred = self.op("Sub", x, mean)
        other = self.op("Sub", x, mean) if spelling == "reciprocal" else centred
        square = (
            self.op("Pow", other, self.const(2.0))
            if spelling == "reduce"
            else self.op("Mul", other, other)
        )
        variance = self.op("ReduceMean", square, shape=narrow, axes=[-1])
        root = self.op("Sqrt", self.op("Add", variance, self.const(epsilon)))
        if spelling == "reciprocal":
            y = self.op("Mul", centred, self.op("Reciprocal", root))
        else:
            y = self.op("Div", centred, root)
        return self.op("Add", self.op("Mul", y, scale), shift)

    def rms_norm(self, x: Value, *, epsilon: float = 1e-6) -> Value:
        narrow = (*self.shapes[x][:-1], 1)
        square = self.op("Pow", x, self.const(2.0))
        mean = self.op("ReduceMean", square, shape=narrow, axes=[-1])
        root = self.op("Sqrt", self.op("Add", mean, self.const(epsilon)))
        y = self.op("Mul", x, self.op("Reciprocal", root))
        return self.op("Mul", self.normal(self.shapes[x][-1], mean=1.0, std=0.2), y)

    def gelu(self, x: Value) -> Value:
        if self.gelu_spelling == "operator":
            return self.op("Gelu", x)
        if self.gelu_spelling == "tanh":
            cube = self.op("Mul", self.op("Pow", x, self.const(3.0)), self.const(0.044715))
            inner = self.op("Mul", self.op("Add", x, cube), self.const(math.sqrt(2 / math.pi)))
            whole = self.op("Add", self.op("Tanh", inner), self.const(1.0))
            return self.op("Mul", self.op("Mul", x, self.const(0.5)), whole)
        erf = self.op("Erf", self.op("Div", x, self.const(math.sqrt(2.0))))
        product = self.op("Mul", x, self.op("Add", erf, self.const(1.0)))
        return self.op("Mul", product, self.const(0.5))

    def silu(self, x: Value) -> Value:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def softmax(self, x: Value) -> Value:
        return self.op("Softmax", x, axis=-1)

    def matmul(self, a: Value, b: Value) -> Value:
        shape = (*self.shapes[a][:-1], self.shapes[b][-1])
        return self.op("MatMul", a, b, shape=shape)

    def attention(
        self,
        x: Value,
        heads: int,
        *,
        keys: Value | None = None,
        bias: bool = False,
        scale: str = "both",
    ) -> Value:
        """Multi-head attention of tokens (b, n, c). keys: tokens of K and V, else x. bias: of
        positions, added to the scores. scale: "both" multiplies Q and K by the root of 1/√d,
        "scores" divides the scores by √d, "q" multiplies Q."""
        b, n, c = self.shapes[x]
        d = c // heads
        if keys is None:
            qkv = self.transpose(
                self.reshape(self.linear(x, 3 * c), b, n, 3, heads, d), 2, 0, 3, 1, 4
            )
            q, k, v = (
                self.op("Gather", qkv, self.const(i, np.int64), shape=(b, heads, n, d), axis=0)
                for i in range(3)
            )
            k = self.transpose(k, 0, 1, 3, 2)
        else:
            m = self.shapes[keys][1]
            q = self.transpose(self.reshape(self.linear(x, c), b, n, heads, d), 0, 2, 1, 3)
            k = self.transpose(self.reshape(self.linear(keys, c), b, m, heads, d), 0, 2, 3, 1)
            v = self.transpose(self.reshape(self.linear(keys, c), b, m, heads, d), 0, 2, 1, 3)
        if scale == "both":
            factor = d**-0.25
            q, k = (self.op("Mul", part, self.const(factor)) for part in (q, k))
        elif scale == "q":
            q = self.op("Mul", q, self.const(d**-0.5))
        scores = self.matmul(q, k)
        if scale == "scores":
            scores = self.op("Div", scores, self.const(math.sqrt(d)))
        if bias:
            shape = self.shapes[scores]
            scores = self.op("Add", scores, self.normal(1, *shape[1:], std=0.5))
        y = self.matmul(self.softmax(scores), v)
        return self.linear(self.reshape(self.transpose(y, 0, 2, 1, 3), b, n, c), c)

    def mlp(self, x: Value, ratio: float = 4) -> Value:
        c = self.shapes[x][-1]
        return self.linear(self.gelu(self.linear(x, int(ratio * c))), c)

    def encoder_layer(self, x: Value, heads: int, **options: Any) -> Value:
        """A transformer layer with norms before attention and MLP."""
        x = self.op("Add", x, self.attention(self.layer_norm(x), heads, **options))
        return self.op("Add", x, self.mlp(self.layer_norm(x)))

    def model(
        self, *outputs: Value, opset: int = 17, dtype: int = TensorProto.FLOAT
    ) -> onnx.ModelProto:
        if self.gelu_spelling == "operator":
            opset = max(opset, 20)
        results = [helper.make_tensor_value_info(v, dtype, self.shapes[v]) for v in outputs]
        graph = helper.make_graph(self.nodes, "attention", self.inputs, results, self.constants)
        if opset >= 18:
            _move_axes(graph)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _move_axes(graph: onnx.GraphProto) -> None:
    """ReduceMean of opset 18 has its axes as an operand."""
    for node in graph.node:
        if node.op_type == "ReduceMean":
            (axes,) = node.attribute
            name = f"{node.name}_axes"
            graph.initializer.append(numpy_helper.from_array(np.array(axes.ints, np.int64), name))
            node.input.append(name)
            del node.attribute[:]
