"""The growing ONNX graph: nodes, constants, and the operators that compute nothing new."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.zoo import moments
from opu_fuse.zoo.moments import Moments

OPSET = 17
IR_VERSION = 8

Pads = int | tuple[int, int, int, int]
"""All sides alike, or top, left, bottom, right."""


class Feature(Struct, frozen=True, kw_only=True):
    """A tensor of the network being built: its value, shape (batch 1 included), expected mean and
    variance."""

    value: ir.Value
    shape: tuple[int, ...]
    mean: float
    var: float

    @property
    def channels(self) -> int:
        return self.shape[1]

    @property
    def moments(self) -> Moments:
        return self.mean, self.var


def sides(pads: Pads) -> tuple[int, int, int, int]:
    """Top, left, bottom, right."""
    return (pads, pads, pads, pads) if isinstance(pads, int) else pads


def window_shape(
    x: Feature, channels: int, kernel: tuple[int, int], stride: int, pads: Pads
) -> tuple[int, ...]:
    """Shape after a convolution or pooling."""
    top, left, bottom, right = sides(pads)
    rows = (x.shape[2] + top + bottom - kernel[0]) // stride + 1
    cols = (x.shape[3] + left + right - kernel[1]) // stride + 1
    return 1, channels, rows, cols


class Graph:
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

    def max_pool(
        self, x: Feature, name: str, *, kernel: int, stride: int, pads: Pads = 0
    ) -> Feature:
        return self._pool("MaxPool", x, name, kernel, stride, pads)

    def average_pool(self, x: Feature, name: str, *, kernel: int, stride: int) -> Feature:
        """Without padding."""
        y = self._pool("AveragePool", x, name, kernel, stride, 0)
        return replace(y, var=x.var / kernel**2)

    def global_average_pool(self, x: Feature, name: str) -> Feature:
        shape = (1, x.channels, 1, 1)
        value = self._node("GlobalAveragePool", name, [x.value], shape)
        return Feature(value=value, shape=shape, mean=x.mean, var=x.var / (x.shape[2] * x.shape[3]))

    def flatten(self, x: Feature, name: str) -> Feature:
        shape = (1, int(np.prod(x.shape[1:])))
        return self._moved(x, self._node("Flatten", name, [x.value], shape, axis=1), shape)

    def reshape(self, x: Feature, name: str, shape: Sequence[int]) -> Feature:
        target = self._const(f"{name}.shape", np.array(shape, np.int64))
        value = self._node("Reshape", name, [x.value, target], shape)
        return self._moved(x, value, shape)

    def transpose(self, x: Feature, name: str, order: Sequence[int]) -> Feature:
        shape = [x.shape[axis] for axis in order]
        value = self._node("Transpose", name, [x.value], shape, perm=list(order))
        return self._moved(x, value, shape)

    def concat(self, parts: Sequence[Feature], name: str, *, axis: int = 1) -> Feature:
        """Along an axis, that of channels by default."""
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        value = self._node("Concat", name, [p.value for p in parts], shape, axis=axis)
        mean, var = moments.joined([(p.shape[axis], p.moments) for p in parts])
        return Feature(value=value, shape=tuple(shape), mean=mean, var=var)

    def split(self, x: Feature, name: str, *, axis: int = 1) -> tuple[Feature, Feature]:
        """Halves of an axis, that of channels by default, named `name.0` and `name.1`."""
        half = x.shape[axis] // 2
        sizes = self._const(f"{name}.sizes", np.array([half, half], np.int64))
        node = ir.node("Split", [x.value, sizes], {"axis": axis}, num_outputs=2, name=name)
        self._nodes.append(node)
        shape = (*x.shape[:axis], half, *x.shape[axis + 1 :])
        for index, value in enumerate(node.outputs):
            _describe(value, f"{name}.{index}", shape)
        first, second = (self._moved(x, value, shape) for value in node.outputs)
        return first, second

    def crop(self, x: Feature, name: str, first: int, end: int) -> Feature:
        """Channels first .. end - 1."""
        bounds = [
            self._const(f"{name}.{key}", np.array([number], np.int64))
            for key, number in (("first", first), ("end", end), ("axis", 1))
        ]
        shape = (1, end - first, *x.shape[2:])
        return self._moved(x, self._node("Slice", name, [x.value, *bounds], shape), shape)

    def upsample(self, x: Feature, name: str, *, scale: int = 2) -> Feature:
        """Every value `scale` x `scale` times."""
        factors = self._const(f"{name}.scales", np.array([1, 1, scale, scale], np.float32))
        shape = (1, x.channels, x.shape[2] * scale, x.shape[3] * scale)
        value = self._node(
            "Resize",
            name,
            [x.value, None, factors],
            shape,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        return self._moved(x, value, shape)

    def finish(self, output: Feature, name: str = "output", **more: Feature) -> ir.Model:
        """The finished model; its outputs get these names."""
        outputs = {name: output, **more}
        for label, feature in outputs.items():
            feature.value.name = label
        graph = ir.Graph(
            self._inputs,
            [feature.value for feature in outputs.values()],
            nodes=self._nodes,
            initializers=self._initializers,
            opset_imports={"": OPSET},
            name=self._name,
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="opu-fuse zoo")

    def _pool(
        self, op_type: str, x: Feature, name: str, kernel: int, stride: int, pads: Pads
    ) -> Feature:
        shape = window_shape(x, x.channels, (kernel, kernel), stride, pads)
        attributes = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
        value = self._node(op_type, name, [x.value], shape, **attributes, pads=list(sides(pads)))
        return self._moved(x, value, shape)

    @staticmethod
    def _moved(x: Feature, value: ir.Value, shape: Sequence[int]) -> Feature:
        """The feature of a permutation of `x`'s values, which has the same moments."""
        return Feature(value=value, shape=tuple(shape), mean=x.mean, var=x.var)

    def _const(self, name: str, data: np.ndarray) -> ir.Value:
        """An initialiser; real numbers become float32."""
        if data.dtype.kind == "f":
            data = data.astype(np.float32, copy=False)
        tensor = ir.tensor(data, name=name)
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
        inputs: Sequence[ir.Value | None],
        shape: Sequence[int],
        **attributes: Any,
    ) -> ir.Value:
        node = ir.node(op_type, inputs, attributes or None, name=name)
        self._nodes.append(node)
        _describe(node.outputs[0], name, shape)
        return node.outputs[0]


def _describe(value: ir.Value, name: str, shape: Sequence[int]) -> None:
    value.name, value.dtype, value.shape = name, ir.DataType.FLOAT, ir.Shape(shape)
