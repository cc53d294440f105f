"""Max pools with a window larger than a tile are split into a sequence of pools; so are square ones
of stride 1, where windows of three rows and columns are faster.

The maximum of partial maximums is exact, even for overlapping windows; nothing is rounded. The
pools run first along rows, then along columns, each with a window that fits. The largest window
depends on the machine, so the graph is changed where its groups did not fit, not the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.dfg.graph import Access, Dfg, Kind, Node
from opu_fuse.dfg.renumber import renumbered

_LONGEST = 16
"""Most pools in sequence along an axis."""
_SMALL = 3
"""Rows and columns of a window of which post retains all columns but the new one."""


class Span(Struct, frozen=True, kw_only=True):
    """A pool along one axis: window, stride and padding at both ends, in elements."""

    kernel: int
    stride: int
    pads: tuple[int, int]

    def count(self, size: int) -> int:
        """Number of results for an axis of `size` elements."""
        return (size + sum(self.pads) - self.kernel) // self.stride + 1


def split_window(node: Node, size: Sequence[int], most: int) -> list[dict[str, Any]] | None:
    """Attributes of the pool sequence that equals a max pool; None where none fits.

    size: rows and columns of the operand. most: largest window along an axis, in elements.
    """
    attrs = node.attrs
    if node.op != "max_pool" or attrs["dilations"] != (1, 1) or len(size) != 2 or most < 2:
        return None
    top, left, bottom, right = attrs["pads"]
    results: list[dict[str, Any]] = []
    for axis, pads in enumerate(((top, bottom), (left, right))):
        whole = Span(kernel=attrs["kernel"][axis], stride=attrs["strides"][axis], pads=pads)
        if whole == Span(kernel=1, stride=1, pads=(0, 0)):
            continue
        spans = list(_spans(whole, size[axis], most))
        if len(spans) > _LONGEST or any(max(s.pads) >= s.kernel for s in spans if any(s.pads)):
            return None
        results += [_along(axis, span, attrs) for span in spans]
    return results if len(results) > 1 else None


def small_windows(node: Node) -> list[dict[str, Any]] | None:
    """Attributes of pools of 3 x 3 that equal a max pool of 5 x 5, 7 x 7, …; None for others.

    Each position of padding is added by one of the pools, the first ones first, and each adds one
    at a side at most. So every window of a pool has a position that exists.
    """
    attrs, size = node.attrs, node.attrs["kernel"][0] if node.op == "max_pool" else 0
    if size < _SMALL + 2 or size % 2 == 0 or attrs["kernel"] != (size, size):
        return None
    count, pads = size // 2, attrs["pads"]
    if (attrs["strides"], attrs["dilations"]) != ((1, 1), (1, 1)) or max(pads) > count:
        return None
    small = {**attrs, "kernel": (_SMALL, _SMALL)}
    return [{**small, "pads": tuple([int(p > part) for p in pads])} for part in range(count)]


def _spans(span: Span, size: int, most: int) -> Iterator[Span]:
    """Disjoint windows where one covers everything; else overlapping ones of growing reach."""
    while span.kernel > most:
        before, after = span.pads
        if span.count(size) == 1 and span.kernel >= before + size:
            count = -(-(before + size) // most)
            kernel = -(-(before + size) // count)
            end = kernel * count - before - size
            yield Span(kernel=kernel, stride=kernel, pads=(before, end))
            size, span = count, Span(kernel=count, stride=1, pads=(0, 0))
        else:
            kernel = most // 2 + 1  # as large as a tile, it would make one result of each
            yield Span(kernel=kernel, stride=1, pads=(before, after))
            size += before + after - kernel + 1
            span = Span(kernel=span.kernel - kernel + 1, stride=span.stride, pads=(0, 0))
    yield span


def _along(axis: int, span: Span, attrs: Mapping[str, Any]) -> dict[str, Any]:
    one = [(span.kernel, 1), (span.stride, 1), (span.pads[0], 0), (span.pads[1], 0)]
    kernel, strides, begins, ends = (pair[::-1] if axis else pair for pair in one)
    return {**attrs, "kernel": kernel, "strides": strides, "pads": (*begins, *ends)}


def with_split_pools(
    dfg: Dfg, parts: Mapping[int, Sequence[Mapping[str, Any]]]
) -> tuple[Dfg, list[str]]:
    """A graph in which these pools (by index) are several in a row, and the names of all parts; the
    last ones have the names of the whole.
    """
    nodes, names = list(dfg.nodes), [dfg[index].name for index in parts]
    for index, row in parts.items():
        node = dfg[index]
        value = node.operands[0]
        for number, attrs in enumerate(row[:-1]):
            name = f"{node.name}/part{number}"
            names.append(name)
            nodes.append(_part(node, name, nodes[value], attrs, len(nodes)))
            value = len(nodes) - 1
        nodes[index] = replace(node, operands=(value,), attrs=row[-1])
    return renumbered(dfg, nodes)[0], names


def _part(whole: Node, name: str, operand: Node, attrs: Mapping[str, Any], index: int) -> Node:
    begins, ends = attrs["pads"][:2], attrs["pads"][2:]
    spans = zip(attrs["kernel"], attrs["strides"], zip(begins, ends, strict=True), strict=True)
    sizes = [
        Span(kernel=k, stride=s, pads=pads).count(size)
        for (k, s, pads), size in zip(spans, operand.shape[2:], strict=True)
    ]
    shape = (*operand.shape[:2], *sizes)
    return Node(
        index=index,
        kind=Kind.CALL,
        name=name,
        op="max_pool",
        operands=(operand.index,),
        access=(Access.FULL,),
        shape=shape,
        type=None if whole.type is None else replace(whole.type, shape=shape),
        value=name,
        quant=operand.quant,
        attrs=attrs,
        source=whole.source,
    )
