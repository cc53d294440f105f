"""Traits of an ONNX operator: the fields of a row of `operators.py`.

A fact that several files need is a field here, so that no file has its own list of operator names.
`operator_sets.py` has the queries.
"""

from enum import Enum, Flag, IntEnum, auto

from msgspec import Struct


class Pattern(IntEnum):
    """TVM's operator pattern kinds, ordered: combining two kinds takes the larger one."""

    ELEM_WISE = 0
    """One result element from the operands' elements at the same index."""
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
    """How an operator moves data: results are values of the operands and need no rounding."""

    COPY = auto()
    """The operand itself."""
    VIEW = auto()
    """All values in unchanged order, in another shape (reshape)."""
    PERMUTE = auto()
    """All values, with permuted axes (transpose)."""
    PIXELS = auto()
    """All values, moved between channels and pixels (pixel shuffle)."""
    SELECT = auto()
    """Some of the values (slice, gather)."""
    JOIN = auto()
    """The values of all operands (concatenation)."""
    REPEAT = auto()
    """Values several times. A Resize only in mode nearest."""
    PAD = auto()
    """The values and a constant around them."""
    LARGEST = auto()
    """The largest of several values."""
    RECTIFY = auto()
    """The value or zero, which every scale can represent."""
    CLAMP = auto()
    """The value or a limit, which the scale of the operand need not represent."""


class Window(Enum):
    """How a window slides over rows and columns."""

    GATHERS = auto()
    """A result reads a window of the operand."""
    SCATTERS = auto()
    """An operand's value adds to a window of the result."""


class Weights(Struct, frozen=True, kw_only=True):
    """The weights (second operand) of an operator that accumulates products.

    axis: of the output channels (for a Gemm with transB = 1, a ConvTranspose without groups).
    bias: position of the bias operand; None if the operator has none.
    """

    axis: int
    bias: int | None = None


class Trait(Flag):
    """Boolean traits of an operator."""

    NONE = 0
    QUANTISED = auto()
    """The quantiser rounds its float operands and results to int8."""
    REAL_CONSTANTS = auto()
    """The quantiser rounds operands and results if the further operands are constants. These remain
    floats: the machine holds them in registers and parameters, not as int8."""
    NUMBERS = auto()
    """Quantised, with further operands that are parameters. No machine runs it if these are
    computed."""
    FUNCTION = auto()
    """A function of one value if the other operands are scalar constants: a table by itself."""
    PART = auto()
    """Like FUNCTION, but part of a table only next to a FUNCTION, since modules run it alone."""
    AFFINE = auto()
    """An affine function of one operand if the others are constants."""
    SLOPES = auto()
    """One slope above zero and constant slopes below it. The machine holds the slopes as 16-bit
    multiples of a power of two."""
    HOMOGENEOUS = auto()
    """Commutes with a positive per-channel factor."""
    OWN_SCALE = auto()
    """Results can be much smaller than the operands, so they have their own scale."""
    AVERAGES = auto()
    """Means of several values."""
    NONEXPANSIVE = auto()
    """Lipschitz constant 1: results differ by at most the sum of the differences of the operands.
    (This also holds for data movement and averages, without this trait.)"""
    CONVERTS = auto()
    """Returns the values of its operand in another element type."""
    PAIR = auto()
    """One half of a QuantizeLinear/DequantizeLinear pair: carries a scale and a zero point."""
    DYNAMIC_SCALES = auto()
    """Operator of dynamically quantised models, which have no scales at compile time."""
    TRUTH = auto()
    """Returns booleans, element-wise."""
    BODIES = auto()
    """Has subgraphs (bodies)."""
    RANDOM = auto()
    """Random: two equal nodes have different results. (Dropout only in training mode. Otherwise it
    is removed.)"""
    SIZED_BY_NUMBERS = auto()
    """The result size depends on values of operands."""
    TRAPS = auto()
    """May divide by zero on integers."""
    NORM = auto()
    """Normalises each element by statistics of the last axes, from the attribute `axis` on."""
    MAKES_SEQUENCE = auto()
    READS_SEQUENCE = auto()


class HostReason(Enum):
    """Why no machine runs an operator, regardless of its data flow.

    `fuse/rules/host_reasons.py` has the messages.
    """

    MOVES_CHANNELS = auto()
    COMPUTED_ADDRESSES = auto()
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

    pattern: TVM pattern kind of the operator on the host CPU.
    moves: how it moves data; None if it computes new values.
    weights: its weights, if it accumulates products.
    window: its window type, if it has a sliding window.
    traits: its boolean traits.
    host: why no machine runs it; None if a machine may.
    norm: the machines' operator for it, of those that normalise the channels of a pixel
    (`norms.py`). Machines without it leave it to the host.
    """

    pattern: Pattern = Pattern.OPAQUE
    moves: Moves | None = None
    weights: Weights | None = None
    window: Window | None = None
    traits: Trait = Trait.NONE
    host: HostReason | None = None
    norm: str | None = None
