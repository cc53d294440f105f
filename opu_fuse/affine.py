"""Affine maps and their algebra: which element of a tensor one iteration of a loop nest touches.

A map takes loop indices (d0, d1, …) to a tensor index, one affine expression per tensor dimension,
and prints as `(d0, d1) -> (d1, 2*d0 + 1)`. Terms are sorted by loop and never zero, so that equal
maps compare equal.
"""

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """`offset + sum(factor * loop)`; terms: (position of the loop, factor), factors not zero."""

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineMap:
    """Loop indices -> tensor index. dims: number of loops; results: one per tensor dimension."""

    dims: int
    results: tuple[Affine, ...]

    def index(self, point: Sequence[int]) -> tuple[int, ...]:
        """The tensor index at one point of the loop nest."""
        return tuple(
            e.offset + sum(factor * point[loop] for loop, factor in e.terms) for e in self.results
        )

    @property
    def plain(self) -> tuple[int | None, ...]:
        """Per result the loop it consists of, None where it is anything but one loop by itself."""
        return tuple(plain_loop(e) for e in self.results)

    @property
    def mentioned(self) -> frozenset[int]:
        """Loops that move the index."""
        return frozenset(loop for e in self.results for loop, _ in e.terms)

    @property
    def is_projected_permutation(self) -> bool:
        """Every result is a loop by itself, none twice."""
        plain = self.plain
        return None not in plain and len(set(plain)) == len(plain)

    @property
    def is_permutation(self) -> bool:
        """Every loop is a result exactly once: the map has an inverse."""
        return self.is_projected_permutation and len(self.results) == self.dims

    def __str__(self) -> str:
        loops = ", ".join(f"d{i}" for i in range(self.dims))
        return f"({loops}) -> ({', '.join(map(_text, self.results))})"


def affine(terms: Iterable[tuple[int, int]], offset: int = 0) -> Affine:
    """The expression with equal loops added up, zero factors dropped, loops in order."""
    factors: dict[int, int] = {}
    for loop, factor in terms:
        factors[loop] = factors.get(loop, 0) + factor
    return Affine(terms=tuple(sorted((k, f) for k, f in factors.items() if f)), offset=offset)


def plain_loop(e: Affine) -> int | None:
    """The loop this expression consists of, or None."""
    return e.terms[0][0] if e.offset == 0 and len(e.terms) == 1 and e.terms[0][1] == 1 else None


def loops_map(dims: int, results: Iterable[int]) -> AffineMap:
    """The map whose results are these loops."""
    return AffineMap(dims=dims, results=tuple(Affine(terms=((loop, 1),)) for loop in results))


def identity_map(dims: int) -> AffineMap:
    """(d0, d1, …) -> (d0, d1, …)."""
    return loops_map(dims, range(dims))


@functools.lru_cache(maxsize=4096)  # networks repeat few maps often
def compose(outer: AffineMap, inner: AffineMap) -> AffineMap:
    """The map outer ∘ inner: the index `outer` gives at the point `inner` gives.

    Raises ValueError unless inner has as many results as outer has loops.
    """
    if outer.dims != len(inner.results):
        raise ValueError(f"{outer} after {inner}: {len(inner.results)} results, {outer.dims} loops")
    results = []
    for e in outer.results:
        parts = [(inner.results[loop], factor) for loop, factor in e.terms]
        terms = ((loop, f * factor) for part, factor in parts for loop, f in part.terms)
        results.append(affine(terms, e.offset + sum(p.offset * f for p, f in parts)))
    return AffineMap(dims=inner.dims, results=tuple(results))


@functools.lru_cache(maxsize=1024)
def inverse_permutation(permutation: AffineMap) -> AffineMap:
    """The map that undoes a permutation. Raises ValueError for maps that are none."""
    if not permutation.is_permutation:
        raise ValueError(f"{permutation} is no permutation of its loops")
    position = {loop: i for i, loop in enumerate(permutation.plain)}
    return loops_map(permutation.dims, (position[loop] for loop in range(permutation.dims)))


def covered_loops(maps: Iterable[AffineMap]) -> frozenset[int]:
    """Loops that are a result by themselves in some map: a tensor's shape gives their extent."""
    return frozenset(loop for m in maps for loop in m.plain if loop is not None)


def value_range(e: Affine, extents: Sequence[int]) -> tuple[int, int]:
    """Least and greatest value over loops that run from 0 below their extents (each >= 1)."""
    ends = [factor * (extents[loop] - 1) for loop, factor in e.terms]
    return e.offset + sum(min(0, x) for x in ends), e.offset + sum(max(0, x) for x in ends)


def _text(e: Affine) -> str:
    parts = [f"d{loop}" if factor == 1 else f"{factor}*d{loop}" for loop, factor in e.terms]
    if e.offset or not parts:
        parts.append(str(e.offset))
    return " + ".join(parts).replace("+ -", "- ")


_MAP = re.compile(r"\(([^()]*)\)->\(([^()]*)\)")
_TERM = re.compile(r"([+-]?)(?:(\d+)\*)?(?:d(\d+)|(\d+))")


def parse_map(text: str) -> AffineMap:
    """The map of a text; the inverse of `str`.

    Raises ValueError where the text is no map, or names a loop its left side does not have.
    """
    match = _MAP.fullmatch("".join(text.split()))
    if match is None:
        raise ValueError(f"{text!r} is not of the form (d0, d1) -> (d1, d0)")
    loops, results = (part.split(",") if part else [] for part in match.groups())
    if loops != [f"d{i}" for i in range(len(loops))]:
        raise ValueError(f"{text!r}: the loops are d0, d1, … in order")
    return AffineMap(
        dims=len(loops), results=tuple(_parse_expression(e, len(loops), text) for e in results)
    )


def _parse_expression(expression: str, dims: int, text: str) -> Affine:
    terms: list[tuple[int, int]] = []
    offset, at = 0, 0
    while at < len(expression) or at == 0:
        match = _TERM.match(expression, at)
        if match is None or (at > 0 and not match[1]) or (match[2] and match[3] is None):
            raise ValueError(f"{text!r}: cannot read {expression[at:]!r}")
        sign = -1 if match[1] == "-" else 1
        if match[3] is None:
            offset += sign * int(match[4])
        elif int(match[3]) < dims:
            terms.append((int(match[3]), sign * int(match[2] or 1)))
        else:
            raise ValueError(f"{text!r}: there is no loop d{match[3]}")
        at = match.end()
    return affine(terms, offset)
