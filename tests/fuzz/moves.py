"""What moves values and computes nothing: splits, slices, shuffles, pads, resizes, views."""

import math

import numpy as np

from tests.fuzz.layers import conv, pointwise, reshape
from tests.fuzz.sketch import MOST_ELEMENTS, Sketch, Value


def split(s: Sketch, x: Value) -> Value:
    """Along the channels, into equal or unequal parts; some of them may stay unread."""
    c = x.channels
    if c < 2:
        return x
    count = s.number(2, min(3, c))
    if s.chance(0.5) and c % count == 0:
        sizes = [c // count] * count
    else:
        cuts = np.sort(s.rng.choice(np.arange(1, c), count - 1, replace=False))
        sizes = [int(n) for n in np.diff([0, *cuts, c])]
    shapes = [(1, n, *x.size) for n in sizes]
    if len(set(sizes)) == 1 and s.chance(0.5):
        form = {"num_outputs": count} if s.opset >= 18 else {}
        parts = s.nodes("Split", (x,), shapes, axis=1, **form)
    else:
        parts = s.nodes("Split", (x, s.ints(*sizes)), shapes, axis=1)
    s.maps += [p for p in parts if s.chance(0.7)]
    if s.chance(0.3):  # and together again, one of them changed
        parts[0] = s.same("Relu", parts[0])
        order = list(s.rng.permutation(count))
        return s.node("Concat", [parts[i] for i in order], x.shape, axis=1)
    return s.pick(parts)


def cut(s: Sketch, x: Value) -> Value:
    """Slice of one axis, with a step or backwards now and then."""
    axis = s.number(1, 3)
    n = x.shape[axis]
    first = s.number(0, n - 1)
    last = s.number(first + 1, n)
    step = s.number(1, 2) if s.chance(0.3) else 1
    shape = [*x.shape]
    shape[axis] = -(-(last - first) // step)
    bounds = (first, last) if s.chance(0.7) else (first - n, last if last < n else 2**31 - 1)
    if s.chance(0.05):
        bounds, step = (last - 1, first - 1 - n if first == 0 else first - 1), -step
    operands = [s.ints(v) for v in (*bounds, axis, step)]
    return s.node("Slice", (x, *operands), shape)


def crop(s: Sketch, x: Value) -> Value:
    """Rows and columns off the ends of what a window has padded, as causal convolutions do; seldom
    behind an operator, or as pads below nothing.
    """
    y = conv(s, x) if s.chance(0.7) else x
    if s.chance(0.3):
        y = s.same("Relu", y)
    cut = [min(s.number(0, 2), (n - 1) // 2) for n in (*y.size, *y.size)]
    shape = (1, y.channels, y.size[0] - cut[0] - cut[2], y.size[1] - cut[1] - cut[3])
    if s.chance(0.2):
        pads = s.ints(0, 0, -cut[0], -cut[1], 0, 0, -cut[2], -cut[3])
        return s.node("Pad", (y, pads), shape)
    ends = (y.size[0] - cut[2], y.size[1] - cut[3])
    return s.node("Slice", (y, s.ints(*cut[:2]), s.ints(*ends), s.ints(2, 3)), shape)


def roll(s: Sketch, x: Value) -> Value:
    """Parts of the rows or columns exchanged, or of both, as windows that shift do; seldom one of
    them changed on the way.
    """
    for axis in s.pick(((2,), (3,), (2, 3), (3, 2))):
        n = x.shape[axis]
        if n < 2:
            continue
        first = s.number(1, n - 1)
        parts = []
        for begin, end in ((first, n), (0, first)):
            shape = [*x.shape]
            shape[axis] = end - begin
            parts.append(s.node("Slice", (x, s.ints(begin), s.ints(end), s.ints(axis)), shape))
        if s.chance(0.2):
            parts[0] = s.same("Relu", parts[0])
        x = s.node("Concat", parts[:: 1 if s.chance(0.9) else -1], x.shape, axis=axis)
    return x


def class_token(s: Sketch, x: Value) -> Value:
    """Constant columns join those of a map, get positions, and are cut out behind some layers."""
    c, (rows, columns), count = x.channels, x.size, s.number(1, 2)
    made = s.numbers((1, c, rows, count), -1.0, 1.0)
    x = s.node("Concat", (made, x), (1, c, rows, columns + count), axis=3)
    if s.chance(0.7):
        x = s.same("Add", x, s.numbers(x.shape, -0.5, 0.5))
    for _ in range(s.number(0, 2)):
        y = pointwise(s, x, x.channels)
        x = s.same("Add", x, y) if s.chance(0.6) else s.same("Sigmoid", y)
    first = s.number(0, count)
    shape = (1, x.channels, rows, 1)
    return s.node("Slice", (x, s.ints(first), s.ints(first + 1), s.ints(3)), shape)


def shuffle(s: Sketch, x: Value) -> Value:
    """Channels of groups interleaved: Reshape, Transpose, Reshape."""
    groups = s.number(2, 4)
    if x.channels % groups or x.channels == groups:
        x = pointwise(s, x, groups * s.number(2, 12))
    each = x.channels // groups
    y = s.node("Reshape", (x, s.ints(1, groups, each, *x.size)), (1, groups, each, *x.size))
    y = s.node("Transpose", (y,), (1, each, groups, *x.size), perm=[0, 2, 1, 3, 4])
    return reshape(s, y, x.shape)


def permute(s: Sketch, x: Value) -> Value:
    """Windows or patches of a map in any order of their axes, with channels first or last."""
    c, sizes = x.channels, []
    for n in x.size:
        inner = int(s.pick([d for d in range(1, n + 1) if n % d == 0]))
        sizes += [n // inner, inner]
    order = s.rng.permutation(4).tolist()
    moved = [sizes[axis] for axis in order]
    rows = math.prod(moved[:2])
    made = rows, math.prod(sizes) // rows
    if s.chance(0.5):
        y = s.node("Reshape", (x, s.ints(1, c, *sizes)), (1, c, *sizes))
        perm = [0, 1, *(axis + 2 for axis in order)]
        y = s.node("Transpose", (y,), (1, c, *moved), perm=perm)
        return reshape(s, y, (1, c, *made))
    y = s.node("Transpose", (x,), (1, *x.size, c), perm=[0, 2, 3, 1])
    y = s.node("Reshape", (y, s.ints(1, *sizes, c)), (1, *sizes, c))
    perm = [0, *(axis + 1 for axis in order), 5]
    y = s.node("Transpose", (y,), (1, *moved, c), perm=perm)
    if s.chance(0.5):
        y = s.node("Reshape", (y, s.ints(*made, c)), (*made, c))
    y = s.node("Reshape", (y, s.ints(1, *made, c)), (1, *made, c))
    return s.node("Transpose", (y,), (1, c, *made), perm=[0, 3, 1, 2])


def pad(s: Sketch, x: Value) -> Value:
    """Rows and columns, seldom channels; zeros, another value, edge or reflected."""
    amounts = [s.number(0, 2) for _ in range(4)]
    channels = s.number(1, 3) if s.chance(0.06) else 0
    pads = [0, channels, *amounts[:2], 0, 0, *amounts[2:]]
    shape = [n + pads[i] + pads[i + 4] for i, n in enumerate(x.shape)]
    mode = str(s.pick(("constant",) * 8 + ("edge", "reflect")))
    if mode == "reflect" and (channels or any(n <= 2 for n in x.size)):
        mode = "edge"
    operands = [x, s.ints(*pads)]
    if mode == "constant" and s.chance(0.5):
        fill = 0.0 if s.chance(0.6) else float(s.rng.uniform(-1.0, 1.0))
        operands.append(s.constant(np.array(fill, np.float32)))
    return s.node("Pad", operands, shape, mode=mode)


def resize(s: Sketch, x: Value) -> Value:
    """Nearest as upsampling is written, or any other form."""
    room = MOST_ELEMENTS / x.elements
    factors = [s.number(1, 3), s.number(1, 3)]
    if math.prod(factors) > room:
        factors = [1, 1] if room < 2 else [1, 2]
    scales = [1.0, 1.0, *map(float, factors)]
    form: dict[str, object] = {"mode": "nearest"}
    way = s.number(0, 9)
    if way < 6:
        form |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif way < 8:
        form |= {"mode": "linear"}
        ways = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        form |= {"coordinate_transformation_mode": str(s.pick(ways))}
    else:
        form |= {"coordinate_transformation_mode": "half_pixel"}
    shape = (1, x.channels, *(n * f for n, f in zip(x.size, factors, strict=True)))
    if s.chance(0.3):
        return s.node("Resize", (x, "", "", s.ints(*shape)), shape, **form)
    if s.chance(0.2):  # as many rows and columns, from other places
        scales[2:] = [f + 0.9 / n for n, f in zip(x.size, factors, strict=True)]
    return s.node("Resize", (x, "", s.constant(np.array(scales, np.float32))), shape, **form)


def turn(s: Sketch, x: Value) -> Value:
    """Transposed and mostly turned back, with something in between."""
    perm: list[int] = list(s.pick(((0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 1, 2), (0, 2, 1, 3))))
    y = s.node("Transpose", (x,), [x.shape[i] for i in perm], perm=perm)
    if s.chance(0.5):
        y = s.same("Relu", y)
    if s.chance(0.75):
        back = [perm.index(i) for i in range(4)]
        y = s.node("Transpose", (y,), x.shape, perm=back)
    return y


def view(s: Sketch, x: Value) -> Value:
    """The same elements in another shape, or through Squeeze and Unsqueeze."""
    c, (h, w) = x.channels, x.size
    if 1 in x.size and s.chance(0.5):
        axis = 2 if h == 1 else 3
        flat = s.axes("Squeeze", x, (axis,), tuple(n for i, n in enumerate(x.shape) if i != axis))
        return s.axes("Unsqueeze", flat, (axis,), x.shape)
    shapes = [(1, c, h * w, 1), (1, c * h, w, 1), (1, c, w, h), (1, h, w, c)]
    if c % 2 == 0:
        shapes.append((1, c // 2, 2 * h, w))
    return reshape(s, x, s.pick(shapes))


def depth_space(s: Sketch, x: Value) -> Value:
    c, (h, w) = x.channels, x.size
    if c % 4 == 0 and s.chance(0.6):
        mode = str(s.pick(("DCR", "CRD")))
        return s.node("DepthToSpace", (x,), (1, c // 4, 2 * h, 2 * w), blocksize=2, mode=mode)
    if h % 2 == 0 and w % 2 == 0 and s.chance(0.5):
        return focus(s, x)
    if h % 2 == 0 and w % 2 == 0:
        return s.node("SpaceToDepth", (x,), (1, 4 * c, h // 2, w // 2), blocksize=2)
    return x


def focus(s: Sketch, x: Value) -> Value:
    """Every second row and column from each of the first two on, in some order of the four."""
    c, (h, w) = x.channels, x.size
    half, end = (1, c, h // 2, w), s.ints(2**31 - 1)
    axes, two = (s.ints(2), s.ints(3)), s.ints(2)
    rows = [s.node("Slice", (x, s.ints(i), end, axes[0], two), half) for i in range(2)]
    parts = [
        s.node("Slice", (rows[i % 2], s.ints(i // 2), end, axes[1], two), (*half[:3], w // 2))
        for i in s.rng.permutation(4).tolist()
    ]
    return s.node("Concat", parts, (1, 4 * c, h // 2, w // 2), axis=1)


def expand(s: Sketch, x: Value) -> Value:
    """One pixel to a map."""
    if x.size != (1, 1):
        return x
    shape = (1, x.channels, s.number(1, 4), s.number(1, 4))
    return s.node("Expand", (x, s.ints(*shape)), shape)
