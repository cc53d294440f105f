"""A payload under construction: appending instructions gives the numbers of their values."""

from collections.abc import Iterable

import numpy as np

from opu_fuse.affine import Affine
from opu_fuse.host.kernel import INDEX_DTYPE, SCALAR_OPS, Instr, Typing, literal


class Payload:
    """Instructions over operands, whose dtypes come first; an instruction that exists already is
    not appended again.
    """

    def __init__(self, operands: Iterable[str]) -> None:
        self._dtypes = list(operands)
        self._first = len(self._dtypes)
        self._body: list[Instr] = []
        self._known: dict[Instr, int] = {}

    @property
    def instructions(self) -> tuple[Instr, ...]:
        return tuple(self._body)

    def dtype(self, number: int) -> str:
        """The dtype of a value."""
        return self._dtypes[number]

    def append(self, instr: Instr) -> int:
        """Number of the instruction's value."""
        number = self._known.get(instr)
        if number is None:
            number = self._known[instr] = len(self._dtypes)
            self._body.append(instr)
            self._dtypes.append(instr.dtype)
        return number

    def emit(self, op: str, *args: int) -> int:
        """An operation whose dtype follows from its arguments."""
        boolean = SCALAR_OPS[op].typing in (Typing.COMPARE, Typing.LOGIC)
        dtype = "bool" if boolean else self._dtypes[args[-1]]
        return self.append(Instr(op=op, dtype=dtype, args=args))

    def const(self, value: np.generic | bool | float, dtype: str) -> int:
        """A constant; the value is rounded to dtype first."""
        typed = np.dtype(dtype).type(value)
        return self.append(Instr(op="const", dtype=dtype, literal=literal(typed)))

    def cast(self, number: int, dtype: str) -> int:
        """The value as dtype; itself where it is of that dtype."""
        if self._dtypes[number] == dtype:
            return number
        return self.append(Instr(op="cast", dtype=dtype, args=(number,)))

    def affine(self, e: Affine) -> int:
        """The value of an affine expression of the loops."""
        parts = [self._term(loop, factor) for loop, factor in e.terms]
        if e.offset or not parts:
            parts.append(self.const(e.offset, INDEX_DTYPE))
        total = parts[0]
        for part in parts[1:]:
            total = self.emit("add", total, part)
        return total

    def _term(self, loop: int, factor: int) -> int:
        index = self.append(Instr(op="index", dtype=INDEX_DTYPE, dim=loop))
        return index if factor == 1 else self.emit("mul", index, self.const(factor, INDEX_DTYPE))
