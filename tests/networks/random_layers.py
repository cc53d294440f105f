"""Random layers: one operator of a machine each, with remainders in every dimension.

A layer is a small model: the operator, what it needs around it (parts to join, a consumer), and
sometimes an activation and a pool. Tensors hold `MANY` elements at least, few of them at an end.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import ModuleKind as K

MANY = 200
FUNCTIONS = ("Sigmoid", "Tanh", "Elu", "Softplus", "Selu", "HardSwish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """kind: key of `KINDS`; scales: as in `prepare`; inputs: one sample or several, by name."""

    kind: str
    model: ir.Model
    scales: Literal["pow2", "free"]
    inputs: dict[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """A value under construction; shape: (channels, rows, cols), or (channels,)."""

    name: str
    shape: tuple[int, ...]


class Sketch:
    """A layer under construction: every call adds an operator and gives its result."""

    def __init__(self, rng: np.random.Generator, hw: HwSpec) -> None:
        self.rng, self.hw = rng, hw
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.fewest = MANY

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def number(self, low: int, high: int) -> int:
        """Of low … high."""
        return int(self.rng.integers(low, high + 1))

    def channels(self) -> int:
        """Often at most a quarter of a word, else up to several words."""
        word = self.hw.word_channels
        return self.number(1, word // 4 if self.chance(0.3) else 5 * word // 2)

    def input(self, channels: int | None = None, least: int = 4) -> Map:
        """Noise around a mean per channel, so that averages differ; sometimes several tiles."""
        tile = math.isqrt(self.hw.buffers.psum.bank_words)
        most = 2 * tile if self.chance(0.2) else 19
        size = [self.number(least, max(most, 19)) for _ in range(2)]
        return self._input((channels or self.channels(), *size), samples=1)

    def vector(self) -> Map:
        return self._input((self.number(MANY, 4 * MANY),), samples=3)

    def _input(self, shape: tuple[int, ...], samples: int) -> Map:
        name = f"x{len(self.inputs)}"
        means = self.rng.normal(0.0, 0.6, (shape[0], *[1] * (len(shape) - 1)))
        noise = self.rng.normal(0.0, 0.8, (samples, *shape))
        self.inputs[name] = (noise + means).astype(np.float32)
        self.fewest = min(self.fewest, int(np.prod(shape)))
        return Map(name=name, shape=shape)

    def constant(self, data: np.ndarray) -> str:
        name = f"c{len(self._constants)}"
        kept = data.astype(np.float32) if data.dtype.kind == "f" else data
        self._constants.append(numpy_helper.from_array(kept, name))
        return name

    def nodes(
        self, op: str, inputs: tuple[Map | str, ...], shapes: list[tuple[int, ...]], **attrs: Any
    ) -> list[Map]:
        results = [
            Map(name=f"v{len(self._nodes)}_{i}", shape=shape) for i, shape in enumerate(shapes)
        ]
        names = [x.name if isinstance(x, Map) else x for x in inputs]
        self.fewest = min([self.fewest, *(int(np.prod(shape)) for shape in shapes)])
        made = helper.make_node(op, names, [r.name for r in results], **attrs)
        made.name = f"{op.lower()}{len(self._nodes)}"
        self._nodes.append(made)
        return results

    def node(self, op: str, *inputs: Map | str, shape: tuple[int, ...], **attrs: Any) -> Map:
        return self.nodes(op, inputs, [shape], **attrs)[0]

    def model(self, name: str, result: Map) -> ir.Model:
        def info(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, *shape))

        graph = helper.make_graph(
            self._nodes,
            name,
            [info(n, x.shape[1:]) for n, x in self.inputs.items()],
            [info(result.name, result.shape)],
            self._constants,
        )
        opset = [helper.make_opsetid("", 18)]
        return ir.from_proto(helper.make_model(graph, opset_imports=opset, ir_version=9))


def convolve(s: Sketch, x: Map, *, kind: str = "full", kernel: int = 5, out: int = 0) -> Map:
    """kind: full, grouped, depthwise; kernel: the largest side; out: channels, drawn if 0."""
    c, *size = x.shape
    k = [s.number(1, min(kernel, n)) for n in size]
    d = [s.number(1, 2) if (j - 1) * 2 < n else 1 for j, n in zip(k, size, strict=True)]
    stride = [1 if s.chance(0.5) else s.number(1, 3) for _ in k]
    reach = [(j - 1) * e + 1 for j, e in zip(k, d, strict=True)]
    pads = [s.number(0, r // 2) for r in (*reach, *reach)]
    if kernel == 1:
        stride = [1, 1]
    padded = [n + pads[a] + pads[a + 2] for a, n in enumerate(size)]
    rows, cols = ((padded[a] - reach[a]) // stride[a] + 1 for a in (0, 1))
    match kind:
        case "full":
            groups, out = 1, out or s.channels()
        case "depthwise":
            groups = out = c
        case _:
            groups = int(s.rng.choice([g for g in range(2, c) if c % g == 0]))
            out = groups * s.number(1, 6)
    weight = s.rng.normal(size=(out, c // groups, *k)) / np.sqrt(c // groups * k[0] * k[1])
    operands = [x, s.constant(weight)]
    if s.chance(0.7):
        operands.append(s.constant(s.rng.normal(0.0, 0.3, out)))
    shape = (out, rows, cols)
    form = {"kernel_shape": k, "strides": stride, "pads": pads, "dilations": d, "group": groups}
    return s.node("Conv", *operands, shape=shape, **form)


def activate(s: Sketch, x: Map) -> Map:
    """One of the activations that the machine's comparator knows."""
    known = [op for op in ("relu", "clip", "leaky_relu") if op in s.hw.dataflow.operators]
    match known[s.number(0, len(known) - 1)]:
        case "relu":
            return s.node("Relu", x, shape=x.shape)
        case "clip":
            ends = (s.constant(np.array(e)) for e in s.rng.uniform([-2.0, 2.6], [0.0, 6.0]))
            return s.node("Clip", x, *ends, shape=x.shape)
        case _:
            return s.node("LeakyRelu", x, shape=x.shape, alpha=2.0 ** -s.number(1, 5))


def pool(s: Sketch, x: Map, op: str = "MaxPool", least: int = 1) -> Map:
    size = x.shape[1:]
    k = [s.number(min(least, n), min(4, n)) for n in size]
    stride = [s.number(1, 3) for _ in k]
    pads = [s.number(0, j // 2) for j in (*k, *k)]
    shape = [(n + pads[a] + pads[a + 2] - k[a]) // stride[a] + 1 for a, n in enumerate(size)]
    form: dict[str, object] = {"kernel_shape": k, "strides": stride, "pads": pads}
    if op == "AveragePool":
        form["count_include_pad"] = s.number(0, 1)
    return s.node(op, x, shape=(x.shape[0], *shape), **form)


def finish(s: Sketch, x: Map) -> Map:
    """Sometimes an activation and a pool, in either order."""
    steps = [step for step in (activate, pool) if s.chance(0.4)]
    for i in s.rng.permutation(len(steps)):
        x = steps[i](s, x)
    return x


def conv(s: Sketch) -> Map:
    return finish(s, convolve(s, s.input()))


def grouped(s: Sketch) -> Map:
    x = s.input(s.number(2, 5) * s.number(2, s.hw.word_channels // 2), least=9)
    return finish(s, convolve(s, x, kind="grouped", kernel=3))


def depthwise(s: Sketch) -> Map:
    x = convolve(s, s.input(least=9), kernel=1, out=s.channels())
    return finish(s, convolve(s, x, kind="depthwise"))


def dense(s: Sketch) -> Map:
    """Three samples, one after the other."""
    x = s.vector()
    for _ in range(s.number(1, 2)):
        out = s.number(MANY, 2 * MANY)
        weight = s.rng.normal(size=(out, x.shape[0])) / np.sqrt(x.shape[0])
        operands = (s.constant(weight), s.constant(s.rng.normal(0.0, 0.3, out)))
        x = s.node("Gemm", x, *operands, shape=(out,), transB=1)
    return activate(s, x) if s.chance(0.5) else x


def transposed_conv(s: Sketch) -> Map:
    x = convolve(s, s.input(), kernel=1)
    c, *size = x.shape
    alone = s.chance(0.3)
    groups, per_group = (c, 1) if alone else (1, s.channels())
    k, stride = [s.number(1, 4) for _ in size], [s.number(1, 3) for _ in size]
    more = [s.number(0, n - 1) for n in stride]
    pads = [s.number(0, j // 2) for j in (*k, *k)]
    shape = [
        (n - 1) * stride[a] + k[a] + more[a] - pads[a] - pads[a + 2] for a, n in enumerate(size)
    ]
    taps = max(k[0] * k[1] / (stride[0] * stride[1]), 1.0)
    weight = s.rng.normal(size=(c, per_group, *k)) / np.sqrt(c // groups * taps)
    bias = s.rng.normal(0.0, 0.3, per_group * groups)
    form = {"kernel_shape": k, "strides": stride, "pads": pads, "output_padding": more}
    operands = (x, s.constant(weight), s.constant(bias))
    y = s.node("ConvTranspose", *operands, shape=(len(bias), *shape), group=groups, **form)
    return finish(s, y)


def max_pool(s: Sketch) -> Map:
    return pool(s, s.input(least=6), least=2)


def avg_pool(s: Sketch) -> Map:
    x = s.input(least=6)
    if s.chance(0.3):
        x = convolve(s, x, kernel=3)
    if s.chance(0.7) or x.shape[1] * x.shape[2] > 19 * 19:  # the average of a map fits a tile
        return pool(s, x, "AveragePool", least=2)
    x = convolve(s, x, kernel=1, out=s.number(MANY, 2 * MANY))
    return s.node("GlobalAveragePool", x, shape=(x.shape[0], 1, 1))


def add(s: Sketch) -> Map:
    x = s.input()
    left = convolve(s, x, kernel=1)
    right = convolve(s, x, kernel=1, out=left.shape[0])
    op = "Sub" if s.chance(0.4) else "Add"
    return finish(s, s.node(op, left, right, shape=left.shape))


def multiply(s: Sketch) -> Map:
    """Two maps, or a map and one factor per channel, at times in front of a convolution."""
    x = s.input()
    left = convolve(s, x, kernel=1, out=s.number(MANY, 2 * MANY))
    right = convolve(s, x, kernel=1, out=left.shape[0])
    if s.chance(0.5):
        mean = s.node("GlobalAveragePool", right, shape=(right.shape[0], 1, 1))
        right = s.node("Sigmoid", mean, shape=mean.shape)
    y = s.node("Mul", *((left, right) if s.chance(0.7) else (right, left)), shape=left.shape)
    return finish(s, convolve(s, y, kernel=s.number(1, 3)) if s.chance(0.6) else y)


def table(s: Sketch) -> Map:
    x = convolve(s, s.input(), kernel=3)
    return finish(s, s.node(FUNCTIONS[s.number(0, len(FUNCTIONS) - 1)], x, shape=x.shape))


def prelu(s: Sketch) -> Map:
    x = convolve(s, s.input(), kernel=3)
    slopes = s.rng.uniform(0, 1, (x.shape[0], 1, 1)).astype(np.float32)
    return finish(s, s.node("PRelu", x, s.constant(slopes), shape=x.shape))


def upsample(s: Sketch) -> Map:
    x = activate(s, convolve(s, s.input(), kernel=3))
    scale = [s.number(1, 3), s.number(2, 3)]
    shape = (x.shape[0], x.shape[1] * scale[0], x.shape[2] * scale[1])
    factors = s.constant(np.array([1, 1, *scale], np.float32))
    form = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return s.node("Resize", x, "", factors, shape=shape, mode="nearest", **form)


def concat(s: Sketch) -> Map:
    x = s.input()
    parts = [convolve(s, x, kernel=1) for _ in range(s.number(2, 4))]
    shape = (sum(p.shape[0] for p in parts), *x.shape[1:])
    whole = s.node("Concat", *parts, shape=shape, axis=1)
    return finish(s, convolve(s, whole, kernel=3) if s.chance(0.7) else whole)


def split(s: Sketch) -> Map:
    x = convolve(s, s.input(), kernel=1, out=s.number(24, 5 * s.hw.word_channels // 2))
    cuts = np.sort(s.rng.choice(np.arange(1, x.shape[0]), s.number(1, 2), replace=False))
    sizes = np.diff([0, *cuts, x.shape[0]])
    shapes = [(int(n), *x.shape[1:]) for n in sizes]
    parts = s.nodes("Split", (x, s.constant(sizes.astype(np.int64))), shapes, axis=1)
    out = s.channels()
    made = [convolve(s, part, kernel=1, out=out) for part in parts]
    return s.node("Concat", *made, shape=(out * len(made), *x.shape[1:]), axis=1)


def shuffle(s: Sketch) -> Map:
    groups = s.number(2, 4)
    each = s.number(-(-24 // groups), 2 * s.hw.word_channels // groups + 1)
    x = convolve(s, s.input(), kernel=1, out=groups * each)
    size = x.shape[1:]
    apart = s.constant(np.array((1, groups, each, *size), np.int64))
    whole = s.constant(np.array((1, groups * each, *size), np.int64))
    y = s.node("Reshape", x, apart, shape=(groups, each, *size))
    y = s.node("Transpose", y, shape=(each, groups, *size), perm=(0, 2, 1, 3, 4))
    y = s.node("Reshape", y, whole, shape=x.shape)
    return finish(s, convolve(s, y, kernel=3))


def batch_norm(s: Sketch) -> Map:
    x = convolve(s, s.input(), kernel=1)
    c = x.shape[0]
    numbers = (
        s.rng.uniform(0.5, 1.5, c) * s.rng.choice([-1, 1], c),
        s.rng.normal(0.0, 0.5, c),
        s.rng.normal(0.0, 0.3, c),
        s.rng.uniform(0.5, 2.0, c),
    )
    y = activate(s, x)
    y = s.node("BatchNormalization", y, *(s.constant(n) for n in numbers), shape=x.shape)
    if s.chance(0.7):
        y = activate(s, y)
    return finish(s, convolve(s, y, kernel=3))


def pad(s: Sketch) -> Map:
    """With what the machine's module can insert, in front of a convolution."""
    x = convolve(s, s.input(), kernel=3)
    limits = next(m.limits for m in s.hw.dataflow.modules.values() if m.kind is K.PAD)
    top, left = s.number(0, 2), s.number(1, 3)
    bottom, right = (s.number(0, 2), s.number(0, 2)) if limits.asymmetric else (top, left)
    pads = s.constant(np.array((0, 0, top, left, 0, 0, bottom, right), np.int64))
    fill = 0.0 if limits.fill == "zero" else s.rng.uniform(-0.5, 0.5)
    shape = (x.shape[0], x.shape[1] + top + bottom, x.shape[2] + left + right)
    y = s.node("Pad", x, pads, s.constant(np.array(fill)), shape=shape)
    return finish(s, convolve(s, y, kernel=3))


def affine(s: Sketch) -> Map:
    """A factor and an offset per channel in front of a convolution."""
    x = convolve(s, s.input(), kernel=1)
    column = (1, x.shape[0], 1, 1)
    for op, numbers in (
        ("Mul", s.rng.uniform(0.5, 2.0, column)),
        ("Add", s.rng.normal(size=column)),
    ):
        if s.chance(0.7):
            x = s.node(op, x, s.constant(numbers), shape=x.shape)
    return finish(s, convolve(s, x, kernel=3))


KINDS: dict[str, Callable[[Sketch], Map]] = {
    "conv": conv,
    "grouped": grouped,
    "depthwise": depthwise,
    "dense": dense,
    "transposed_conv": transposed_conv,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "add": add,
    "multiply": multiply,
    "table": table,
    "upsample": upsample,
    "concat": concat,
    "split": split,
    "shuffle": shuffle,
    "batch_norm": batch_norm,
    "pad": pad,
    "affine": affine,
    "prelu": prelu,
}
_OPERATOR = {"grouped": "conv", "depthwise": "conv", "affine": "multiply"}
_MODULES = {"add": K.RES_ADDER, "multiply": K.SE, "affine": K.MULTIPLIER}


def kinds_of(hw: HwSpec) -> tuple[str, ...]:
    """Kinds of layers that a machine has the modules for."""
    return tuple(k for k in KINDS if _knows(hw, k))


def _knows(hw: HwSpec, kind: str) -> bool:
    modules = hw.dataflow.operators.get(_OPERATOR.get(kind, kind), ())
    return bool(modules) and _MODULES.get(kind, modules[0]) in modules and hw.has(*modules)


def draw(hw: HwSpec, seed: int) -> Layer:
    """The layer of a seed: kinds take turns, scales too where the machine multiplies."""
    rng = np.random.default_rng(seed)
    kinds = kinds_of(hw)
    kind = kinds[seed % len(kinds)]
    while True:
        sketch = Sketch(rng, hw)
        result = KINDS[kind](sketch)
        if sketch.fewest >= MANY:
            break
    free = hw.numeric.multiplier_bits > 0 and seed // len(kinds) % 2
    model = sketch.model(f"{kind}_{seed}", result)
    return Layer(kind=kind, model=model, scales="free" if free else "pow2", inputs=sketch.inputs)
