"""Sets of ONNX operators, each by what its members have in common (`operators.py`)."""

from collections.abc import Callable

from opu_fuse.model.operator_record import Moves, Operator, Trait, Weights, Window
from opu_fuse.model.operators import OPERATORS


def operators_that(holds: Callable[[Operator], bool]) -> frozenset[str]:
    """The names of the operators for which a predicate holds."""
    return frozenset(name for name, operator in OPERATORS.items() if holds(operator))


def having(*traits: Trait) -> frozenset[str]:
    """The operators with all of these traits."""
    wanted = Trait.NONE
    for trait in traits:
        wanted |= trait
    return operators_that(lambda o: o.traits & wanted == wanted)


def moving(*ways: Moves) -> frozenset[str]:
    """The operators that move values in one of these ways."""
    return operators_that(lambda o: o.moves in ways)


def _has_weights(holds: Callable[[Weights], bool]) -> frozenset[str]:
    return operators_that(lambda o: o.weights is not None and holds(o.weights))


# What the quantiser and the machines make of an operator.
QUANTISED = having(Trait.QUANTISED)
BY_NUMBERS = having(Trait.NUMBERS)
REAL_CONSTANTS = having(Trait.REAL_CONSTANTS)
OWN_SCALE = having(Trait.OWN_SCALE)
DYNAMIC_SCALES = having(Trait.DYNAMIC_SCALES)

# Sums of products.
WEIGHTED = _has_weights(lambda _: True)
LAYERS = _has_weights(lambda w: w.bias is not None)
"""With a bias: where a scale and a shift can be folded into."""
ROWS_FIRST = _has_weights(lambda w: w.axis == 0)
"""Output channels are the first axis of the weights, input channels of a group the second."""
CONVOLUTIONS = operators_that(lambda o: o.window is not None and o.weights is not None)
POOLS = operators_that(lambda o: o.window is not None and o.weights is None)
WINDOWS_OF_OPERAND = operators_that(
    lambda o: o.window is Window.GATHERS and Trait.QUANTISED in o.traits
)
"""Windows that machines slide over what they read."""

# Element by element.
FUNCTIONS = having(Trait.FUNCTION)
ELEMENT_WISE = FUNCTIONS | having(Trait.PART)
AFFINE = having(Trait.AFFINE)
COMMUTATIVE = having(Trait.AFFINE, Trait.PART)
"""Sums and products: the constant may be either operand, and they join a table next to them."""
SUMS = having(Trait.AFFINE, Trait.NONEXPANSIVE)
SLOPES = having(Trait.SLOPES)
HOMOGENEOUS = having(Trait.HOMOGENEOUS)
TRUTHS = having(Trait.TRUTH)

# What gives values of its operands.
VIEWS = moving(Moves.VIEW)
UNMOVED = VIEWS | moving(Moves.COPY)
"""All values in their order."""
PERMUTES = moving(Moves.PERMUTE, Moves.PIXELS)
"""All values in another order."""
SELECTS = moving(Moves.SELECT)
ALONG_AXIS = QUANTISED & moving(Moves.SELECT, Moves.JOIN)
"""Cut or join along the axis that an attribute names."""
REARRANGES = UNMOVED | PERMUTES | SELECTS
"""Some or all values, each once."""
TRANSFERS = REARRANGES | moving(Moves.JOIN)
"""Nothing but values of the operands: neither constants nor a choice by value."""
MOVES_VALUES = operators_that(lambda o: o.moves not in {None, Moves.CLAMP})
"""Results are values of the operands, or constants that every scale has: with one scale throughout,
nothing is rounded."""
KEEPS_NUMBERS = MOVES_VALUES - moving(Moves.PAD)
"""The same, without a filling that need not be a number of the operand's scale."""
MONOTONE = (
    operators_that(lambda o: o.moves in {Moves.JOIN, Moves.LARGEST, Moves.RECTIFY, Moves.CLAMP})
    | UNMOVED
    | PERMUTES
)
"""A monotone function of all values: rounding before or after it gives the same integers, and the
scale of the result suits the operands. (Part of a map may need another scale than the whole.)"""
AVERAGES = having(Trait.AVERAGES)
WITHIN_RANGE = MOVES_VALUES | moving(Moves.CLAMP) | AVERAGES
"""Results lie between values of the operands, zero, and limits."""
NONEXPANSIVE = WITHIN_RANGE | having(Trait.NONEXPANSIVE)
"""Results differ by no more than the operands together."""
TIES_SCALES = (QUANTISED & WITHIN_RANGE) - OWN_SCALE
"""Results have the scale of the operands when the quantiser chooses it."""
COMPUTES = (QUANTISED | REAL_CONSTANTS | FUNCTIONS) - WITHIN_RANGE | (QUANTISED & AVERAGES)
"""Makes new values, after which a machine rounds."""

# What stands at the border of a quantised graph.
PAIRS = having(Trait.PAIR)
CONVERTS = having(Trait.CONVERTS)

# Control flow, chance, sizes.
BODIES = having(Trait.BODIES)
RANDOM = having(Trait.RANDOM)
SIZED_BY_NUMBERS = having(Trait.SIZED_BY_NUMBERS)
TRAPS = having(Trait.TRAPS)
MAKES_SEQUENCES = having(Trait.MAKES_SEQUENCE)
READS_SEQUENCES = having(Trait.READS_SEQUENCE)
