"""Generic operators: a loop nest, an affine map per operand, a scalar payload.

The payload is a list of scalar instructions over one element of each operand. Its values are
numbered: inputs first, then the results' own former elements (a reduction reads them), then the
instructions in order. `yields` names the value stored to each result. This is the form the Linalg
rules fuse, and the form in which a kernel reaches the engines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from opu_fuse.affine import AffineMap
from opu_fuse.dtypes import NATIVE


class Iterator(StrEnum):
    """Role of a loop for the results: each has elements of its own along a parallel loop; along a
    reduction or the window of a pooling they are gathered into one.
    """

    PARALLEL = "parallel"
    REDUCTION = "reduction"
    WINDOW = "window"


class Typing(StrEnum):
    """How the dtype of an instruction's value follows from its arguments."""

    SAME = "same"  # all arguments and the value
    COMPARE = "compare"  # arguments alike, value bool
    LOGIC = "logic"  # all bool
    SELECT = "select"  # bool, then two alike
    FREE = "free"  # as the instruction says


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarOp:
    """One scalar operation. meaning: exact, where names leave doubt."""

    arity: int
    typing: Typing = Typing.SAME
    meaning: str = ""


SCALAR_OPS: Mapping[str, ScalarOp] = {
    "const": ScalarOp(arity=0, typing=Typing.FREE, meaning="the literal"),
    "index": ScalarOp(arity=0, typing=Typing.FREE, meaning="the index of loop `dim`, int64"),
    "cast": ScalarOp(arity=1, typing=Typing.FREE, meaning="as numpy's astype"),
    "neg": ScalarOp(arity=1),
    "abs": ScalarOp(arity=1),
    "sign": ScalarOp(arity=1),
    "sqrt": ScalarOp(arity=1),
    "round": ScalarOp(arity=1, meaning="to the nearest integer, halves to even"),
    "floor": ScalarOp(arity=1),
    "ceil": ScalarOp(arity=1),
    "exp": ScalarOp(arity=1, meaning="not correctly rounded: bits depend on library and processor"),
    "tanh": ScalarOp(arity=1, meaning="as exp"),
    "sigmoid": ScalarOp(arity=1, meaning="1 / (1 + exp(-x)), as exp"),
    "add": ScalarOp(arity=2),
    "sub": ScalarOp(arity=2),
    "mul": ScalarOp(arity=2),
    "div": ScalarOp(arity=2, meaning="floating point only"),
    "max": ScalarOp(arity=2, meaning="NaN if one is; the sign of a zero is open"),
    "min": ScalarOp(arity=2, meaning="as max"),
    "maxnum": ScalarOp(arity=2, meaning="as max, but the number where only one is NaN"),
    "lt": ScalarOp(arity=2, typing=Typing.COMPARE),
    "le": ScalarOp(arity=2, typing=Typing.COMPARE),
    "gt": ScalarOp(arity=2, typing=Typing.COMPARE),
    "ge": ScalarOp(arity=2, typing=Typing.COMPARE),
    "eq": ScalarOp(arity=2, typing=Typing.COMPARE),
    "and": ScalarOp(arity=2, typing=Typing.LOGIC),
    "or": ScalarOp(arity=2, typing=Typing.LOGIC),
    "not": ScalarOp(arity=1, typing=Typing.LOGIC),
    "select": ScalarOp(arity=3, typing=Typing.SELECT, meaning="a if condition else b"),
}
INDEX_DTYPE = "int64"
DTYPES = NATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One loop; extent: number of iterations, >= 1."""

    kind: Iterator
    extent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A tensor that is read. value: its name; dtype: a name numpy knows."""

    value: str
    shape: tuple[int, ...]
    dtype: str
    map: AffineMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A tensor that is written, whole. init: the tensor it starts from; fill: the literal all its
    elements start from; neither: its elements are written before they are read.
    """

    value: str
    shape: tuple[int, ...]
    dtype: str
    map: AffineMap
    init: str | None = None
    fill: str | None = None

    @property
    def starts(self) -> bool:
        """True when elements have a value before the kernel runs."""
        return self.init is not None or self.fill is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Instr:
    """One scalar instruction. args: numbers of earlier values; literal: of a const, see `literal`;
    dim: loop of an index.
    """

    op: str
    dtype: str
    args: tuple[int, ...] = ()
    literal: str = ""
    dim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericOp:
    """One generic operator; yields[k] is the number of the value stored to results[k]."""

    name: str
    loops: tuple[Loop, ...]
    inputs: tuple[Input, ...]
    results: tuple[Result, ...]
    body: tuple[Instr, ...]
    yields: tuple[int, ...]

    @property
    def first_instr(self) -> int:
        """Number of the first instruction's value."""
        return len(self.inputs) + len(self.results)

    @property
    def extents(self) -> tuple[int, ...]:
        """Iterations of every loop."""
        return tuple(loop.extent for loop in self.loops)

    @property
    def gathering(self) -> tuple[int, ...]:
        """Loops that are not parallel."""
        return tuple(i for i, x in enumerate(self.loops) if x.kind is not Iterator.PARALLEL)

    def dtype_of(self, number: int) -> str:
        """The dtype of a value of the payload."""
        first = self.first_instr
        if number < first:
            return (*self.inputs, *self.results)[number].dtype
        return self.body[number - first].dtype

    def reads_result(self, k: int) -> bool:
        """True when the payload reads what results[k] held before."""
        number = len(self.inputs) + k
        return number in self.yields or any(number in i.args for i in self.body)

    def __str__(self) -> str:
        loops = ", ".join(f"d{i}: {x.kind} {x.extent}" for i, x in enumerate(self.loops))
        lines = [f"{self.name} [{loops}]"]
        for n, x in enumerate(self.inputs):
            lines.append(f"  %{n} = {x.value}: {x.dtype}{list(x.shape)} {x.map}")
        for n, r in enumerate(self.results, len(self.inputs)):
            start = f" from {r.init or r.fill}" if r.starts else ""
            lines.append(f"  %{n} : {r.value}: {r.dtype}{list(r.shape)} {r.map}{start}")
        for n, i in enumerate(self.body, self.first_instr):
            what = i.literal or (f"d{i.dim}" if i.op == "index" else "")
            words = " ".join(w for w in (what, *(f"%{a}" for a in i.args)) if w)
            lines.append(f"  %{n} = {i.op} {words}: {i.dtype}")
        return "\n".join([*lines, "  yield " + ", ".join(f"%{y}" for y in self.yields)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A generic operator that can run: constants holds those of its inputs and inits that are
    known.
    """

    op: GenericOp
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the values the kernel needs, each once."""
        names = [x.value for x in self.op.inputs]
        names += [r.init for r in self.op.results if r.init is not None]
        return tuple(n for n in dict.fromkeys(names) if n not in self.constants)


def literal(value: np.generic | bool | float) -> str:
    """A text that `scalar` reads as the same bits (of a NaN: as a NaN)."""
    plain = value.item() if isinstance(value, np.generic) else value
    return plain.hex() if isinstance(plain, float) else str(int(plain))


def scalar(text: str, dtype: str) -> np.generic:
    """The typed scalar that a literal denotes. Raises ValueError for texts that are none."""
    kind = np.dtype(dtype)
    number = float.fromhex(text) if kind.kind == "f" else int(text)
    return kind.type(number)
