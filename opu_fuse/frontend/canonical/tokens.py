"""Tokens become the pixels of images (1, 1, n, c).

Transformers hold tokens as (n, c), (1, n, c), or (b, n, c) with a batch of windows, which become
the rows of an image (1, b, n, c). An operator that treats all tokens alike computes the same on the
image, so that Reshapes to and from images move past such operators, and `views` cancels them. One
pass in graph order moves them past all.

1. Dense layers become 1x1 convolutions of such images (`dense_to_conv1x1`).
2. Normalisations of the last axis get channels-first operands and results (`norms`).
3. Elementwise operators with an operand that a Reshape made of a channels-last map (1, h, w, c):
   the Reshape moves after them. Their other operands get the shape of the map: computed ones by a
   Reshape, constants that differ from token to token at compile time. If all constants are scalars,
   the Reshape need not keep the last axis. A map (1, c, h, w) whose pixels a Reshape put into a
   row (1, c, h·w), with constants alone (positions): likewise.
4. Split of the last axis of such an operand, Slice of it or of tokens (1, n, c), Gather of one
   token: likewise.
5. Concat of tokens (1, n, c), one of which is such an operand: likewise.
6. A Transpose of (1, n, c) or (1, c, n) from or to such an image, which a Reshape makes of it:
   it becomes one of the image. So does one of the pixels of a map (1, c, h, w) before a
   Concat with constants (a class token), or before a sum with other tokens.
7. BatchNormalization of tokens (n, c) that a Reshape made of a channels-last map: one of the map
   with channels first.
8. ReduceMean of such tokens (1, n, c): one of the rows and columns of the map.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import onnx_ir as ir

from opu_fuse.frontend.canonical import dense_to_conv1x1, norms
from opu_fuse.frontend.canonical.dense import is_final
from opu_fuse.frontend.canonical.pools import reduced_axes
from opu_fuse.frontend.canonical.token_images import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    IMAGE_RANK,
    as_row,
    is_image,
    map_of,
    reshape_after,
)
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_after,
    insert_before,
    is_standard,
    move_before,
    operand,
    quant_of,
    reshape_before,
    rewrite,
    static_shape,
)
from opu_fuse.model.known_values import slice_ranges
from opu_fuse.model.operator_sets import ELEMENT_WISE, NORMS, SELECTS

_CASES = (
    *(*ELEMENT_WISE, *NORMS, *SELECTS),
    *("BatchNormalization", "Concat", "Gemm", "MatMul", "ReduceMean", "Transpose"),
)


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    changed, graph = False, model.graph
    later: set[ir.Value] = set()
    for node in list(graph):
        if not is_standard(node, *_CASES):
            continue
        if any(v in later for v in node.inputs) or _waits(node):
            later.update(node.outputs)
        if is_standard(node, "MatMul", "Gemm"):
            changed |= dense_to_conv1x1.convert(graph, node, later)  # Case 1
        elif is_standard(node, *NORMS):
            changed |= norms.convert(graph, node)  # Case 2
        elif is_standard(node, *ELEMENT_WISE):
            changed |= _elementwise(graph, node)  # Case 3
        elif is_standard(node, "Transpose"):
            changed |= _transpose(graph, node)  # Case 6
        elif is_standard(node, "Concat"):
            changed |= _join(graph, node)  # Case 5
        elif is_standard(node, "BatchNormalization"):
            changed |= _batch_norm(graph, node)  # Case 7
        elif is_standard(node, "ReduceMean"):
            changed |= _mean(graph, node)  # Case 8
        else:
            changed |= _parts(graph, node)  # Case 4
    return changed


def _waits(node: ir.Node) -> bool:
    """Whether a node is a Gemm of a map's pixels that `dense` converts to its final form first."""
    if not is_standard(node, "Gemm") or is_final(node) or map_of(node.inputs[0]) is None:
        return False
    weight, bias = constant(operand(node, 1)), constant(operand(node, 2))
    has_vector = bias is not None and math.prod(bias.shape[:-1]) == 1
    known = weight is not None and (operand(node, 2) is None or has_vector)
    return known and not node.attributes.get_int("transA", 0)


def _batch_norm(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 7."""
    x, result = node.inputs[0], node.outputs[0]
    source, shape = map_of(x), static_shape(x)
    size = static_shape(source)
    if source is None or size is None or shape is None or len(shape) != 2 or _is_held(result):
        return False
    if len(node.outputs) > 1:
        return False
    node.replace_input_with(0, source)
    reshape_after(graph, node, source)
    first = [size[axis] for axis in CHANNELS_FIRST]
    name, perm = f"{node.name}/first", {"perm": CHANNELS_FIRST}
    turned = move_before(node, "Transpose", [source], perm, name=name, shape=first)
    node.replace_input_with(0, turned)
    name, perm = f"{node.name}/last", {"perm": CHANNELS_LAST}
    insert_after(node, node.outputs[0], "Transpose", (), perm, name=name, shape=first)
    return True


def _mean(graph: ir.Graph, node: ir.Node) -> bool:
    """Case 8."""
    x, target = node.inputs[0], static_shape(node.outputs[0])
    source, shape = map_of(x), static_shape(x)
    if source is None or target is None or shape is None or len(shape) != 3 or shape[0] != 1:
        return False
    if reduced_axes(node) != frozenset({1}):
        return False
    quant, name = quant_of(node.outputs[0]), f"{node.name}/pixels"
    attributes, inputs = {"keepdims": 0}, [source]
    if operand(node, 1) is None:
        attributes |= {"axes": (1, 2)}
    else:
        inputs.append(add_constant(graph, f"{node.name}/axes", np.array([1, 2])))
    row = (1, shape[2])
    made = insert_before(node, "ReduceMean", inputs, attributes, name=name, shape=row, quant=quant)
    rewrite(node, "Reshape", [made, add_constant(graph, f"{node.name}/shape", np.array(target))])
    return True


def _elementwise(graph: ir.Graph, node: ir.Node) -> bool:
    result = node.outputs[0]
    target = static_shape(result)
    if target is None or result.dtype != ir.DataType.FLOAT or _is_held(result):
        return False
    constants = [v for v in node.inputs if v is not None and constant(v) is not None]
    computed = dict.fromkeys(v for v in node.inputs if v is not None and constant(v) is None)
    if any(static_shape(v) != target for v in computed):
        return False
    if any(map(_was_row, computed)) and as_row(graph, node):
        return True
    scalars = all(constant(v).size == 1 for v in constants)  # type: ignore[union-attr]  # they are constants
    maps = {v: m for v in computed if (m := map_of(v, any_axis=scalars)) is not None}
    if not maps and computed and all(map(_is_flattened, computed)):
        return _of_pixels(graph, node, computed, target)
    if not maps:
        return False
    # Of pixels in several arrangements, those of a map are taken rather than those of a row.
    source = max(maps.values(), key=_rows)
    size = static_shape(source)
    maps = {v: m for v, m in maps.items() if static_shape(m) == size}
    assert size is not None
    if not all(_fits(v, size, target) for v in constants):
        return False
    if scalars and size[-1] != target[-1] and len(maps) < len(computed):
        return False  # tokens of the other operands would be no pixels
    for index, value in enumerate(node.inputs):
        if value is not None:
            image = maps.get(value) or _operand(graph, node, value, target, size)
            node.replace_input_with(index, image)
    reshape_after(graph, node, source)
    return True


def _was_row(value: ir.Value) -> bool:
    """Whether a Reshape made a value of a row (1, c)."""
    node = value.producer()
    shape = static_shape(node.inputs[0]) if node and is_standard(node, "Reshape") else None
    return shape is not None and len(shape) == 2 and shape[0] == 1


def _rows(image: ir.Value) -> int:
    shape = static_shape(image)
    assert shape is not None
    return shape[1]


def _of_pixels(
    graph: ir.Graph, node: ir.Node, computed: Iterable[ir.Value], target: tuple[int, ...]
) -> bool:
    """Let an elementwise operator of rows of pixels read the maps, its constants as maps, too."""
    maps = {v: source for v in computed if (source := _flattened(v)) is not None}
    sizes = {static_shape(source) for source in maps.values()}
    others = [v for v in node.inputs if v is not None and v not in maps]
    if len(sizes) != 1 or any(
        (q := quant_of(v)) is not None and q.axis is not None for v in others
    ):
        return False
    (size,) = sizes
    assert size is not None
    for index, value in enumerate(node.inputs):
        data = constant(value)
        if value is None or (data is not None and data.size == 1):
            continue
        if data is not None:
            whole = np.broadcast_to(data, target).reshape(size)
            maps[value] = add_constant(graph, f"{value.name}/pixels", whole, quant_of(value))
        node.replace_input_with(index, maps[value])
    reshape_after(graph, node, next(iter(maps.values())))
    return True


def _is_held(value: ir.Value) -> bool:
    """Whether a machine holds a value as it is: a map or one row."""
    return is_image(value) or (static_shape(value) or ())[:-1] == (1,)


def _fits(value: ir.Value, size: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a constant operand of tokens of shape `target` can get the shape of a map `size`.

    Constants that differ between tokens are expanded only for images of one row and of a batch of
    tokens, as other images may be maps with channels first.
    """
    shape, quant = static_shape(value), quant_of(value)
    if shape is None or (quant is not None and quant.axis is not None):
        return False
    return math.prod(shape[:-1]) == 1 or size[:2] == (1, 1) or size == (1, *target)


def _operand(
    graph: ir.Graph,
    node: ir.Node,
    value: ir.Value,
    target: tuple[int, ...],
    size: tuple[int, ...],
) -> ir.Value:
    data = constant(value)
    if data is None:
        return reshape_before(node, value, size, name=f"{node.name}/image")
    if data.ndim <= 1 and math.prod(data.shape[:-1]) == 1:
        return value
    if math.prod(data.shape[:-1]) == 1:
        return add_constant(graph, f"{value.name}/channels", data.reshape(-1), quant_of(value))
    tokens = np.broadcast_to(data, (*target[:-1], data.shape[-1])).reshape(*size[:-1], -1)
    return add_constant(graph, f"{value.name}/tokens", tokens, quant_of(value))


def _parts(graph: ir.Graph, node: ir.Node) -> bool:
    x = node.inputs[0]
    source, shape = map_of(x), static_shape(x)
    if x is None or source is None or shape is None or is_image(x):
        return False
    if any(static_shape(v) is None for v in node.outputs):
        return False
    if is_standard(node, "Split"):
        if node.attributes.get_int("axis", 0) % len(shape) != len(shape) - 1:
            return False
        node.attributes["axis"] = ir.AttrInt64("axis", IMAGE_RANK - 1)
        node.replace_input_with(0, source)
        reshape_after(graph, node, source)
        return True
    ranges = _taken(node, shape)
    if ranges is None or any(taken.step < 0 or not taken for taken in ranges):
        return False
    cut = [a for a, taken in enumerate(ranges) if taken != range(shape[a])]
    size = static_shape(source)
    same = 3 if size == (1, *shape) else 2 if size == (1, 1, *shape[-2:]) else 1
    if len(cut) != 1 or cut[0] < len(shape) - same:
        return False
    taken, axis = ranges[cut[0]], IMAGE_RANK - (len(shape) - cut[0])
    numbers = (taken.start, taken.stop, axis, taken.step)
    names = (f"{node.name}/{part}" for part in ("start", "stop", "axis", "step"))
    constants = [
        add_constant(graph, name, np.array([number], np.int64))
        for name, number in zip(names, numbers, strict=True)
    ]
    rewrite(node, "Slice", [source, *constants])
    made = list(size or ())
    made[axis] = len(taken)
    _restore(graph, node, made)
    return True


def _taken(node: ir.Node, shape: tuple[int, ...]) -> list[range] | None:
    """Range of each axis that a Slice takes, or a Gather of one index; None for others."""
    if is_standard(node, "Slice"):
        return slice_ranges(node)
    indices = constant(node.inputs[1])
    if indices is None or indices.size != 1:
        return None
    axis = node.attributes.get_int("axis", 0) % len(shape)
    index = int(indices.item()) % shape[axis]
    return [range(index, index + 1) if a == axis else range(n) for a, n in enumerate(shape)]


def _join(graph: ir.Graph, node: ir.Node) -> bool:
    """Let a Concat of tokens (1, n, c) join images, of constant tokens as well."""
    values, shape = [v for v in node.inputs if v is not None], static_shape(node.outputs[0])
    axis = node.attributes.get_int("axis", 0)
    if shape is None or len(shape) != 3 or shape[0] != 1 or axis % 3 == 0:
        return False
    sizes = {v: (1, *size) for v in values if (size := static_shape(v)) and 0 not in size}
    maps = {v: m for v in sizes if (m := map_of(v)) is not None and static_shape(m) == sizes[v]}
    if not maps or len(sizes) < len(set(values)):
        return False
    if any((q := quant_of(v)) is not None and q.axis is not None for v in values):
        return False
    for index, value in enumerate(values):
        data, image = constant(value), maps.get(value)
        if data is not None:
            name = f"{value.name}/tokens"
            image = add_constant(graph, name, data.reshape(sizes[value]), quant_of(value))
        node.replace_input_with(
            index, image or reshape_before(node, value, sizes[value], name=f"{node.name}/image")
        )
    node.attributes["axis"] = ir.AttrInt64("axis", axis % 3 + 1)
    _restore(graph, node, (1, *shape))
    return True


def _restore(graph: ir.Graph, node: ir.Node, size: Sequence[int]) -> None:
    """Let a node's result have the shape `size`, and restore its own after it."""
    result = node.outputs[0]
    shape = static_shape(result)
    assert shape is not None
    target = add_constant(graph, f"{node.name}/rows_shape", np.asarray(shape, np.int64))
    insert_after(node, result, "Reshape", (target,), name=f"{node.name}/rows", shape=size)


def _transpose(graph: ir.Graph, node: ir.Node) -> bool:
    x, result = node.inputs[0], node.outputs[0]
    shape, quant = static_shape(x), quant_of(result)
    if x is None or shape is None or shape[:1] != (1,) or quant not in {None, quant_of(x)}:
        return False
    if tuple(node.attributes.get_ints("perm", ())) != (0, 2, 1) or 1 in shape[1:] or 0 in shape:
        return False
    _, outer, inner = shape
    source = map_of(x)
    if static_shape(source) == (1, 1, outer, inner):
        order, turned = CHANNELS_FIRST, (1, inner, 1, outer)
    elif any(_makes(use.node, (1, 1, inner, outer)) for use in result.uses()) or (
        _is_flattened(x) and any(_joins(use.node) for use in result.uses())
    ):
        order, turned = CHANNELS_LAST, (1, 1, inner, outer)
        source = reshape_before(node, x, (1, outer, 1, inner), name=f"{node.name}/image")
    else:
        return False
    size = add_constant(graph, f"{node.name}/line_shape", np.array((1, inner, outer)))
    insert_after(node, result, "Reshape", (size,), name=f"{node.name}/line", shape=turned)
    node.replace_input_with(0, source)
    node.attributes["perm"] = ir.AttrInt64s("perm", order)
    return True


def _is_flattened(value: ir.Value) -> bool:
    return _flattened(value) is not None


def _flattened(value: ir.Value) -> ir.Value | None:
    """The map (1, c, h, w) whose pixels a Reshape put into a row, (1, c, h·w); None for others, and
    if it requantises.
    """
    node, shape = value.producer(), static_shape(value)
    if node is None or shape is None or not is_standard(node, "Reshape"):
        return None
    source, size = node.inputs[0], static_shape(node.inputs[0])
    if source is None or size is None or len(size) != IMAGE_RANK or len(shape) != 3:
        return None
    same_quant = quant_of(value) in {None, quant_of(source)}
    return source if same_quant and size[:2] == shape[:2] else None


def _joins(node: ir.Node) -> bool:
    """Whether a node joins tokens and constants, or adds tokens."""
    computed = [constant(v) is None for v in node.inputs]
    return is_standard(node, "Add") if all(computed) else is_standard(node, "Concat")


def _makes(node: ir.Node, shape: tuple[int, ...]) -> bool:
    return is_standard(node, "Reshape") and static_shape(node.outputs[0]) == shape
