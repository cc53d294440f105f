"""Bound on the difference of a rounded tensor from ONNX Runtime's, in steps, for equal operands.

With power-of-two scales the machine rounds as ONNX Runtime does, bit for bit (docs/models.md). One
step is allowed after (1) an average over a count that is no power of two, whose reciprocal has no
exact multiplier; (2) scales that are no powers of two, for the same reason, unless a table changes
one to another; (3) constants in floats
that the machine's integers do not hold: of a normalisation, slopes, a bias, a sum or a product; (4)
a softmax or layer normalisation on the machine, whose exponentials, reciprocals and roots have 16
bits and more (`normalisation.py`). A bias may be rounded to sums coarser than the result; then it
is as many steps as that moves it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from onnx import numpy_helper

from opu_fuse.fixedpoint import is_power_of_two
from opu_fuse.model.operator_record import Trait
from opu_fuse.model.operator_sets import (
    AFFINE,
    LAYERS,
    MOVES_VALUES,
    NONEXPANSIVE,
    POOLS,
    SLOPES,
    SUMS,
    WEIGHTED,
    having,
)
from opu_fuse.quant import finer_by

AVERAGES = "an average over a count that is no power of two"
SCALES = "scales that are no powers of two"
STATISTICS = "a softmax or layer normalisation on the machine"
ADDED = "roundings that the compiler added"
CONSTANTS = "constants in floats that the machine's integers do not hold"
_GLOBAL = having(Trait.AVERAGES) - POOLS
_ARITHMETIC = (AFFINE | {"Sum"}) - {"BatchNormalization"}
_CONSTANT_BITS = 16
FLOAT_TOLERANCE = 1e-5
"""Tolerance of a float output, relative to its largest value: the host may add in another order."""
ADDED_STEPS = 4
"""Steps of the next rounded result by which an inserted Q/DQ pair may move it
(`frontend/quantization/insert_missing_qdq.py`).
"""
_ANY = (1 << 8) - 1  # steps between the ends of int8


class Allowed(Struct, frozen=True, kw_only=True):
    """steps: largest difference; why: the reason where it is not zero."""

    steps: int
    why: str = ""


EXACT = Allowed(steps=0)


def allowed_differences(
    model: onnx.ModelProto,
    shapes: Mapping[str, tuple[int, ...]],
    shown: Collection[str] | None = None,
    looked_up: Collection[str] = (),
    added: AbstractSet[str] = frozenset(),
    norms: Collection[str] = (),
) -> dict[str, Allowed]:
    """Allowed difference of every result of a QuantizeLinear, by name.

    shapes: shapes of those results. shown: results whose values are known (None: all); the allowed
    difference of a hidden one propagates to its readers. looked_up: results that a machine's table
    computes. added: results that the reference model does not round. norms: ONNX operators of
    `model/norms.py` that the machine computes.
    """
    graph = _Graph(model, looked_up, norms)
    results: dict[str, Allowed] = {}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            own = graph.allowed(node, shapes)
            if added and added & graph.hidden_before(node.input[0], results, ()).keys():
                own = Allowed(steps=own.steps + ADDED_STEPS, why=own.why or ADDED)
            hidden = {} if shown is None else graph.hidden_before(node.input[0], results, shown)
            results[node.output[0]] = graph.allowed_after_hidden(node, own, hidden)
    return results


def allowed_of_outputs(
    model: onnx.ModelProto, allowed: Mapping[str, Allowed], shown: Collection[str]
) -> dict[str, float]:
    """For every output of the model, by name: largest error in its own numbers that the errors of
    hidden roundings before it cause. allowed: `allowed_differences` with the same `shown`.
    """
    graph = _Graph(model)
    names = [output.name for output in model.graph.output]
    return {name: graph.error(name, graph.hidden_before(name, allowed, shown)) for name in names}


class _Graph:
    """The operators between two roundings: the predecessors of a QuantizeLinear, up to the
    DequantizeLinears that it is computed from.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        looked_up: Collection[str] = (),
        norms: Collection[str] = (),
    ) -> None:
        self.looked_up, self.norms = looked_up, {*norms}
        if "GroupNormalization" in norms:  # its forms in the canonical model, and in the user's
            self.norms.add("LayerNormalization")
            self.norms.add("InstanceNormalization")
        self.producer = {name: node for node in model.graph.node for name in node.output}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}

    def allowed(self, rounding: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> Allowed:
        between = list(self._between(rounding.input[0]))
        operators = [n for n in between if n.op_type != "DequantizeLinear"]
        if not operators and rounding.output[0] in self.looked_up:
            return EXACT
        scales = [self._constant(n.input[1]) for n in [rounding, *between] if n not in operators]
        bias_errors = [self._bias_error(n) for n in operators]
        if not all(scale is not None and is_power_of_two(scale) for scale in scales):
            units = {s.tobytes() for s in scales if s is not None}
            if _only_move(operators) and len(units) == 1:
                return EXACT
            why = SCALES
        elif any(not self._divides_exactly(n, shapes) for n in operators):
            why = AVERAGES
        elif any(n.op_type in self.norms for n in operators):
            why = STATISTICS
        elif (
            any(bias_errors)
            or None in bias_errors
            or not all(self._holds_constants(n) for n in operators)
        ):
            why = CONSTANTS
        else:
            return EXACT
        # Whatever moves a value by less than a step moves the rounded one by a step at most.
        gain = float(np.prod([self._gain(n) for n in operators if not _is_sum(n)]))
        error = sum(e or 0.0 for e in bias_errors) * gain + sum(map(self._factor_error, operators))
        return Allowed(steps=_steps(error, scales[0], self._ends(rounding)), why=why)

    def hidden_before(
        self, name: str, allowed: Mapping[str, Allowed], shown: Collection[str]
    ) -> dict[str, Allowed]:
        """The tensors that a value is computed from and that are not shown."""
        read = [n.input[0] for n in self._between(name) if n.op_type == "DequantizeLinear"]
        return {name: allowed[name] for name in read if name in allowed and name not in shown}

    def allowed_after_hidden(
        self, rounding: onnx.NodeProto, own: Allowed, hidden: Mapping[str, Allowed]
    ) -> Allowed:
        """Allowed steps of a result if the hidden ones before it differ by theirs."""
        before = rounding.input[0]
        error, step = self.error(before, hidden), self._constant(rounding.input[1])
        if not error:
            return own
        why = own.why or next(other.why for other in hidden.values() if other.steps)
        most = self._ends(rounding)
        if step is None or not (error < np.inf and step.min() > 0):
            return Allowed(steps=most, why=why)
        error_steps = error / float(step.min())
        # A result may be a tie: 0.5 and 1.5 differ by one step, and round to 0
        # and 2.
        rounded = (
            np.ceil(error_steps) if _only_move(self._between(before)) else np.floor(error_steps) + 1
        )
        return Allowed(steps=min(most, own.steps + min(most, int(rounded))), why=why)

    def error(self, name: str, hidden: Mapping[str, Allowed]) -> float:
        """Largest error of a value if the hidden ones before it have theirs; infinity where a
        scale is not known.
        """
        errors: dict[str, float] = {}
        stack = [name]
        while stack:
            value = stack[-1]
            node = self.producer.get(value)
            if node is None or node.op_type == "DequantizeLinear":
                errors[value] = self._operand_error(node, hidden)
            elif left := [v for v in node.input if v not in errors]:
                stack += left
                continue
            else:
                total = sum(errors[v] for v in node.input)
                enlarged = total and total * self._gain(node)  # which may be no number
                errors[value] = enlarged if enlarged < np.inf else np.inf
            stack.pop()
        return errors[name]

    def _operand_error(self, pair: onnx.NodeProto | None, hidden: Mapping[str, Allowed]) -> float:
        """Largest error of a DequantizeLinear's result; pair is None for a constant or input."""
        steps = hidden[pair.input[0]].steps if pair is not None and pair.input[0] in hidden else 0
        scale = self._constant(pair.input[1]) if pair is not None and steps else np.zeros(1)
        return np.inf if scale is None else steps * float(scale.max())

    def _gain(self, node: onnx.NodeProto) -> float:
        """Largest factor by which an operator enlarges an error of its operands."""
        if node.op_type in NONEXPANSIVE or node.op_type == "DequantizeLinear":
            return 1.0
        pair = self.producer.get(node.input[1]) if node.input[1:] else None
        weight = None if pair is None else self._constant(pair.input[0])
        if node.op_type not in LAYERS or weight is None or pair is None:
            return float(_ANY)
        scale = self._constant(pair.input[1])
        rows = np.abs(np.moveaxis(weight.astype(np.float64), _output_axis(node), 0))
        sums = rows.reshape(len(rows), -1).sum(axis=1)
        return float((sums * (1.0 if scale is None else scale.max())).max())

    def _ends(self, rounding: onnx.NodeProto) -> int:
        """Steps between the ends of what a QuantizeLinear gives."""
        zero = self._constant(rounding.input[2]) if rounding.input[2:] else None
        kind = next((a.i for a in rounding.attribute if a.name == "output_dtype"), 0)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(np.uint8)
        return 2 ** (8 * (dtype if zero is None else zero.dtype).itemsize) - 1

    def _between(self, name: str) -> Iterator[onnx.NodeProto]:
        """Nodes that compute a value, back to the roundings before it."""
        stack, seen = [name], set()
        while stack:
            node = self.producer.get(stack.pop())
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            if node.op_type != "DequantizeLinear":
                stack.extend(node.input)

    def _constant(self, name: str) -> np.ndarray | None:
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def _divides_exactly(self, node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type in _GLOBAL:
            source = self.producer.get(node.input[0])
            shape = shapes.get(source.input[0]) if source else None
            axes = None if shape is None else self._reduced(node, attributes, len(shape))
            if shape is None or axes is None:
                return False
            return is_power_of_two(np.prod([shape[axis] for axis in axes], dtype=np.float64))
        if node.op_type == "Resize" and attributes.get("mode") == b"linear":
            ratios = self._ratios(node, shapes)
            return ratios is not None and is_power_of_two(ratios)
        if node.op_type != "AveragePool":
            return True
        padded = any(attributes.get("pads", ())) or attributes.get("auto_pad", b"") in {
            b"SAME_UPPER",
            b"SAME_LOWER",
        }
        uneven = attributes.get("ceil_mode", 0) or (
            padded and not attributes.get("count_include_pad", 0)
        )
        count = np.prod(attributes["kernel_shape"], dtype=np.float64)
        return is_power_of_two(count) and (not uneven or count == 1)

    def _ratios(
        self, node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]
    ) -> np.ndarray | None:
        """Ratios of a Resize; None where they are not known."""
        scales, sizes = map(self._constant, (*node.input[2:], "", "")[:2])
        if scales is not None and scales.size:
            return scales
        source = self.producer.get(node.input[0])
        shape = shapes.get(source.input[0]) if source else None
        if shape is None or sizes is None or sizes.size != len(shape):
            return None
        return sizes / np.maximum(shape, 1)

    def _reduced(
        self, node: onnx.NodeProto, attributes: Mapping[str, Any], rank: int
    ) -> Iterable[int] | None:
        """Axes of a mean; None where they are computed."""
        if node.op_type == "GlobalAveragePool":
            return range(2, rank)
        name = "".join(node.input[1:])
        axes = self._constant(name) if name else np.array(attributes.get("axes", ()))
        if axes is None or axes.size or attributes.get("noop_with_empty_axes", 0):
            return axes
        return range(rank)

    def _holds_constants(self, node: onnx.NodeProto) -> bool:
        if node.op_type in _ARITHMETIC:
            return all(self._constant(name) is None for name in node.input)
        if node.op_type == "BatchNormalization":
            return self._is_coarse(node)
        if node.op_type in SLOPES:
            return self._has_exact_slopes(node)
        return True

    def _bias_error(self, node: onnx.NodeProto) -> float | None:
        """Largest error of an operator's bias by rounding to the unit of the sums; None where the
        unit is not known. Scales that are powers of two become as fine as it takes, if int8 holds
        the weights so (`quant.finer_by`).
        """
        sums, name = node, node.input[2] if node.op_type in LAYERS and node.input[2:] else ""
        if node.op_type in SUMS and len(node.input) == 2:
            first, second = (self.producer.get(name) for name in node.input)
            sums, name = (second, node.input[0]) if _is_sum(second) else (first, node.input[1])
        bias = self._real(name) if _is_sum(sums) else None
        if bias is None or sums is None:
            return 0.0
        filters = self._filters(sums)
        if filters is None:
            return self._float_error(sums)
        rows, unit = filters
        if bias.size % unit.size or not np.all(unit > 0):
            return None
        times = bias.size // unit.size
        if sums.op_type == "ConvTranspose" and rows is not None and len(rows) == unit.size:
            unit = np.tile(unit, times)  # a scale for each filter of a group
        elif unit.size > 1:  # a scale for each channel of what a depthwise layer reads
            unit = np.repeat(unit, times)
        steps = bias.reshape(-1).astype(np.float64) / unit
        if rows is not None and len(rows) == len(steps) and is_power_of_two(unit):
            bits = finer_by(rows, steps)
            steps, unit = np.ldexp(steps, bits), np.ldexp(unit, -bits)
        return float(np.abs((steps - np.rint(steps)) * unit).max(initial=0.0))

    def _factor_error(self, node: onnx.NodeProto) -> float:
        """Largest error of a normalisation by its 16-bit factors: each has an error of 2**-15 of
        itself, with 255 steps of what is read and half of that for the offset.
        """
        factor = self._factors(node) if node.op_type == "BatchNormalization" else None
        pair = None if factor is None else self._pair_before(node.input[0])
        scale = None if pair is None else self._constant(pair.input[1])
        if factor is None or scale is None:
            return 0.0
        return float(np.abs(factor).max(initial=0.0) * scale.max()) * 2.0**-7

    def _filters(self, node: onnx.NodeProto) -> tuple[np.ndarray | None, np.ndarray] | None:
        """(integer weights, output channels first; unit of its sums) of a Conv, ConvTranspose, Gemm
        or MatMul, without the weights where their pair is not right before it.
        """
        pairs, scales = [], []
        for name in node.input[:2]:
            pair = self._pair_before(name)
            scale = None if pair is None else self._constant(pair.input[1])
            if scale is None:
                return None
            pairs.append(pair)
            scales.append(scale.astype(np.float64).reshape(-1))
        maps, filters = (scale.size for scale in scales)
        if 1 < maps < filters and filters % maps == 0:  # several filters for a channel
            scales[0] = np.repeat(scales[0], filters // maps)
        elif len({1, maps, filters}) > 2:
            return None
        unit, weight = scales[0] * scales[1], self._integers(pairs[1])
        if weight is None or pairs[1].output[0] != node.input[1]:
            return None, unit
        return np.moveaxis(weight, _output_axis(node), 0), unit

    def _float_error(self, node: onnx.NodeProto) -> float | None:
        """Half a step of the sums of a layer whose integer weights are written as floats.

        The largest weight of a channel is 64 or more, which bounds its scale from above.
        """
        pair, weight = self._pair_before(node.input[0]), self._constant(node.input[1])
        scale = None if pair is None else self._constant(pair.input[1])
        if weight is None or scale is None or scale.size != 1:
            return None
        return float(np.abs(weight.astype(np.float64)).max(initial=0.0) / 64 * scale.min() / 2)

    def _pair_before(self, name: str) -> onnx.NodeProto | None:
        """The DequantizeLinear that a value is computed from."""
        node = self.producer.get(name)
        while node is not None and node.op_type in {*MOVES_VALUES, "Clip"}:
            node = self.producer.get(node.input[0])
        return node if node is not None and node.op_type == "DequantizeLinear" else None

    def _real(self, name: str) -> np.ndarray | None:
        """The real numbers of a constant, also of one that passes a DequantizeLinear."""
        pair = self.producer.get(name)
        if pair is None or pair.op_type != "DequantizeLinear":
            return self._constant(name)
        data, scale = self._integers(pair), self._constant(pair.input[1])
        return None if data is None or scale is None else data * scale.astype(np.float64)

    def _integers(self, pair: onnx.NodeProto) -> np.ndarray | None:
        """Integers that a DequantizeLinear reads, minus its zero points; None where they
        are computed or blocks have their own.
        """
        zero = self._constant(pair.input[2]) if pair.input[2:] else np.zeros(1)
        data = self._constant(pair.input[0])
        if data is None:
            data = self._rounded(pair.input[0])
        if zero is None or data is None:
            return None
        axis = next((a.i for a in pair.attribute if a.name == "axis"), 1)
        if zero.size > 1 and (zero.ndim > 1 or zero.size != data.shape[axis]):
            return None
        along = [-1 if zero.size > 1 and i == axis % data.ndim else 1 for i in range(data.ndim)]
        return data.astype(np.int64) - zero.astype(np.int64).reshape(along)

    def _rounded(self, name: str) -> np.ndarray | None:
        """The integers that a QuantizeLinear makes of a constant, as simulated rounding of weights
        is written; None where it makes none, or blocks have scales of their own.
        """
        pair = self.producer.get(name)
        if pair is None or pair.op_type != "QuantizeLinear":
            return None
        data, scale = self._constant(pair.input[0]), self._constant(pair.input[1])
        zero = self._constant(pair.input[2]) if pair.input[2:] else np.zeros(1, np.uint8)
        if data is None or scale is None or zero is None or zero.dtype.kind not in "iu":
            return None
        if not np.all(zero == zero.reshape(-1)[:1]) or not scale.min() > 0:
            return None
        if scale.size > 1 and scale.ndim > 1:
            return None
        if scale.size > 1:
            axis = next((a.i for a in pair.attribute if a.name == "axis"), 1)
            scale = np.moveaxis(scale.reshape(-1, *[1] * (data.ndim - 1)), 0, axis)
        limits = np.iinfo(zero.dtype)
        steps = np.rint(data / scale) + zero.reshape(-1)[0]
        return np.clip(steps, limits.min, limits.max).reshape(data.shape)

    def _has_exact_slopes(self, node: onnx.NodeProto) -> bool:
        """Whether slopes are 16-bit multiples of 2**-15, or of a coarser power where that is too
        fine for the steepest.
        """
        if node.op_type == "LeakyRelu":
            slopes = np.array(next((a.f for a in node.attribute if a.name == "alpha"), 0.01))
        else:
            slopes = self._constant(node.input[1])
        if slopes is None or not np.all(np.isfinite(slopes)):
            return False
        bits = _CONSTANT_BITS - 1
        _, exponent = np.frexp(np.abs(slopes.astype(np.float64)).max(initial=0.0))
        return bool(
            np.all(np.ldexp(slopes.astype(np.float64), bits - max(int(exponent), 0)) % 1 == 0)
        )

    def _is_coarse(self, node: onnx.NodeProto) -> bool:
        """Whether a normalisation is a shift by 16-bit multiples of a power of two."""
        factor, mean = self._factors(node), self._constant(node.input[3])
        if factor is None or mean is None or mean.any():
            return False
        mantissa, _ = np.frexp(factor.astype(np.float32).astype(np.float64))
        return bool(np.all(np.ldexp(mantissa, _CONSTANT_BITS) % 1 == 0))

    def _factors(self, node: onnx.NodeProto) -> np.ndarray | None:
        """Factors of a normalisation, by channel, as float64."""
        scale, variance = self._constant(node.input[1]), self._constant(node.input[4])
        if scale is None or variance is None:
            return None
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        return scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon)


def _steps(error: float, scale: np.ndarray | None, most: int) -> int:
    """Largest error of a rounded value, in steps, for an error before the rounding."""
    if scale is None or not (error < np.inf and scale.min() > 0):
        return 1 if error == 0 else most
    return min(most, int(error / float(scale.min())) + 1)


def _only_move(nodes: Iterable[onnx.NodeProto]) -> bool:
    return all(_moves(n) for n in nodes if n.op_type != "DequantizeLinear")


def _moves(node: onnx.NodeProto) -> bool:
    modes = [a.s for a in node.attribute if a.name == "mode"]
    return node.op_type in MOVES_VALUES and (
        node.op_type != "Resize" or modes in ([], [b"nearest"])
    )


def _is_sum(node: onnx.NodeProto | None) -> bool:
    return node is not None and node.op_type in WEIGHTED


def _output_axis(node: onnx.NodeProto) -> int:
    """Axis of the output channels in a weight."""
    rows_first = node.op_type == "Conv" or any(a.name == "transB" and a.i for a in node.attribute)
    return int(not rows_first)
