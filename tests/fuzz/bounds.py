"""How far a machine may be from ONNX Runtime: the rule, and what follows from it for each tensor.

The promise (docs/models.md, docs/decisions.md), in steps of the int8 result of one operator, on
the same operands:

* all scales powers of two: 0. An average over a count that is no power of two: 1. A batch
  normalisation whose constants the product has not rounded itself: 1, and as many as its factors,
  rounded to 16 bits, move the largest operand. A sum of products that
  float32 cannot hold (2**24 and more): 1, since then ONNX Runtime rounds.
* a softmax or layer normalisation, of channels on machines that have the unit: 1.
* other scales: 1; but 0 for operators that only move or choose values of one scale.
* values that are not rounded before they are summed, and constants that arrive as floats in a QDQ
  model: 1. A bias that lies between the steps of its sums: half such a step.
* floats that are not rounded at the end: a rounding of float32, since the front end puts constants
  together.

What is unknown between two tensors adds up: a difference passes through an operator as far as the
operator can carry it (`_carried`), and is rounded up to whole steps by the next QuantizeLinear.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

_EXACT_SUM = 1 << 24
_MOVES = frozenset(
    (
        *("Relu", "Clip", "MaxPool", "Reshape", "Transpose", "Concat", "Split", "Slice", "Pad"),
        *("Identity", "Dropout", "Flatten", "Squeeze", "Unsqueeze", "GlobalMaxPool", "Expand"),
        *("DepthToSpace", "SpaceToDepth", "Max", "Min", "ReduceMax", "Cast", "Tile", "Gather"),
    )
)
_SUMS = frozenset(
    (
        *("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul", "ReduceMean", "ReduceSum"),
        *("AveragePool", "GlobalAveragePool"),
    )
)
_READ_CONSTANTS = _SUMS | {"Add", "Sub", "Mul", "Div", "PRelu"}
_CARRY_AS_IS = _MOVES | {
    *("LeakyRelu", "AveragePool", "GlobalAveragePool", "ReduceMean", "Resize", "Sigmoid", "Tanh"),
    *("HardSigmoid", "Elu", "Softplus", "Softsign", "Abs", "Neg", "Sin"),
    *("QuantizeLinear", "DequantizeLinear", "PRelu"),
}
"""Operators by which no difference grows: slopes of at most 1, and no jumps (ThresholdedRelu)."""


@dataclass
class Bounds:
    """Of a QDQ model. steps: of every QuantizeLinear's result; math.inf where nothing can be said.
    real: of every other value, in its own unit. own: the product quantised it. Values in `given`
    differ by nothing: they are the machine's own.
    """

    model: onnx.ModelProto
    shapes: Mapping[str, tuple[int, ...]]
    given: frozenset[str]
    own: bool
    steps: dict[str, float] = field(default_factory=dict)
    real: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self._constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        self._ints: dict[str, np.ndarray] = {}
        self._units: dict[str, np.ndarray] = {}
        """Scales of constants that are integers."""
        self._rough: set[str] = set()
        """Values made with an operator that may be off, since the last rounding."""
        self._blurred: dict[str, float] = {}
        """By how much 16-bit factors may move a value since the last rounding."""
        self._scales: dict[str, frozenset[float]] = {}
        """Of the roundings that a value comes from."""
        self._sums: dict[str, tuple[np.ndarray, np.ndarray] | None] = {}
        """Of layers without a function behind them: units, see `_finest`."""
        for node in graph.node:
            self._visit(node)

    def _visit(self, node: onnx.NodeProto) -> None:
        if node.op_type == "DequantizeLinear":
            self._dequantize(node)
        elif node.op_type == "QuantizeLinear":
            self._quantize(node)
        else:
            operands = [v for v in node.input if v and v not in self._constants]
            carried = self._carried(node, operands)
            rough = any(v in self._rough for v in operands) or self._is_rough(node)
            rough |= node.op_type in _SUMS and not all(self._is_rounded(v) for v in operands)
            rough |= node.op_type in _READ_CONSTANTS and self._reads_floats(node)
            scales = frozenset().union(*(self._scales.get(v, frozenset()) for v in operands))
            if node.op_type not in _MOVES:
                scales |= {math.nan}  # computes: no result is the operand itself
            carried += self._of_bias(node)
            blurred = max((self._blurred.get(v, 0.0) for v in operands), default=0.0)
            for name in node.output:
                self._blurred[name] = blurred + self._of_factors(node)
                self.real[name], self._scales[name] = carried, scales
                if rough:
                    self._rough.add(name)

    def _reads_floats(self, node: onnx.NodeProto) -> bool:
        constants = [v for v in node.input if v in self._constants]
        return not self.own and any(v not in self._ints for v in constants)

    def _is_rounded(self, name: str) -> bool:
        """Whether a value comes straight from int8."""
        origins = self._scales.get(name, frozenset())
        return len(origins) == 1 and not any(map(math.isnan, origins))

    def is_rough(self, name: str) -> bool:
        """Whether a float may differ by the rounding of float32, not only by `real`."""
        return not self._is_rounded(name)

    def _dequantize(self, node: onnx.NodeProto) -> None:
        source, name = node.input[0], node.output[0]
        scale = self._constants.get(node.input[1])
        if source in self._constants or scale is None:
            self.real[name] = 0.0 if source in self._constants else math.inf
            if scale is not None and source in self._constants:
                self._constants[name] = self._real_constant(node, scale)
            return
        steps = 0.0 if source in self.given else self.steps.get(source, self.real.get(source, 0.0))
        self.real[name] = steps * float(scale.max())
        self._scales[name] = frozenset(map(float, scale.ravel()))

    def _real_constant(self, node: onnx.NodeProto, scale: np.ndarray) -> np.ndarray:
        data = self._constants[node.input[0]].astype(np.float64)
        zero = self._constants.get(node.input[2]) if len(node.input) > 2 else None
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
        block = next((a.i for a in node.attribute if a.name == "block_size"), 0)

        def spread(values: np.ndarray) -> np.ndarray:
            if block and values.size > 1:
                return np.repeat(values.astype(np.float64), block, axis)
            shape = [1] * data.ndim
            if values.size > 1:
                shape[axis] = values.size
            return values.astype(np.float64).reshape(shape)

        unit, offset = spread(scale), np.zeros(()) if zero is None else spread(zero)
        if node.op_type == "QuantizeLinear":
            kind = np.iinfo(np.uint8 if zero is None else zero.dtype)
            return np.clip(np.rint(data / unit) + offset, kind.min, kind.max)
        self._ints[node.output[0]] = data - offset
        self._units[node.output[0]] = scale.ravel().astype(np.float64)
        return (data - offset) * unit

    def _quantize(self, node: onnx.NodeProto) -> None:
        source, name = node.input[0], node.output[0]
        scale = self._constants.get(node.input[1])
        if scale is None:
            self.steps[name] = math.inf
            return
        if source in self._constants:
            self._constants[name] = self._real_constant(node, scale)
            return
        unit = float(scale.min())
        origins = self._scales.get(source, frozenset())
        moved = all(s == unit for s in origins)
        powers = _is_pow2(unit) and all(math.isnan(s) or _is_pow2(s) for s in origins)
        own = 1.0 if source in self._rough or not (moved or powers) else 0.0
        own += math.floor(own * self._blurred.get(source, 0.0) / unit)
        real = self.real.get(source, 0.0)
        if not 0.0 < real < math.inf:  # 0 times infinity is not a number
            self.steps[name] = own if real == 0.0 else math.inf
            return
        apart = real / unit
        # Computed values may lie in the middle: 0.5 and 1.5 round to 0 and 2.
        computed = any(math.isnan(s) for s in origins)
        self.steps[name] = own + (
            math.floor(apart + 1e-9) + 1 if computed else math.ceil(apart - 1e-9)
        )

    def _carried(self, node: onnx.NodeProto, operands: Iterable[str]) -> float:
        """The difference of a result, from those of its operands."""
        found = [self.real.get(v, 0.0) for v in operands]
        largest = max(found, default=0.0)
        if largest == 0.0:
            return 0.0
        if node.op_type in _CARRY_AS_IS:
            return largest
        if node.op_type in {"Add", "Sub", "Sum"}:
            return sum(found)
        factor = self._factor(node)
        return largest * factor if factor is not None else math.inf

    def _factor(self, node: onnx.NodeProto) -> float | None:
        """The most by which a linear operator with constants can enlarge a difference."""
        constants = [abs(self._constants[v]) for v in node.input if v in self._constants]
        if not constants:
            return None
        match node.op_type:
            case "Mul":
                return float(constants[0].max())
            case "Conv":
                return float(constants[0].sum(axis=tuple(range(1, constants[0].ndim))).max())
            case "Gemm" | "MatMul":
                return float(max(constants[0].sum(axis=0).max(), constants[0].sum(axis=1).max()))
            case _:
                return None

    def _is_rough(self, node: onnx.NodeProto) -> bool:
        """Whether an operator alone may be off although all scales are powers of two."""
        match node.op_type:
            case "AveragePool" | "GlobalAveragePool" | "ReduceMean":
                return not self._power_counts(node)
            case "BatchNormalization":
                return not self.own
            case "Softmax" | "LayerNormalization" | "RMSNormalization":
                return True
            case "InstanceNormalization" | "GroupNormalization":
                return True
            case "Resize":  # weights of a linear one are parts of the ratio
                linear = any(a.name == "mode" and a.s == b"linear" for a in node.attribute)
                return linear and not all(map(_is_pow2, self._ratios(node)))
            case "LeakyRelu":
                alpha = next((a.f for a in node.attribute if a.name == "alpha"), 0.01)
                return not self.own and alpha * 2**15 % 1 != 0
            case "Mean":
                return len(node.input) & (len(node.input) - 1) != 0
            case "Conv" | "Gemm" | "MatMul" | "ConvTranspose":
                return self._overflows(node)
            case _:
                return False

    def _ratios(self, node: onnx.NodeProto) -> list[float]:
        """Of the sizes of a result and the operand; none where they are unknown."""
        before, after = self.shapes.get(node.input[0]), self.shapes.get(node.output[0])
        if not before or not after or len(before) != len(after):
            return []
        return [n / m for n, m in zip(after, before, strict=True) if m]

    def _power_counts(self, node: onnx.NodeProto) -> bool:
        """Whether every average is over a power of two of values."""
        form = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "AveragePool":
            shape = self.shapes.get(node.input[0], (0, 0, 0))
            whole = list(shape[2:]) == list(form["kernel_shape"]) and not any(form.get("pads", ()))
            inside = form.get("count_include_pad", 0) or not (
                any(form.get("pads", ())) or form.get("ceil_mode") or form.get("auto_pad")
            )
            return _is_pow2(math.prod(form["kernel_shape"])) and (
                whole or bool(inside and not form.get("ceil_mode"))
            )
        before, after = self.shapes.get(node.input[0]), self.shapes.get(node.output[0])
        if not before or after is None:
            return False
        return _is_pow2(math.prod(before) / max(math.prod(after), 1))

    def _of_bias(self, node: onnx.NodeProto) -> float:
        """By how much a sum may be off since its bias is rounded to its unit: nothing, or half of
        that. Units that are powers of two become as fine as the integers of the weight allow.
        """
        if node.op_type in _SUMS and len(node.input) > 1:
            self._sums[node.output[0]] = self._finest(node)
            name, found = "".join(node.input[2:]), self._sums[node.output[0]]
        elif node.op_type in {"Add", "Sub"}:
            name = next((v for v in node.input if v in self._constants), "")
            found = next((self._sums[v] for v in node.input if v in self._sums), None)
        else:
            return 0.0
        if found is None or name not in self._constants:
            return 0.0
        unit, finest = found
        bias = self._constants[name].astype(np.float64).ravel()
        if len({1, bias.size, finest.size}) > 2:
            return float(unit.max()) / 2
        with np.errstate(invalid="ignore", over="ignore"):
            return float(np.where(bias / finest % 1 == 0, 0.0, unit / 2).max())

    def _of_factors(self, node: onnx.NodeProto) -> float:
        """Half a unit of the largest factor of a normalisation (15 bits, the first one set), 256
        times: the 255 steps of its operand and its offset are off by so much.
        """
        if node.op_type != "BatchNormalization" or not self._is_rounded(node.input[0]):
            return 0.0
        if not {node.input[1], node.input[4]} <= self._constants.keys():
            return 0.0
        gain, variance = (self._constants[v].astype(np.float64) for v in node.input[1:5:3])
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        factor = float(np.abs(gain / np.sqrt(variance + epsilon)).max())
        return 256 * max(self._scales[node.input[0]]) * factor / 2**15

    def _finest(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
        """Units of a sum's channels, and the finest that they can become; None where the product
        does not compute with integers.
        """
        weight, scale = self._ints.get(node.input[1]), self._units.get(node.input[1])
        origins = self._scales.get(node.input[0], frozenset())
        if not self._is_rounded(node.input[0]):
            return None
        if weight is None or scale is None:
            return self._of_floats(node, next(iter(origins)))
        unit = scale * next(iter(origins))
        if not np.all((unit > 0) & np.isfinite(unit)):
            return None
        turned = any(a.name == "transB" and a.i for a in node.attribute)
        axis = 0 if node.op_type == "Conv" or turned else 1
        others = tuple(i for i in range(weight.ndim) if i != axis)
        room = np.floor(np.log2(128 / np.maximum(np.abs(weight).max(axis=others), 1)))
        if len({1, room.size, unit.size}) > 2 or not all(map(_is_pow2, unit)):
            return unit, unit
        return unit, np.ldexp(unit, -np.maximum(room, 0).astype(int))

    def _of_floats(self, node: onnx.NodeProto, unit: float) -> tuple[np.ndarray, np.ndarray] | None:
        """Of weights in floats that may be 8-bit integers times a scale, doubled as long as they
        are such: from 64 on. Nothing is known of finer units.
        """
        weight = self._constants.get(node.input[1])
        if weight is None or self.own:
            return None
        largest = np.array([np.abs(weight).max(initial=0.0) / 64 * unit])
        return largest, np.full(1, np.nan)

    def _overflows(self, node: onnx.NodeProto) -> bool:
        """Whether a sum of weights × operands can leave what float32 holds exactly."""
        weight = self._ints.get(node.input[1])
        if weight is None:
            return self._overflows_computed(node)
        axes = tuple(range(1, weight.ndim)) if node.op_type == "Conv" else ()
        sums = np.abs(weight).sum(axis=axes) if axes else np.abs(weight).sum(axis=0)
        return float(sums.max(initial=0.0)) * 128 >= _EXACT_SUM

    def _overflows_computed(self, node: onnx.NodeProto) -> bool:
        """The same of a product of two computed matrices: no two integers of 8 bits differ
        by more than 255.
        """
        summed = self.shapes.get(node.input[0], ())[-1:]
        computed = not any(v in self._constants for v in node.input)
        if node.op_type != "MatMul" or not computed or not all(summed):
            return True
        return math.prod(summed) * 255**2 >= _EXACT_SUM if summed else True


def _is_pow2(x: float) -> bool:
    return x > 0 and math.frexp(x)[0] == 0.5
