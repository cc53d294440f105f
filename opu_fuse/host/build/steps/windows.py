"""Conv, pools and Pad on the host.

A convolution or pool copies its operand into a larger, padded map, and starts the result from a
bias, or from a number that does not change it. One loop nest then adds to the result, or takes the
maximum; for an average, a second one divides by the numbers of elements.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.nest import (
    Nest,
    Operand,
    copy,
    fill,
    least,
    number,
    placed,
    plain,
    row_major,
)

_CHANNEL_AXES = 2
"""Axes before the spatial ones: images, channels."""


class _Window(Struct, frozen=True, kw_only=True):
    """The sliding window of an operator; every field has a number for each spatial axis.

    pads, ends: padding at the beginning and at the end;
    outputs: sizes of the result;
    padded: sizes of the padded copy.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    ends: tuple[int, ...]
    outputs: tuple[int, ...]
    padded: tuple[int, ...]

    @property
    def kernel_steps(self) -> tuple[int, ...]:
        """Elements of the padded copy from one kernel position to the next."""
        return _products(self.dilations, row_major(self.padded))

    @property
    def output_steps(self) -> tuple[int, ...]:
        """Elements of the padded copy from the window of one output to that of the next."""
        return _products(self.strides, row_major(self.padded))


def _products(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x * y for x, y in zip(a, b, strict=True))


def _window_of(site: Site, kernel: Sequence[int]) -> _Window | None:
    """The window of a convolution or pool. None if its padding is automatic (SAME)."""
    rank = len(kernel)
    if site.attribute("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID", b""):
        return None

    def numbers(name: str, default: int, count: int) -> tuple[int, ...]:
        value = site.attribute(name)
        return tuple(value) if isinstance(value, list) and value else (default,) * count

    strides, dilations = numbers("strides", 1, rank), numbers("dilations", 1, rank)
    pads = numbers("pads", 0, 2 * rank)
    sizes, outputs = site.shape(0)[_CHANNEL_AXES:], site.result_shape[_CHANNEL_AXES:]
    read = [
        (n - 1) * s + d * (k - 1) + 1
        for n, s, d, k in zip(outputs, strides, dilations, kernel, strict=True)
    ]
    padded = [max(n, pads[axis] + sizes[axis]) for axis, n in enumerate(read)]
    return _Window(
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        pads=pads[:rank],
        ends=pads[rank:],
        outputs=outputs,
        padded=tuple(padded),
    )


def _padded_copy(site: Site, window: _Window, name: str, start: str) -> list[Nest]:
    """Copy the operand into a map `name` of the window's padded sizes, filled with a literal."""
    shape, dtype = site.shape(0), site.result.dtype
    full = (*shape[:_CHANNEL_AXES], *window.padded)
    before = (*[0] * _CHANNEL_AXES, *window.pads)
    return [
        fill(name, dtype, math.prod(full), start),
        *placed(site.node.input[0], name, dtype, shape, full, before),
    ]


def pool(site: Site, *, mean: bool) -> list[Nest] | None:
    """MaxPool and AveragePool. Loops: window, then the result."""
    kernel = site.attribute("kernel_shape")
    dtype, kind = site.result.dtype, np.dtype(site.result.dtype)
    if not isinstance(kernel, list) or (mean and kind.kind != "f"):
        return None
    window = _window_of(site, kernel)
    if window is None:
        return None
    target = site.node.output[0]
    padded = f"{target}:padded"
    start, op = (number(dtype, 0), "add") if mean else (least(dtype), "max")
    nests = _padded_copy(site, window, padded, start)
    nests += _folded(window, site.result_shape[:_CHANNEL_AXES], padded, target, dtype, op, start)
    if not mean:
        return nests
    return [*nests, *_window_counts(site, window), _divided_by_counts(site, window)]


def _folded(
    window: _Window,
    lead: Sequence[int],
    source: str,
    target: str,
    dtype: str,
    op: str,
    start: str,
) -> list[Nest]:
    """Combine the elements of every window of a padded map by `op`, from a literal on.

    lead: sizes of the axes before the spatial ones.
    """
    shape = (*lead, *window.outputs)
    lead_steps = row_major((*lead, *window.padded))[: len(lead)]
    body = Payload([dtype, dtype])
    value = body.emit(op, 1, 0)
    strides = (*window.kernel_steps, *lead_steps, *window.output_steps)
    still = (0,) * len(window.kernel)  # the result, in the loops over a window
    return [
        fill(target, dtype, math.prod(shape), start),
        Nest(
            extents=(*window.kernel, *shape),
            inputs=(Operand(value=source, dtype=dtype, strides=strides),),
            results=(Operand(value=target, dtype=dtype, strides=(*still, *row_major(shape))),),
            body=body.instructions,
            yields=(value,),
        ),
    ]


def _window_counts(site: Site, window: _Window) -> list[Nest]:
    """Number of elements that each window averages: the sums of a channel of ones, where they
    count, and zeros.
    """
    dtype, spatial = site.result.dtype, site.shape(0)[_CHANNEL_AXES:]
    zero = number(dtype, 0)
    ones, counts = f"{site.node.output[0]}:ones", f"{site.node.output[0]}:counts"
    steps = row_major(window.padded)
    with_pads = bool(site.integer("count_include_pad", 0))
    begin = [0 if with_pads else p for p in window.pads]
    sizes = [
        min(p + n + e, most) if with_pads else n
        for p, n, e, most in zip(window.pads, spatial, window.ends, window.padded, strict=True)
    ]
    offset = sum(b * s for b, s in zip(begin, steps, strict=True))
    body = Payload([dtype])
    value = body.const(1, dtype)
    return [
        fill(ones, dtype, math.prod(window.padded), zero),
        Nest(
            extents=tuple(sizes),
            inputs=(),
            results=(Operand(value=ones, dtype=dtype, offset=offset, strides=steps),),
            body=body.instructions,
            yields=(value,),
        ),
        *_folded(window, (1, 1), ones, counts, dtype, "add", zero),
    ]


def _divided_by_counts(site: Site, window: _Window) -> Nest:
    dtype, target = site.result.dtype, site.node.output[0]
    body = Payload([dtype, dtype])
    value = body.emit("div", 1, 0)
    strides = (*[0] * _CHANNEL_AXES, *row_major(window.outputs))
    counts = Operand(value=f"{target}:counts", dtype=dtype, strides=strides)
    return Nest(
        extents=site.result_shape,
        inputs=(counts,),
        results=(plain(target, dtype, site.result_shape),),
        body=body.instructions,
        yields=(value,),
    )


def convolution(site: Site) -> list[Nest] | None:
    """Conv. Loops: channels of a group, window, image, group, channels of the result, result."""
    dtype, weight = site.result.dtype, site.shape(1)
    if np.dtype(dtype).kind != "f":
        return None
    window = _window_of(site, weight[_CHANNEL_AXES:])
    if window is None:
        return None
    groups = site.integer("group", 1)
    target, shape = site.node.output[0], site.result_shape
    padded, group_oc = f"{target}:padded", weight[0] // groups
    image, channel, *_ = row_major((*site.shape(0)[:_CHANNEL_AXES], *window.padded))
    oc, ic, *taps = row_major(weight)
    out_image, out_channel, *out_pixels = row_major(shape)
    body = Payload([dtype] * 3)
    value = body.emit("add", 2, body.emit("mul", 0, 1))
    none = (0,) * len(window.kernel)
    moves = (  # elements of operand, weights and result per iteration of each loop
        (
            padded,
            (channel, *window.kernel_steps, image, weight[1] * channel, 0, *window.output_steps),
        ),
        (site.node.input[1], (ic, *taps, 0, group_oc * oc, oc, *none)),
        (target, (0, *none, out_image, group_oc * out_channel, out_channel, *out_pixels)),
    )
    *inputs, result = (Operand(value=v, dtype=dtype, strides=strides) for v, strides in moves)
    nest = Nest(
        extents=(weight[1], *window.kernel, shape[0], groups, group_oc, *window.outputs),
        inputs=tuple(inputs),
        results=(result,),
        body=body.instructions,
        yields=(value,),
    )
    zero = number(dtype, 0)
    return [*_padded_copy(site, window, padded, zero), *_bias_or(site, zero), nest]


def _bias_or(site: Site, zero: str) -> list[Nest]:
    """The result before any product is added: the bias of each channel, or zero."""
    target, shape, dtype = site.node.output[0], site.result_shape, site.result.dtype
    if not site.has(2):
        return [fill(target, dtype, math.prod(shape), zero)]
    strides = tuple(int(n == 1) for n in range(len(shape)))
    return [
        Nest(
            extents=shape,
            inputs=(Operand(value=site.node.input[2], dtype=dtype, strides=strides),),
            results=(plain(target, dtype, shape),),
        )
    ]


def pad(site: Site) -> list[Nest] | None:
    """Pad with a value: the result filled, then the part of the operand that is inside."""
    pads, shape = site.constant(1), site.shape(0)
    axes = site.constant(3) if site.has(3) else np.arange(len(shape))
    if pads is None or axes is None or site.attribute("mode", b"constant") != b"constant":
        return None
    before = [0] * len(shape)
    for axis, count in zip(axes.ravel(), pads.ravel(), strict=False):  # then those at the ends
        before[int(axis) % len(shape)] = int(count)
    name, dtype, result = site.node.output[0], site.result.dtype, site.result_shape
    inside = placed(site.node.input[0], name, dtype, shape, result, before)
    return [_filled(site, math.prod(result)), *inside]


def _filled(site: Site, count: int) -> Nest:
    """The result of a Pad, all of its value (operand 2, or zero)."""
    name, dtype = site.node.output[0], site.result.dtype
    if not site.has(2):
        return fill(name, dtype, count, number(dtype, 0))
    once = Operand(value=site.node.input[2], dtype=dtype, strides=(0,))
    return replace(copy(once.value, name, dtype, count), inputs=(once,))
