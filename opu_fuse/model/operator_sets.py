"""Sets of ONNX operators with a common trait, derived from the table in `operators.py`."""

from collections.abc import Callable

from opu_fuse.model.operator_record import Moves, Operator, Pattern, Trait, Weights, Window
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


def moving(*kinds: Moves) -> frozenset[str]:
    """The operators that move values by one of these kinds of move."""
    return operators_that(lambda o: o.moves in kinds)


def _has_weights(holds: Callable[[Weights], bool]) -> frozenset[str]:
    return operators_that(lambda o: o.weights is not None and holds(o.weights))


# How the quantiser and the machines handle an operator.
QUANTISED = having(Trait.QUANTISED)
BY_NUMBERS = having(Trait.NUMBERS)
REAL_CONSTANTS = having(Trait.REAL_CONSTANTS)
OWN_SCALE = having(Trait.OWN_SCALE)
DYNAMIC_SCALES = having(Trait.DYNAMIC_SCALES)

# Accumulate products.
WEIGHTED = _has_weights(lambda _: True)
LAYERS = _has_weights(lambda w: w.bias is not None)
"""Weighted operators with a bias, into which a scale and a shift can be folded."""
ROWS_FIRST = _has_weights(lambda w: w.axis == 0)
"""Weight axis 0 is the output channel, axis 1 the input channel in a group."""
CONVOLUTIONS = operators_that(lambda o: o.window is not None and o.weights is not None)
POOLS = operators_that(lambda o: o.window is not None and o.weights is None)
WINDOWS_OF_OPERAND = operators_that(
    lambda o: o.window is Window.GATHERS and Trait.QUANTISED in o.traits
)
"""Operators with a window that machines slide over the operand."""

# Element by element.
FUNCTIONS = having(Trait.FUNCTION)
UNARY = FUNCTIONS - operators_that(lambda o: o.pattern is Pattern.BROADCAST)
"""Functions of one value that have no second operand."""
ELEMENT_WISE = FUNCTIONS | having(Trait.PART)
AFFINE = having(Trait.AFFINE)
COMMUTATIVE = having(Trait.AFFINE, Trait.PART)
"""Sums and products. Either operand may be the constant. They join an adjacent table."""
SUMS = having(Trait.AFFINE, Trait.NONEXPANSIVE)
NORMS = having(Trait.NORM)
GROUPED_SOFTMAX = "GroupedSoftmax"
NORM_OPERATORS = {
    **{name: row.norm for name, row in OPERATORS.items() if row.norm is not None},
    GROUPED_SOFTMAX: "grouped_softmax",
}
"""ONNX operator -> operator of the hardware spec (`norms.py`); a Softmax over groups of channels
(`grouped_softmax.py`) has a name of its own.
"""
SLOPES = having(Trait.SLOPES)
HOMOGENEOUS = having(Trait.HOMOGENEOUS)
TRUTHS = having(Trait.TRUTH)

# Data movement: results are values of the operands.
VIEWS = moving(Moves.VIEW)
UNMOVED = VIEWS | moving(Moves.COPY)
"""All values in unchanged order."""
PERMUTES = moving(Moves.PERMUTE, Moves.PIXELS)
"""All values in another order."""
SELECTS = moving(Moves.SELECT)
ALONG_AXIS = QUANTISED & moving(Moves.SELECT, Moves.JOIN)
"""Split or join along the axis in an attribute."""
REARRANGES = UNMOVED | PERMUTES | SELECTS
"""Some or all values, each at most once."""
TRANSFERS = REARRANGES | moving(Moves.JOIN)
"""Pure data movement: no constants, and no selection by value."""
MOVES_VALUES = operators_that(lambda o: o.moves not in {None, Moves.CLAMP})
"""Results are values of the operands, or constants that every scale represents. Nothing is rounded
if operands and results share a scale."""
KEEPS_NUMBERS = MOVES_VALUES - moving(Moves.PAD)
"""MOVES_VALUES without Pad, whose padding value the operand's scale need not represent."""
MONOTONE = (
    operators_that(lambda o: o.moves in {Moves.JOIN, Moves.LARGEST, Moves.RECTIFY, Moves.CLAMP})
    | UNMOVED
    | PERMUTES
)
"""Monotone functions of all values. Rounding before or after gives equal integers, and the scale of
the result fits the operands. (SELECT is excluded: part of a map may need another scale.)"""
AVERAGES = having(Trait.AVERAGES)
WITHIN_RANGE = MOVES_VALUES | moving(Moves.CLAMP) | AVERAGES
"""Results are within the range of the operands, zero, and limits."""
NONEXPANSIVE = WITHIN_RANGE | having(Trait.NONEXPANSIVE)
"""Lipschitz constant 1: results differ by at most the sum of the operand differences."""
TIES_SCALES = (QUANTISED & WITHIN_RANGE) - OWN_SCALE
"""Results share the scale of the operands if the quantiser chooses it."""
COMPUTES = (QUANTISED | REAL_CONSTANTS | FUNCTIONS) - WITHIN_RANGE | (QUANTISED & AVERAGES)
"""Computes new values, which a machine requantises."""

# Borders of a quantised graph.
PAIRS = having(Trait.PAIR)
CONVERTS = having(Trait.CONVERTS)

# Control flow, random numbers, dynamic sizes.
BODIES = having(Trait.BODIES)
RANDOM = having(Trait.RANDOM)
SIZED_BY_NUMBERS = having(Trait.SIZED_BY_NUMBERS)
TRAPS = having(Trait.TRAPS)
MAKES_SEQUENCES = having(Trait.MAKES_SEQUENCE)
READS_SEQUENCES = having(Trait.READS_SEQUENCE)
