"""ONNX operators that only move elements, where an affine map says how."""

from collections.abc import Callable, Mapping

import numpy as np

from opu_fuse.affine import Affine, AffineMap, identity_map, inverse_permutation, loops_map
from opu_fuse.host.build.linalg.site import Site

View = Callable[[Site], AffineMap | None]


def _identity(site: Site) -> AffineMap:
    return identity_map(len(site.result_shape))


def _transpose(site: Site) -> AffineMap:
    rank = len(site.result_shape)
    order = site.attribute("perm", list(reversed(range(rank))))
    assert isinstance(order, list)
    return inverse_permutation(loops_map(rank, order))


def _expand(site: Site) -> AffineMap:
    return site.spread(0)


def _reshape(site: Site) -> AffineMap | None:
    """Case 1: dimensions of size 1 come or go. Anything else divides indices: not affine."""
    source, result = site.shape(0), site.result_shape
    moving = [i for i, size in enumerate(result) if size > 1]
    if [size for size in source if size > 1] != [result[i] for i in moving]:
        return None
    loops = iter(moving)
    results = tuple(Affine(terms=((next(loops), 1),)) if n > 1 else Affine() for n in source)
    if source == result:
        return identity_map(len(result))
    return AffineMap(dims=len(result), results=results)


def _slice(site: Site) -> AffineMap | None:
    """Known starts, axes and steps; how far each runs is in the result's shape."""
    shape = site.shape(0)
    arguments = [site.constant(n) for n in range(1, len(site.inputs))]
    if len(arguments) < 2 or any(g is None and site.has(n) for n, g in enumerate(arguments, 1)):
        return None
    starts = [int(x) for x in np.ravel(arguments[0])] if arguments[0] is not None else []
    axes = _numbers(arguments, 3, list(range(len(starts))))
    steps = _numbers(arguments, 4, [1] * len(starts))
    results = [Affine(terms=((i, 1),)) for i in range(len(shape))]
    for start, axis, step in zip(starts, axes, steps, strict=True):
        axis %= len(shape)
        size = shape[axis]
        start += size if start < 0 else 0
        start = min(max(start, 0), size - 1)
        results[axis] = Affine(terms=((axis, step),), offset=start)
    return AffineMap(dims=len(shape), results=tuple(results))


def _numbers(arguments: list[np.ndarray | None], n: int, default: list[int]) -> list[int]:
    data = arguments[n - 1] if n <= len(arguments) else None
    return default if data is None else [int(x) for x in np.ravel(data)]


VIEWS: Mapping[str, View] = {
    "Identity": _identity,
    "Transpose": _transpose,
    "Expand": _expand,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Slice": _slice,
}
"""Operator -> map from the result's index to that of its first input; None where no map does."""
