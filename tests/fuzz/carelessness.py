"""How a careless tool rounds: the numbers of its pairs, and the nodes that hold them.

A tool has a few odd habits, each drawn once for a model (`ODDITIES`), and follows one now and then:
with all of them everywhere nothing would reach a machine, and much of the rest be refused early.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

T = TypeVar("T")

ODDITIES = {
    "sixteen": "activations of 16 bits",
    "four": "weights of 4 bits",
    "blocks": "weights with a scale for each block",
    "channels": "maps with a scale for each channel",
    "ends": "zero points at an end of the range",
    "bare": "no zero points",
    "tiny": "scales so fine that most numbers are cut off",
    "huge": "scales so coarse that most numbers become zero",
    "extreme": "scales at the ends of what floats hold",
    "apart": "another scale when integers become numbers again",
    "other": "int8 beside uint8",
    "elsewhere": "operators of ONNX Runtime's own domain",
    "integers": "inputs and outputs that are integers",
    "dead": "channels of zeros, whose scale is zero",
    "unzero": "weights with zero points",
    "crosswise": "weights with scales along another axis",
    "backwards": "axes counted from the end",
    "listed": "lists of one for one scale",
}
HABITS, NOW_AND_THEN = 0.17, 0.25
"""Shares of the oddities that a tool has, and of the places where it shows one."""
_PER_AXIS, _MANY_TYPES = 13, 21
"""Operator sets from which on there are scales along an axis, and 4 and 16 bits."""
_SMALL = {np.dtype(ml_dtypes.int4): (-8, 7), np.dtype(ml_dtypes.uint4): (0, 15)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """scale: of one number, or of as many as an axis has. zero: in the type of the integers, None:
    not written down. block: so many numbers along the axis share a scale, 0: there are no blocks.
    """

    scale: np.ndarray
    zero: np.ndarray
    bare: bool = False
    axis: int = 0
    block: int = 0

    @property
    def kind(self) -> np.dtype:
        return self.zero.dtype

    def spread(self, values: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Scales or zero points along the axis of data."""
        if self.block:
            return np.repeat(values.astype(np.float64), self.block, self.axis)
        along = [1] * len(shape)
        if values.size > 1:
            along[self.axis] = values.size
        return values.astype(np.float64).reshape(along)

    def integers(self, data: np.ndarray) -> np.ndarray:
        """What the data are rounded to, halves to even."""
        scale, zero = (self.spread(v, data.shape) for v in (self.scale, self.zero))
        low, high = limits(self.kind)
        steps = np.divide(data, scale, out=np.zeros(data.shape), where=scale > 0)
        return np.clip(np.rint(steps) + zero, low, high).astype(self.kind)

    def numbers(self, integers: np.ndarray) -> np.ndarray:
        """What they stand for, in floats, as ONNX Runtime computes it."""
        scale, zero = (self.spread(v, integers.shape) for v in (self.scale, self.zero))
        steps = (integers.astype(np.float64) - zero).astype(np.float32)
        return steps * scale.astype(np.float32)


def limits(kind: np.dtype) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    if kind in _SMALL:
        return _SMALL[kind]
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max)


class Careless:
    """A tool's habits, and the nodes and constants that it has written."""

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng, self.opset = rng, opset
        self.pow2 = self.chance(0.55)
        self.unsigned, self.zeros = self.chance(0.3), self.chance(0.35)
        self.scales_as_nodes = self.chance(0.3)
        self._habits = {name for name in ODDITIES if self.chance(HABITS)}
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, onnx.TensorProto] = {}
        self._written = 0

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def odd(self, habit: str) -> bool:
        """Whether the tool has a habit, and follows it here."""
        assert habit in ODDITIES
        return habit in self._habits and self.chance(NOW_AND_THEN)

    def pick(self, *items: T) -> T:
        return items[int(self.rng.integers(len(items)))]

    def step(self, largest: float) -> float:
        """A scale by which the largest of 127 steps holds a number, or nearly."""
        step = largest / 127 or 2.0**-7
        if self.odd("tiny"):
            step *= 2.0**-9
        if self.odd("huge"):
            step *= 2.0**9
        if self.odd("extreme") and self.odd("extreme"):
            step = float(self.pick(2.0**-120, 2.0**-30, 2.0**40, 2.0**120))
        return float(2.0 ** np.ceil(np.log2(step))) if self.pow2 else float(np.float32(step))

    def kind(self) -> np.dtype:
        """Of an activation."""
        unsigned = self.unsigned ^ self.odd("other")
        if self.odd("sixteen"):
            return np.dtype(np.uint16 if unsigned else np.int16)
        return np.dtype(np.uint8 if unsigned else np.int8)

    def activation(self, data: np.ndarray, *, channels: bool) -> Params:
        """For numbers like these. channels: a scale for each is no surprise."""
        kind = self.kind()
        low, high = min(float(data.min()), 0.0), max(float(data.max()), 0.0)
        least, most = limits(kind)
        zero = (least + most + 1) // 2
        if self.zeros:
            scale = self.step((high - low) / 2)
            zero = round(min(max(-low / scale + least, least), most))
        else:
            scale = self.step(max(-low, high))
        if kind.itemsize > 1:
            scale *= 2.0**-8
        if self.odd("ends"):
            zero = int(self.pick(least, most))
        bare = self.odd("bare") or (zero == 0 and self.chance(0.1))
        zeros = np.array(0 if bare else zero, kind)
        params = Params(scale=np.array(scale, np.float32), zero=zeros, bare=bare)
        several = data.ndim == 4 and data.shape[1] > 1 and self.opset >= _PER_AXIS
        if several and (self.odd("channels") or (channels and self.chance(0.6))):
            params = self._by_channel(params, data)
        return params

    def _by_channel(self, params: Params, data: np.ndarray) -> Params:
        others = tuple(i for i in range(data.ndim) if i != 1)
        largest = np.abs(data).max(axis=others)
        steps = np.array([self.step(float(n)) for n in largest], np.float32)
        zeros = np.full(steps.shape, params.zero, params.kind)
        return replace(params, scale=steps, zero=zeros, axis=1)

    def weight(self, data: np.ndarray, axis: int) -> Params:
        """For a constant whose output channels lie along an axis."""
        kind = np.dtype(np.uint8 if self.chance(0.1) else np.int8)
        if self._may("four"):
            kind = np.dtype(ml_dtypes.uint4 if self.chance(0.3) else ml_dtypes.int4)
        least, most = limits(kind)
        middle = (least + most + 1) // 2
        if data.ndim and self.odd("crosswise"):
            axis = int(self.rng.integers(data.ndim))
        room = (most - least) // 2
        along = data.ndim and data.shape[axis] > 1 and self.opset >= _PER_AXIS and self.chance(0.7)
        others = tuple(i for i in range(data.ndim) if i != axis)
        largest = np.abs(data).max(axis=others) if along else np.abs(data).max(initial=0.0)
        steps = np.array([self.step(float(n) * 127 / room) for n in largest.ravel()], np.float32)
        zeros = np.full(steps.shape, middle)
        if self.odd("unzero"):
            near = zeros + self.rng.integers(-3, 4, zeros.shape)
            anywhere = self.rng.integers(least, most + 1, zeros.shape)
            zeros = near if self.chance(0.5) else anywhere
        if not along:
            steps, zeros = steps.reshape(()), zeros.reshape(())
        params = Params(scale=steps, zero=zeros.astype(kind), axis=axis)
        return replace(params, bare=bool(not params.zero.any()) and self.chance(0.4))

    def blocks(self, data: np.ndarray) -> Params | None:
        """A scale for every few numbers along the second axis; None where it does not divide."""
        if data.ndim < 2 or data.shape[1] % 2 or not self._may("blocks"):
            return None
        steps = np.abs(data).reshape(data.shape[0], -1, 2, *data.shape[2:]).max(axis=2) / 127
        scale = np.maximum(steps, 2.0**-20)
        if self.pow2:
            scale = 2.0 ** np.ceil(np.log2(scale))
        zero = np.zeros(scale.shape, np.int8)
        return Params(scale=scale.astype(np.float32), zero=zero, axis=1, block=2)

    def pair(self, real: str, params: Params, integers: str = "") -> str:
        """Q and DQ; the name of the number. integers: what Q makes is called so."""
        return self.dequantize(self.quantize(real, params, integers), self.behind(params))

    def behind(self, params: Params) -> Params:
        """How integers are read that were made so: the same way, nearly always."""
        if not self.odd("apart"):
            return params
        return replace(params, scale=params.scale * np.float32(2.0 if self.pow2 else 1.25))

    def quantize(self, real: str, params: Params, name: str = "") -> str:
        form = {}
        if params.bare and params.kind != np.uint8:  # without a zero point they are uint8
            if self.opset >= _MANY_TYPES:
                form["output_dtype"] = int(helper.np_dtype_to_tensor_dtype(params.kind))
            else:
                params = replace(params, bare=False)
        return self._write("QuantizeLinear", real, params, name, form)

    def dequantize(self, integers: str, params: Params, name: str = "") -> str:
        return self._write("DequantizeLinear", integers, params, name, {})

    def _write(
        self, op: str, value: str, params: Params, name: str, form: Mapping[str, Any]
    ) -> str:
        several, form = params.scale.size > 1, dict(form)
        scale, zero = params.scale, params.zero
        if several:
            form["axis"] = params.axis
        if several and params.block:
            form["block_size"] = params.block
        if several and not params.block and self.odd("backwards"):
            form["axis"] -= self.rank(value)
        if scale.ndim == 0 and self.odd("listed"):
            scale, zero = scale.reshape(1), zero.reshape(1)
        names = [value, self.constant(scale, "scale")]
        if not params.bare:
            names.append(self.constant(zero, "zero"))
        made = name or self.name(f"{value}/{op[0].lower()}")
        rare = {"output_dtype", "block_size"} & set(form) or params.kind in _SMALL
        wide = params.kind.itemsize == 2 and self.opset < _MANY_TYPES
        domain = "com.microsoft" if wide or (self.odd("elsewhere") and not rare) else ""
        self.nodes.append(helper.make_node(op, names, [made], domain=domain, **form))
        self.nodes[-1].name = made
        return made

    def constant(self, data: np.ndarray, what: str) -> str:
        """An initialiser, or a node that has it."""
        name = self.name(what)
        tensor = numpy_helper.from_array(np.ascontiguousarray(data).reshape(data.shape), name)
        if self.scales_as_nodes and what in {"scale", "zero"} and self.chance(0.8):
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.tensors[name] = tensor
        return name

    def name(self, what: str) -> str:
        self._written += 1
        return f"{what}#{self._written}"

    def rank(self, value: str) -> int:
        """Of what is rounded with a scale for each channel: constants know it, maps have four."""
        return len(self.tensors[value].dims) if value in self.tensors else 4

    def _may(self, habit: str) -> bool:
        """A habit that newer operator sets alone allow."""
        return self.odd(habit) and self.opset >= _MANY_TYPES
