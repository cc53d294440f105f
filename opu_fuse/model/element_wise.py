"""Operators that compute each element of their result from the elements at the same place."""

FUNCTIONS = frozenset(
    (
        *("Abs", "Atan", "Ceil", "Celu", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu"),
        *("HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Max", "Min", "Mish", "Neg", "Pow"),
        *("PRelu", "Reciprocal", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus"),
        *("Softsign", "Sqrt", "Sub", "Swish", "Tanh", "ThresholdedRelu"),
    )
)
"""Tables by themselves, other operands being single constant numbers."""
PARTS = frozenset(("Add", "Mul", "Relu", "Clip"))
ELEMENT_WISE = FUNCTIONS | PARTS
