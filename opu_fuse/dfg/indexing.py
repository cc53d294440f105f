"""Affine indexing maps, and the access they imply.

An operator is a loop nest. Each loop has a role (`Loop`); each operand has a map from loop indices
to its own index, one affine expression per tensor dimension. From the map alone follows how the
operand is read (`derive_access`): that, not the operator's name, decides between bias adder and
residual adder.
"""

import functools
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from opu_fuse.dfg.graph import Access


class Role(StrEnum):
    """Dimension that a loop runs over."""

    BATCH = "batch"
    CHANNEL = "channel"
    SPATIAL = "spatial"
    REDUCE = "reduce"


class Loop(Struct, frozen=True, kw_only=True):
    """One loop dimension. extent: number of iterations, >= 1."""

    name: str
    role: Role
    extent: int


class Affine(Struct, frozen=True, kw_only=True):
    """`offset + sum(factor * loop)`; terms: (position of the loop, factor), factors not zero."""

    terms: tuple[tuple[int, int], ...] = ()
    offset: int = 0


class IndexingMap(Struct, frozen=True, kw_only=True):
    """Loop indices -> tensor index, one expression per tensor dimension."""

    loops: tuple[Loop, ...]
    results: tuple[Affine, ...]

    def index(self, point: Sequence[int]) -> tuple[int, ...]:
        """The tensor index read at one point of the loop nest."""
        return tuple(
            e.offset + sum(factor * point[loop] for loop, factor in e.terms) for e in self.results
        )

    def mentions(self, role: Role) -> bool:
        """True when a loop of this role occurs in the map, whatever its extent."""
        return any(self.loops[loop].role is role for e in self.results for loop, _ in e.terms)


def result_loops(shape: Sequence[int]) -> tuple[Loop, ...]:
    """Loops over a result: (n, c, spatial...) for rank >= 2, plain spatial loops below."""
    roles = [Role.BATCH, Role.CHANNEL] if len(shape) >= 2 else []
    roles += [Role.SPATIAL] * (len(shape) - len(roles))
    return tuple(
        Loop(name=f"d{i}", role=role, extent=extent)
        for i, (role, extent) in enumerate(zip(roles, shape, strict=True))
    )


def broadcast_map(shape: Sequence[int], result: Sequence[int]) -> IndexingMap:
    """Map of an element-wise operand under numpy broadcasting (aligned on the right)."""
    lead = len(result) - len(shape)
    results = tuple(
        Affine(terms=((lead + i, 1),)) if extent == result[lead + i] else Affine()
        for i, extent in enumerate(shape)
    )
    return IndexingMap(loops=result_loops(result), results=results)


def bias_map(result: Sequence[int]) -> IndexingMap:
    """Map of a convolution's bias: one value per channel of the result."""
    return IndexingMap(loops=result_loops(result), results=(Affine(terms=((1, 1),)),))


def conv_maps(
    data: Sequence[int],
    weight: Sequence[int],
    result: Sequence[int],
    *,
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
    group: int,
) -> tuple[IndexingMap, IndexingMap]:
    """Maps of feature map (n, c, h, w) and weights (oc, ic, kh, kw) of a convolution; channels are
    (group, rest).
    """
    ic = weight[1]
    oc = weight[0] // group
    extents = (data[0], group, oc, result[2], result[3], ic, weight[2], weight[3])
    names = ("n", "g", "oc", "oh", "ow", "ic", "kh", "kw")
    roles = (Role.BATCH, Role.CHANNEL, Role.CHANNEL, Role.SPATIAL, Role.SPATIAL, *[Role.REDUCE] * 3)
    loops = tuple(
        Loop(name=n, role=r, extent=e) for n, r, e in zip(names, roles, extents, strict=True)
    )
    channel = ((1, ic), (5, 1)) if group > 1 else ((5, 1),)
    feature = (
        Affine(terms=((0, 1),)),
        Affine(terms=channel),
        Affine(terms=((3, strides[0]), (6, dilations[0])), offset=-pads[0]),
        Affine(terms=((4, strides[1]), (7, dilations[1])), offset=-pads[1]),
    )
    out_channel = ((1, oc), (2, 1)) if group > 1 else ((2, 1),)
    weights = (Affine(terms=out_channel), *(Affine(terms=((i, 1),)) for i in (5, 6, 7)))
    return IndexingMap(loops=loops, results=feature), IndexingMap(loops=loops, results=weights)


def dense_maps(data: Sequence[int], weight: Sequence[int]) -> tuple[IndexingMap, IndexingMap]:
    """Maps of x (1, k) and W (n, k) of a dense layer."""
    loops = (
        Loop(name="m", role=Role.BATCH, extent=data[0]),
        Loop(name="oc", role=Role.CHANNEL, extent=weight[0]),
        Loop(name="ic", role=Role.REDUCE, extent=weight[1]),
    )
    x = IndexingMap(loops=loops, results=(Affine(terms=((0, 1),)), Affine(terms=((2, 1),))))
    w = IndexingMap(loops=loops, results=(Affine(terms=((1, 1),)), Affine(terms=((2, 1),))))
    return x, w


def window_map(
    result: Sequence[int],
    *,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    pads: tuple[int, int, int, int],
) -> IndexingMap:
    """Map of the feature map a pooling window slides over."""
    window = tuple(
        Loop(name=n, role=Role.REDUCE, extent=e) for n, e in zip(("kh", "kw"), kernel, strict=True)
    )
    results = (
        Affine(terms=((0, 1),)),
        Affine(terms=((1, 1),)),
        Affine(terms=((2, strides[0]), (4, dilations[0])), offset=-pads[0]),
        Affine(terms=((3, strides[1]), (5, dilations[1])), offset=-pads[1]),
    )
    return IndexingMap(loops=(*result_loops(result), *window), results=results)


def derive_access(indexing: IndexingMap, *, const: bool) -> Access:
    """How an operand with this map is read.

    Case 1: a reduction runs over it: weights (no spatial loop, but the output channel's) are per
    channel, data is full.
    Case 2: no loop of more than one iteration moves it: per tensor.
    Case 3: only the channel moves it: per channel; where the whole result is one pixel, a feature
    map of that size has the same map: constants count as per channel, computed values as full.
    Case 4: every loop moves its own dimension by one: full. Anything else: unsupported.
    """
    if indexing.mentions(Role.REDUCE):  # Case 1
        weights = indexing.mentions(Role.CHANNEL) and not indexing.mentions(Role.SPATIAL)
        return Access.PER_CHANNEL if weights else Access.FULL
    loops = indexing.loops
    moving = {loop for e in indexing.results for loop, _ in e.terms if loops[loop].extent > 1}
    wanted = {i for i, loop in enumerate(loops) if loop.extent > 1}
    if not moving:
        return Access.PER_TENSOR if wanted or const else Access.FULL  # Case 2
    channels = {i for i in wanted if loops[i].role is Role.CHANNEL}
    if moving == channels and (const or moving != wanted or len(indexing.results) < len(loops)):
        return Access.PER_CHANNEL  # Case 3
    unit = all(
        e.offset == 0 and all(factor == 1 for _, factor in e.terms) for e in indexing.results
    )
    return Access.FULL if moving == wanted and unit else Access.UNSUPPORTED  # Case 4


@functools.lru_cache(maxsize=4096)
def elementwise_access(shape: tuple[int, ...], result: tuple[int, ...], *, const: bool) -> Access:
    """Access of an operand of this shape under numpy broadcasting; networks repeat few shapes
    often.
    """
    return derive_access(broadcast_map(shape, result), const=const)


@functools.lru_cache(maxsize=4096)
def bias_access(result: tuple[int, ...]) -> Access:
    """Access of a convolution's bias."""
    return derive_access(bias_map(result), const=True)
