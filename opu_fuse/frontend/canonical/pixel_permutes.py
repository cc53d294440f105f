"""Permutations of pixels become one Reshape, Transpose, Reshape of a map with channels first.

Exporters write windows and patches of an image as chains of Reshapes and Transposes, with channels
first or last. A chain is traced back to the furthest map (1, c, h, w) of which it keeps the
channels together. Where it ends with channels first or last,

1. a Reshape replaces it if it keeps the order of the pixels: two permutations that cancel;
2. a Reshape, Transpose, Reshape replaces it that views the pixels in as few axes as possible, if it
   is another one. That is a composite operator (`model/composites.py`), which machines run while
   they store. Of two axes, Reshapes are left out that view a map as it is.

Channels last get a Transpose after it.

A Reshape that divides axes anew, such as rows of 8 windows of 7 pixels into 7 windows of 8, ends a
chain and begins another one: the image is between them.
"""

import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.canonical.reshapes import divided_image
from opu_fuse.frontend.canonical.token_images import CHANNELS_LAST
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    is_standard,
    merge_sources,
    move_before,
    operand,
    quant_of,
    replace_value,
    reshape_before,
    rewrite,
    standard_nodes,
    static_shape,
)

Axis = tuple[int, int]
"""Values of an axis, and elements of the source between neighbours."""
Axes = list[list[Axis]]
"""For every axis of a value the axes of the source that it consists of, the outermost first."""


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    split = [_show_image(node) for node in standard_nodes(model.graph, "Reshape")]
    changed = any(split)
    equal: dict[Hashable, ir.Node] = {}
    for node in reversed(list(model.graph)):  # the ends of chains first
        read = any(v.uses() or v.is_graph_output() for v in node.outputs)
        chain = _chain(node) if read and _is_link(node) else None
        if chain is None:
            continue
        changed |= _rewrite(model.graph, node, chain)
        later = None if chain.is_ordered else equal.get(chain.key)
        if later is not None and not later.outputs[0].is_graph_output():
            merge_sources(node, [later])
            replace_value(later.outputs[0], node.outputs[0])
            changed = True
        equal[chain.key] = node
    return changed


def _show_image(node: ir.Node) -> bool:
    """Insert the image between two ways of dividing it. Returns whether there is one."""
    x = node.inputs[0]
    image = None if x is None else divided_image(static_shape(x), static_shape(node.outputs[0]))
    if x is None or image is None:
        return False
    node.replace_input_with(0, reshape_before(node, x, image, name=f"{node.name}/image"))
    return True


class _Chain(Struct, frozen=True, kw_only=True):
    """Links that permute the pixels of a map.

    source: the map; links: the operators, in graph order; pixels: axes of its pixels, in the order
    of the result; target: shape of the result; is_last: whether it has channels last.
    """

    source: ir.Value
    links: tuple[ir.Node, ...]
    pixels: tuple[Axis, ...]
    target: tuple[int, ...]
    is_last: bool

    @property
    def key(self) -> Hashable:
        return self.source, self.pixels, self.target, self.is_last

    @property
    def is_ordered(self) -> bool:
        """Whether the pixels keep their order."""
        return len(self.pixels) < 2

    @property
    def ends_turned(self) -> bool:
        """Whether a Transpose puts channels last. That of a single one is a view, which `reshapes`
        merges with the Reshape before it.
        """
        return self.is_last and self.source.shape is not None and self.source.shape[1] != 1

    @property
    def view(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Axes of the pixels of the source, and their order in the result."""
        ordered = sorted(self.pixels, key=lambda axis: -axis[1])
        return tuple([n for n, _ in ordered]), tuple([ordered.index(axis) for axis in self.pixels])


def _is_link(node: ir.Node) -> bool:
    """Whether a node only moves values, in a way that is known."""
    if is_of_norm(node) or not is_standard(node, "Reshape", "Transpose"):
        return False
    if is_standard(node, "Reshape") and constant(operand(node, 1)) is None:
        return False
    shapes = static_shape(node.inputs[0]), static_shape(node.outputs[0])
    return None not in shapes and 0 not in (shapes[0] or ())


def _chain(node: ir.Node) -> _Chain | None:
    """The longest chain that ends with a node, else None."""
    target, found = static_shape(node.outputs[0]), None
    if target is None or len(target) != 4 or target[0] != 1:
        return None
    for source, links, axes in _sources(node):
        pixels = _pixels(source, axes)
        if pixels is not None:
            order, is_last = pixels
            found = _Chain(source=source, links=links, pixels=order, target=target, is_last=is_last)
    return found


def _rewrite(graph: ir.Graph, node: ir.Node, chain: _Chain) -> bool:
    if chain.is_ordered:
        transposes = sum(is_standard(link, "Transpose") for link in chain.links)
        if transposes < 1 + chain.is_last:
            return False
    elif _is_final(chain) or _is_one_transpose(chain):
        return False
    merge_sources(node, chain.links[:-1])
    value = chain.source if chain.is_ordered else _permuted(node, chain)
    n, *sizes = chain.target
    if chain.ends_turned:
        value = reshape_before(node, value, (n, sizes[2], *sizes[:2]), name=f"{node.name}/pixels")
        rewrite(node, "Transpose", [value], {"perm": CHANNELS_LAST})
    else:
        shape = add_constant(graph, f"{node.name}/shape", np.array(chain.target))
        rewrite(node, "Reshape", [value, shape])
    return True


def _permuted(node: ir.Node, chain: _Chain) -> ir.Value:
    """The pixels of a map in the order of the result, before the Reshape that ends the chain."""
    whole, (extents, order) = static_shape(chain.source), chain.view
    assert whole is not None
    name, shape = str(node.name), (*whole[:2], *[extents[axis] for axis in order])
    axes = (*whole[:2], *extents)
    view = reshape_before(node, chain.source, axes, name=f"{name}/axes")
    perm = {"perm": (0, 1, *[2 + axis for axis in order])}
    return move_before(node, "Transpose", [view], perm, name=f"{name}/permuted", shape=shape)


def _is_final(chain: _Chain) -> bool:
    """Whether a chain is one Transpose of these axes and Reshapes, channels last or not."""
    links = chain.links[: len(chain.links) - chain.ends_turned]
    transposes = [link for link in links if is_standard(link, "Transpose")]
    if len(transposes) != 1 or (chain.ends_turned and is_standard(chain.links[-1], "Reshape")):
        return False
    extents, order = chain.view
    axes, perm = (
        static_shape(transposes[0].inputs[0]),
        transposes[0].attributes.get_ints("perm", ()),
    )
    return (axes or ())[2:] == extents and tuple(perm) == (0, 1, *[2 + axis for axis in order])


def _is_one_transpose(chain: _Chain) -> bool:
    """Whether channels are last, and one Transpose exchanges rows and columns as well."""
    (extents, order), pixels = chain.view, chain.target[1:3]
    return chain.is_last and tuple([extents[axis] for axis in order]) == pixels


def _sources(node: ir.Node) -> Iterator[tuple[ir.Value, tuple[ir.Node, ...], Axes]]:
    """The values from which links compute a node's result, the links, and the axes of the result;
    the nearest value first.
    """
    links: list[ir.Node] = []
    quant = quant_of(node.outputs[0])
    link: ir.Node | None = node
    while link is not None and _is_link(link):
        source = link.inputs[0]
        if source is None or quant_of(source) not in {None, quant}:
            return
        links.insert(0, link)
        axes = _axes(links, source)
        if axes is not None and quant_of(source) == quant:
            yield source, tuple(links), axes
        link = source.producer()


def _axes(links: Sequence[ir.Node], source: ir.Value) -> Axes | None:
    """Axes of the result of links in terms of their source; None if a Reshape cuts an axis in
    parts that are no factors of it.
    """
    shape = static_shape(source)
    assert shape is not None
    axes: Axes = [[(n, math.prod(shape[i + 1 :]))] for i, n in enumerate(shape)]
    for link in links:
        if is_standard(link, "Transpose"):
            order = link.attributes.get_ints("perm", tuple(range(len(axes)))[::-1])
            axes = [axes[axis] for axis in order]
            continue
        made = static_shape(link.outputs[0])
        viewed = _viewed([axis for part in axes for axis in part], made or ())
        if viewed is None:
            return None
        axes = viewed
    return axes


def _viewed(axes: list[Axis], shape: Sequence[int]) -> Axes | None:
    """A flat list of axes as those of a shape."""
    left = [axis for axis in reversed(axes) if axis[0] != 1]
    result: Axes = []
    for size in shape:
        part: list[Axis] = []
        while size > 1:
            count, stride = left.pop()
            if count > size:
                if count % size:
                    return None
                left.append((count // size, stride))
                count, stride = size, stride * (count // size)
            if size % count:
                return None
            part.append((count, stride))
            size //= count
        result.append(part)
    return result


def _pixels(source: ir.Value, axes: Axes) -> tuple[tuple[Axis, ...], bool] | None:
    """The axes of pixels in the order of the result, and whether its channels are last; None if the
    source is no map (1, c, h, w), or the result divides its channels.
    """
    shape = static_shape(source)
    if shape is None or len(shape) != 4 or shape[0] != 1 or len(axes) != 4:
        return None
    channels = (shape[1], shape[2] * shape[3])
    for place, rest in ((1, (2, 3)), (3, (1, 2))):
        if _merged(axes[place]) == ((channels,) if channels[0] > 1 else ()):
            return _merged([axis for other in rest for axis in axes[other]]), place == 3
    return None


def _merged(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """The same axes, neighbours joined where they are one axis of the source."""
    merged: list[Axis] = []
    for count, stride in axes:
        if merged and merged[-1][1] == count * stride:
            merged[-1] = merged[-1][0] * count, stride
        elif count != 1:
            merged.append((count, stride))
    return tuple(merged)
