"""A network under construction: every call adds a node and knows the shape of its result.

All randomness of a network comes from the generator that the sketch holds, in the order of the
calls, so that a seed gives one network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

T = TypeVar("T")

CHANNELS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 63, 64, 65)
MANY_CHANNELS = (66, 72, 80, 96, 127, 128, 129, 130)
MOST_MACS = 400_000
MOST_ELEMENTS = 9_000
LARGEST = 10 * MOST_MACS
"""Multiply-accumulates of a network: joined maps grow, and twenty others are done meanwhile."""


class TooLargeError(Exception):
    """A constant of more elements than a network may have multiply-accumulates."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor; shape: with the batch, which is 1 nearly always."""

    name: str
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.shape[1]

    @property
    def size(self) -> tuple[int, int]:
        return self.shape[2], self.shape[3]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class Sketch:
    """maps: values of four dimensions that later nodes may read. inputs: by name."""

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng, self.opset = rng, opset
        self.maps: list[Value] = []
        self.inputs: dict[str, tuple[Value, int]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def number(self, low: int, high: int) -> int:
        """Of low … high."""
        return int(self.rng.integers(low, high + 1))

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def channels(self, most: int = 200) -> int:
        from_these = MANY_CHANNELS if self.chance(0.06) else CHANNELS
        return int(self.pick([c for c in from_these if c <= max(most, 1)] or [1]))

    def input(self, shape: tuple[int, ...], kind: int = TensorProto.FLOAT) -> Value:
        value = Value(f"x{len(self.inputs)}", shape)
        self.inputs[value.name] = (value, kind)
        self.shapes[value.name] = shape
        if len(shape) == 4 and kind == TensorProto.FLOAT:
            self.maps.append(value)
        return value

    def constant(self, data: np.ndarray) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = data.astype(np.float32) if data.dtype.kind == "f" else data
        return name

    def weight(self, shape: tuple[int, ...], fan_in: float) -> str:
        """Normal, with a spread per filter; now and then one that the network has already."""
        alike = [n for n, a in self._constants.items() if a.shape == shape and n.startswith("w")]
        if alike and self.chance(0.15):
            return str(self.pick(alike))
        _hold(shape)
        spread = self.rng.uniform(0.5, 1.6, (shape[0], *[1] * (len(shape) - 1)))
        data = self.rng.normal(size=shape) * spread / math.sqrt(fan_in)
        if self.chance(0.1):
            data *= self.rng.random(shape) < 0.5
        name = f"w{len(self._constants)}"
        self._constants[name] = data.astype(np.float32)
        return name

    def numbers(self, shape: tuple[int, ...], low: float, high: float) -> str:
        _hold(shape)
        return self.constant(self.rng.uniform(low, high, shape).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def node(
        self, op: str, inputs: Sequence[Value | str], shape: Sequence[int], **attributes: Any
    ) -> Value:
        return self.nodes(op, inputs, [shape], **attributes)[0]

    def nodes(
        self,
        op: str,
        inputs: Sequence[Value | str],
        shapes: Sequence[Sequence[int]],
        **attributes: Any,
    ) -> list[Value]:
        number = len(self._nodes)
        names = [x.name if isinstance(x, Value) else x for x in inputs]
        many = len(shapes) > 1
        results = [
            Value(f"v{number}_{i}" if many else f"v{number}", tuple(map(int, shape)))
            for i, shape in enumerate(shapes)
        ]
        made = helper.make_node(op, names, [r.name for r in results], **attributes)
        made.name = f"{op}{number}"
        self._nodes.append(made)
        self.shapes |= {r.name: r.shape for r in results}
        return results

    def same(self, op: str, x: Value, *others: Value | str, **attributes: Any) -> Value:
        """A node whose result has the shape of its first operand."""
        return self.node(op, (x, *others), x.shape, **attributes)

    def axes(self, op: str, x: Value, axes: tuple[int, ...], shape: tuple[int, ...]) -> Value:
        """Squeeze, Unsqueeze: axes are an operand."""
        return self.node(op, (x, self.ints(*axes)), shape)

    def unread(self) -> list[str]:
        read = {name for n in self._nodes for name in n.input}
        return [v for n in self._nodes for v in n.output if v not in read]

    def model(self, outputs: Sequence[tuple[str, int]]) -> onnx.ModelProto:
        """outputs: names and types; nodes that none of them needs are left out."""
        kept = needed(self._nodes, [name for name, _ in outputs])
        read = {name for n in kept for name in n.input} | {name for name, _ in outputs}
        graph = helper.make_graph(
            kept,
            "network",
            [
                helper.make_tensor_value_info(value.name, kind, value.shape)
                for value, kind in self.inputs.values()
                if value.name in read
            ],
            [helper.make_tensor_value_info(n, kind, self.shapes[n]) for n, kind in outputs],
            [numpy_helper.from_array(a, n) for n, a in self._constants.items() if n in read],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9
        )


def _hold(shape: tuple[int, ...]) -> None:
    if math.prod(shape) > LARGEST:
        raise TooLargeError


def needed(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that outputs come from, in their order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if wanted & set(node.output):
            kept.append(node)
            wanted |= set(node.input)
    return kept[::-1]
