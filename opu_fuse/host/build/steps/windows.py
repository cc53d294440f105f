"""Convolutions and pools on the host: a padded copy of the operand, then one loop nest; Pad."""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from opu_fuse.host.build.linalg.payload import Payload
from opu_fuse.host.build.linalg.site import Site
from opu_fuse.host.build.steps.nest import (
    Nest,
    Operand,
    copy,
    fill,
    least,
    placed,
    plain,
    row_major,
)
from opu_fuse.host.kernel import literal

_CHANNEL_AXES = 2
"""Axes before the spatial ones: images, channels."""


class _Window(Struct, frozen=True, kw_only=True):
    """kernel, strides, dilations, pads at the beginning and at the end (`ends`): by spatial axis;
    outputs: sizes of the result; padded: sizes of the copy.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    ends: tuple[int, ...]
    outputs: tuple[int, ...]
    padded: tuple[int, ...]


def _window(site: Site, kernel: Sequence[int]) -> _Window | None:
    rank = len(kernel)
    if site.attribute("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID", b""):
        return None

    def numbers(name: str, default: int, count: int) -> tuple[int, ...]:
        found = site.attribute(name)
        return tuple(found) if isinstance(found, list) and found else (default,) * count

    strides, dilations = numbers("strides", 1, rank), numbers("dilations", 1, rank)
    pads = numbers("pads", 0, 2 * rank)
    sizes, outputs = site.shape(0)[_CHANNEL_AXES:], site.result_shape[_CHANNEL_AXES:]
    reach = [
        (n - 1) * s + d * (k - 1) + 1
        for n, s, d, k in zip(outputs, strides, dilations, kernel, strict=True)
    ]
    padded = [max(r, pads[n] + sizes[n]) for n, r in enumerate(reach)]
    return _Window(
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        pads=pads[:rank],
        ends=pads[rank:],
        outputs=outputs,
        padded=tuple(padded),
    )


def _padded(site: Site, window: _Window, name: str, start: str) -> list[Nest]:
    """The operand in a larger map that is filled with a literal."""
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
    window = _window(site, kernel)
    if window is None:
        return None
    target = site.node.output[0]
    padded = f"{target}:padded"
    start = literal(kind.type(0)) if mean else least(dtype)
    op = "add" if mean else "max"
    nests = _padded(site, window, padded, start)
    lead = site.result_shape[:_CHANNEL_AXES]
    nests += _over(window, lead, padded, target, dtype, op, start)
    if not mean:
        return nests
    return [*nests, *_counted(site, window), _quotient(site, window)]


def _over(
    window: _Window,
    lead: Sequence[int],
    source: str,
    target: str,
    dtype: str,
    op: str,
    start: str,
) -> list[Nest]:
    """Every window of a padded map. lead: sizes of the axes before the spatial ones."""
    shape = (*lead, *window.outputs)
    rank = len(window.kernel)
    steps = row_major((*lead, *window.padded))
    inside = [d * s for d, s in zip(window.dilations, steps[_CHANNEL_AXES:], strict=True)]
    moved = [d * s for d, s in zip(window.strides, steps[_CHANNEL_AXES:], strict=True)]
    body = Payload([dtype, dtype])
    value = body.emit(op, 1, 0)
    strides = (*inside, *steps[:_CHANNEL_AXES], *moved)
    return [
        fill(target, dtype, math.prod(shape), start),
        Nest(
            extents=(*window.kernel, *shape),
            inputs=(Operand(value=source, dtype=dtype, strides=strides),),
            results=(
                Operand(value=target, dtype=dtype, strides=(*([0] * rank), *row_major(shape))),
            ),
            body=body.instructions,
            yields=(value,),
        ),
    ]


def _counted(site: Site, window: _Window) -> list[Nest]:
    """How many elements each window averages: a channel of ones where they count, summed alike."""
    dtype, spatial = site.result.dtype, site.shape(0)[_CHANNEL_AXES:]
    zero = literal(np.dtype(dtype).type(0))
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
        *_over(window, (1, 1), ones, counts, dtype, "add", zero),
    ]


def _quotient(site: Site, window: _Window) -> Nest:
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
    window = _window(site, weight[_CHANNEL_AXES:])
    if window is None:
        return None
    groups, rank = site.integer("group", 1), len(window.kernel)
    target, shape = site.node.output[0], site.result_shape
    padded, each = f"{target}:padded", weight[0] // groups
    steps = row_major((*site.shape(0)[:_CHANNEL_AXES], *window.padded))
    inside = [d * s for d, s in zip(window.dilations, steps[_CHANNEL_AXES:], strict=True)]
    moved = [d * s for d, s in zip(window.strides, steps[_CHANNEL_AXES:], strict=True)]
    rows, out = row_major(weight), row_major(shape)
    body = Payload([dtype] * 3)
    value = body.emit("add", 2, body.emit("mul", 0, 1))
    none = [0] * rank
    nest = Nest(
        extents=(weight[1], *window.kernel, shape[0], groups, each, *window.outputs),
        inputs=(
            Operand(
                value=padded,
                dtype=dtype,
                strides=(steps[1], *inside, steps[0], weight[1] * steps[1], 0, *moved),
            ),
            Operand(
                value=site.node.input[1],
                dtype=dtype,
                strides=(rows[1], *rows[_CHANNEL_AXES:], 0, each * rows[0], rows[0], *none),
            ),
        ),
        results=(
            Operand(
                value=target,
                dtype=dtype,
                strides=(0, *none, out[0], each * out[1], out[1], *out[_CHANNEL_AXES:]),
            ),
        ),
        body=body.instructions,
        yields=(value,),
    )
    zero = literal(np.dtype(dtype).type(0))
    return [*_padded(site, window, padded, zero), *_biased(site, zero), nest]


def _biased(site: Site, zero: str) -> list[Nest]:
    """The result before any product: the bias of each channel, or zero."""
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


def padded(site: Site) -> list[Nest] | None:
    """Pad with a value: the result filled, then the part of the operand that is inside."""
    pads, shape = site.constant(1), site.shape(0)
    named = site.constant(3) if site.has(3) else np.arange(len(shape))
    if pads is None or named is None or site.attribute("mode", b"constant") != b"constant":
        return None
    before = [0] * len(shape)
    for axis, pad in zip(named.ravel(), pads.ravel(), strict=False):  # the second half is behind
        before[int(axis) % len(shape)] = int(pad)
    name, dtype, result = site.node.output[0], site.result.dtype, site.result_shape
    inside = placed(site.node.input[0], name, dtype, shape, result, before)
    return [_filled(site, math.prod(result)), *inside]


def _filled(site: Site, count: int) -> Nest:
    name, dtype = site.node.output[0], site.result.dtype
    if not site.has(2):
        return fill(name, dtype, count, literal(np.dtype(dtype).type(0)))
    every = copy(site.node.input[2], name, dtype, count)
    (value,) = every.inputs
    return Nest(
        extents=every.extents,
        inputs=(Operand(value=value.value, dtype=dtype, strides=(0,)),),
        results=every.results,
    )
