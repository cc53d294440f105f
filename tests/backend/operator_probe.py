"""A form of an ONNX operator, and a small network that has it."""

import re
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import onnx

from tests.dfg.canonical import float_model

OPSET = 17
LAYER = ("conv", "add")
"""Operators of the convolution before, and of the one after."""


@dataclass(frozen=True, slots=True)
class Probe:
    """form: of the operator, in words; body: nodes; inputs: constants and maps, with their types;
    numbers: constants with values; channels: of `b`; others: operators of the body that the
    machine runs besides the one in question.
    """

    operator: str
    form: str
    body: str
    _: KW_ONLY
    inputs: str = ""
    numbers: str = ""
    channels: int = 8
    others: tuple[str, ...] = ()
    opset: int = OPSET

    @property
    def neighbours(self) -> tuple[str, ...]:
        """What the machine runs for the rest of the network."""
        layers = sum(self._reads(name) for name in "ab")
        return (*LAYER * layers, *self.others)

    @property
    def model(self) -> onnx.ModelProto:
        """The network."""
        nodes, inputs = [self.body], [self.inputs] if self.inputs else []
        if self._reads("a"):
            nodes.insert(0, "[first] a = Conv (x, w1, b1)")
            inputs += ["float[1,8,8,8] x", "float[8,8,1,1] w1", "float[8] b1"]
        if self._reads("b"):
            nodes.append("[last] y = Conv (b, w2, b2)")
            inputs += [f"float[8,{self.channels},1,1] w2", "float[8] b2"]
        numbers = f"<{self.numbers}>" if self.numbers else ""
        text = f"g ({', '.join(inputs)}) => (float[] y) {numbers} {{ {' '.join(nodes)} }}"
        return float_model(text, opset=self.opset)

    def _reads(self, name: str) -> bool:
        return re.search(rf"\b{name}\b", self.body) is not None


def of_one_value() -> Iterator[Probe]:
    """Functions of one value."""
    for name in (
        *("Abs", "Atan", "Ceil", "Celu", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid"),
        *("HardSwish", "Log", "Neg", "Reciprocal", "Round", "Selu", "Sigmoid", "Sign", "Sin"),
        *("Softplus", "Softsign", "Sqrt", "Tanh", "ThresholdedRelu"),
    ):
        yield Probe(name, "any", f"b = {name} (a)")
    yield Probe("Mish", "any", "b = Mish (a)", opset=18)
    yield Probe("Gelu", "any", "b = Gelu (a)", opset=20)
    yield Probe("Swish", "any", "b = Swish (a)", opset=24)
