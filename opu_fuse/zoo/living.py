"""Seeded noise instead of constants: a topology without trained weights computes something.

The `light_*` models of the onnx package have their weights from `ConstantOfShape`: all filters are
alike, and everything after the first layer is one number per channel. What was trained and left in
(small biases, batch norm statistics) fits weights that are gone. Here they get weights as the
networks of the zoo have them.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.model.operator_sets import UNMOVED
from opu_fuse.zoo import moments
from opu_fuse.zoo.moments import Moments

_OWN_CONSTANTS = 4
"""IR version from which initialisers need not be inputs of the graph."""
_NORMAL: Moments = (0.0, 1.0)

Draw = Callable[[tuple[int, ...]], np.ndarray]
"""Shape -> values."""


def living_weights(model: ir.Model, *, seed: int = 0) -> ir.Model:
    """A copy whose weights, biases, batch norm statistics and other constant vectors that features
    are multiplied by or added to are noise, scaled so that activations keep their size.

    Expects inputs of mean 0 and deviation 1. The same model and seed give the same numbers.
    """
    copy = model.clone()
    common.RemoveInitializersFromInputsPass()(copy)
    copy.ir_version = max(copy.ir_version, _OWN_CONSTANTS)
    _Life(copy.graph, np.random.default_rng(seed)).run()
    common.RemoveUnusedNodesPass()(copy)
    return copy


class _Life:
    """Traversal of the nodes; `known` holds the expected mean and variance of every value so
    far."""

    def __init__(self, graph: ir.Graph, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng
        self.known: dict[ir.Value, Moments] = {}

    def run(self) -> None:
        rules: dict[str, Callable[[ir.Node, list[Moments]], Moments]] = {
            "Conv": self._weighted,
            "Gemm": self._weighted,
            "MatMul": self._weighted,
            "BatchNormalization": self._batch_norm,
            "Mul": self._scale,
            "Add": self._sum,
            "Sum": self._sum,
            "Relu": lambda _, x: moments.relu(*x[0]),
            "Concat": lambda _, x: moments.joined([(1.0, m) for m in x]),
            "AveragePool": _average,
        }
        for node in list(self.graph):
            inputs = [self.known[v] for v in node.inputs if v is not None and v in self.known]
            if node.op_type in rules:
                result = rules[node.op_type](node, inputs or [_NORMAL])
            elif inputs or any(v in self.graph.inputs for v in node.inputs):
                result = inputs[0] if inputs else _NORMAL
            else:  # a constant, or computed from constants
                continue
            self.known.update(dict.fromkeys(node.outputs, result))

    def _weighted(self, node: ir.Node, inputs: list[Moments]) -> Moments:
        x = inputs[0]
        transposed = node.op_type == "MatMul" or (
            node.op_type == "Gemm" and not node.attributes.get_int("transB", 0)
        )

        def weight(shape: tuple[int, ...]) -> np.ndarray:
            if transposed:
                return moments.filters(self.rng, shape[::-1], x).T
            return moments.filters(self.rng, shape, x)

        self._fill(node, 1, weight)
        self._fill(node, 2, lambda shape: self.rng.normal(0.0, 0.1, shape))
        return _NORMAL

    def _batch_norm(self, node: ir.Node, inputs: list[Moments]) -> Moments:
        mean, var = inputs[0]
        rng = self.rng
        self._fill(node, 1, lambda shape: rng.uniform(0.8, 1.2, shape))
        self._fill(node, 2, lambda shape: rng.normal(0.0, 0.1, shape))
        self._fill(node, 3, lambda shape: rng.normal(mean, 0.1 * np.sqrt(var), shape))
        self._fill(node, 4, lambda shape: rng.uniform(0.8, 1.25, shape) * var)
        return _NORMAL

    def _scale(self, node: ir.Node, inputs: list[Moments]) -> Moments:
        for index in (0, 1):
            self._fill(node, index, lambda shape: self.rng.uniform(0.8, 1.2, shape))
        return moments.product(inputs[0], inputs[1]) if len(inputs) > 1 else inputs[0]

    def _sum(self, node: ir.Node, inputs: list[Moments]) -> Moments:
        spread = 0.1 * np.sqrt(inputs[0][1])
        for index in range(len(node.inputs)):
            self._fill(node, index, lambda shape: self.rng.normal(0.0, spread, shape))
        return sum(m for m, _ in inputs), sum(v for _, v in inputs)

    def _fill(self, node: ir.Node, index: int, draw: Draw) -> None:
        """Replace the operand by noise of its shape, if it is a constant of several numbers."""
        value = node.inputs[index] if index < len(node.inputs) else None
        while value is not None and (view := value.producer()) and view.op_type in UNMOVED:
            value = view.inputs[0]
        shape = None if value is None else _constant_shape(value)
        if value is None or shape is None:
            return
        data = np.ascontiguousarray(draw(shape), np.float32)
        tensor = ir.Tensor(data, name=value.name)
        producer = value.producer()
        if producer is None:
            value.const_value = tensor
            return
        name, value.name = value.name, None
        noise = ir.Value(
            name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(shape)
        )
        self.graph.register_initializer(noise)
        ir.convenience.replace_all_uses_with(value, noise, replace_graph_outputs=True)
        self.graph.remove(producer, safe=True)


def _constant_shape(value: ir.Value) -> tuple[int, ...] | None:
    """Shape of a float constant of several numbers; None for anything else."""
    producer = value.producer()
    if producer is not None and producer.op_type == "ConstantOfShape":
        size = producer.inputs[0]
        known = None if size is None or size.const_value is None else size.const_value.numpy()
        return None if known is None else tuple(int(n) for n in known)
    tensor = value.const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or tensor.size < 2:
        return None
    return tuple(tensor.numpy().shape)


def _average(node: ir.Node, inputs: list[Moments]) -> Moments:
    """Between the moments of independent and of equal values: averaging does not change a channel's
    mean, and channels differ in it."""
    mean, var = inputs[0]
    window = node.attributes.get_ints("kernel_shape", (1,))
    return mean, var / float(np.sqrt(np.prod(window)))
