"""What the compiler knows about an ONNX operator: the fields of a row of `operators.py`.

A fact that more than one file needs is a field here, so that no file keeps a list of operator names
of its own. `operator_sets.py` has the queries.
"""

from enum import Enum, Flag, IntEnum, auto

from msgspec import Struct


class Pattern(IntEnum):
    """TVM's operator pattern kinds, ordered: combining two kinds takes the larger one."""

    ELEM_WISE = 0
    """One result element from the operands' elements at the same place."""
    BROADCAST = 1
    """The operand's axes appear in order among the result's (so no transpose)."""
    INJECTIVE = 2
    """One result element from one element of each operand."""
    COMM_REDUCE = 3
    """A commutative reduction."""
    OUT_EWISE_FUSABLE = 4
    """Like a convolution: element-wise work can be fused to its result."""
    TUPLE = 7
    OPAQUE = 8

    @property
    def label(self) -> str:
        """The name that TVM uses: kElemWise, kOutEWiseFusable …"""
        return _LABELS[self]


_LABELS = {
    Pattern.ELEM_WISE: "kElemWise",
    Pattern.BROADCAST: "kBroadcast",
    Pattern.INJECTIVE: "kInjective",
    Pattern.COMM_REDUCE: "kCommReduce",
    Pattern.OUT_EWISE_FUSABLE: "kOutEWiseFusable",
    Pattern.TUPLE: "kTuple",
    Pattern.OPAQUE: "kOpaque",
}


class Moves(Enum):
    """How results are values of the operands: nothing is computed, so nothing needs rounding."""

    COPY = auto()
    """The operand itself."""
    VIEW = auto()
    """All values in the same order, in another shape."""
    PERMUTE = auto()
    """All values, axes in another order."""
    PIXELS = auto()
    """All values, moved between channels and pixels."""
    SELECT = auto()
    """Some of the values."""
    JOIN = auto()
    """The values of all operands."""
    REPEAT = auto()
    """Values several times. A Resize only in mode nearest."""
    PAD = auto()
    """The values and a constant around them."""
    LARGEST = auto()
    """The largest of several values."""
    RECTIFY = auto()
    """The value or zero, which is a number of every scale."""
    CLAMP = auto()
    """The value or a limit, which need not be a number of the operand's scale."""


class Window(Enum):
    """How a window slides over rows and columns."""

    GATHERS = auto()
    """A result reads a window of the operand."""
    SCATTERS = auto()
    """An operand's value adds to a window of the result."""


class Weights(Struct, frozen=True, kw_only=True):
    """The second operand, of an operator that adds up products. axis: of the output channels (of a
    Gemm with transB = 1, of a ConvTranspose without groups); bias: position of the operand that is
    added to the sums, None where the operator has none.
    """

    axis: int
    bias: int | None = None


class Trait(Flag):
    """Facts that are true or false."""

    NONE = 0
    QUANTISED = auto()
    """The quantiser rounds its float operands and results to int8."""
    REAL_CONSTANTS = auto()
    """So does it where the operator's constants are known. They stay floats: the machine holds
    them in registers and parameters, not in int8."""
    NUMBERS = auto()
    """Quantised, and further operands say what it does. No machine runs it where these are
    computed."""
    FUNCTION = auto()
    """A function of one value where its other operands are single constants: a table of its own."""
    PART = auto()
    """The same, but it becomes part of a table only next to a FUNCTION: modules run it alone."""
    AFFINE = auto()
    """An affine function of one operand where the others are constants."""
    SLOPES = auto()
    """A slope above zero and constant ones below, which the machine holds as 16-bit multiples of a
    power of two."""
    HOMOGENEOUS = auto()
    """Commutes with a positive factor for each channel."""
    OWN_SCALE = auto()
    """Its results can be much smaller than what it reads, so they have a scale of their own."""
    AVERAGES = auto()
    """Means of several values."""
    NONEXPANSIVE = auto()
    """Results differ by no more than the sum of the differences of the operands. (So do results of
    what moves values or averages them.)"""
    CONVERTS = auto()
    """The same numbers in another type."""
    PAIR = auto()
    """One half of a QuantizeLinear/DequantizeLinear pair: carries a scale and a zero point."""
    DYNAMIC_SCALES = auto()
    """Of models quantised at run time: there are no scales to compile with."""
    TRUTH = auto()
    """Gives truth values, element by element."""
    BODIES = auto()
    """Has graphs inside."""
    RANDOM = auto()
    """Two of them are two draws. (Dropout draws in training mode only; without it, it is
    removed.)"""
    SIZED_BY_NUMBERS = auto()
    """The numbers that it reads say how large its result is."""
    TRAPS = auto()
    """Of integers, it may divide by zero."""
    MAKES_SEQUENCE = auto()
    READS_SEQUENCE = auto()


class HostReason(Enum):
    """Why no machine runs an operator, whatever its data flow (`fuse/rules/host_reasons.py` has the
    sentences).
    """

    MOVES_CHANNELS = auto()
    COMPUTED_PLACES = auto()
    ACROSS_CHANNELS = auto()
    COMPUTED_FACTORS = auto()
    CONTROL_FLOW = auto()
    NOT_REAL = auto()
    MAKES_NUMBERS = auto()
    COMPLEX = auto()
    TWO_MAPS = auto()
    UNBOUNDED = auto()
    NOT_TENSORS = auto()


class Operator(Struct, frozen=True, kw_only=True):
    """An operator of the ONNX standard.

    pattern: of the operator on the host (opaque without); moves: how its results are values of its
    operands; weights: of those that add up products; window: of those that slide one; host: why no
    machine runs it, None where one may.
    """

    pattern: Pattern = Pattern.OPAQUE
    moves: Moves | None = None
    weights: Weights | None = None
    window: Window | None = None
    traits: Trait = Trait.NONE
    host: HostReason | None = None
