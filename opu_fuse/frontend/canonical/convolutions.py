"""Conv and ConvTranspose with explicit attributes: kernel_shape, strides, dilations, pads, group.

1-D Conv becomes 2-D. ConvTranspose (2-D only) also gets output_padding. Its output_shape becomes
pads, dilations become zeros between the weights, and grouped ConvTransposes with several filters
become dense, with zeros between groups.

Only convolutions with a constant weight change; the others run on the host.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from msgspec.structs import replace

from opu_fuse.frontend.canonical.window_arithmetic import Ints, explicit_pads
from opu_fuse.frontend.editing import (
    add_constant,
    attributes_of,
    constant,
    insert_before,
    operand,
    quant_of,
    rewrite,
    set_attributes,
    standard_nodes,
    static_shape,
    values_of,
)
from opu_fuse.quant import META_KEY


def run(model: ir.Model) -> bool:
    """Returns whether the graph changed."""
    rules = {"Conv": _explicit, "ConvTranspose": _transposed}
    changed = [rules[n.op_type](model.graph, n) for n in standard_nodes(model.graph, *rules)]
    return any(changed)


def _explicit(graph: ir.Graph, node: ir.Node) -> bool:
    x, weight = node.inputs[0], constant(operand(node, 1))
    size = static_shape(x)
    if weight is None or x is None or size is None or weight.ndim not in {3, 4}:
        return False
    written = values_of(node)
    attributes, onnx_attributes = _explicit_attributes(
        tuple(written.items()), size[2:], weight.shape[2:]
    )
    if weight.ndim == 3:
        _widen(graph, node, attributes)
    elif written == attributes:
        return False
    else:
        set_attributes(node, onnx_attributes)
    return True


def _transposed(graph: ir.Graph, node: ir.Node) -> bool:
    weight, source, target = (
        constant(operand(node, 1)),
        *map(static_shape, (node.inputs[0], node.outputs[0])),
    )
    if weight is None or weight.ndim != 4 or source is None or target is None:
        return False
    ints = node.attributes.get_ints
    mode = node.attributes.get_string("auto_pad", "NOTSET") or "NOTSET"
    kernel, strides, dilations = (
        weight.shape[2:],
        ints("strides", (1, 1)),
        ints("dilations", (1, 1)),
    )
    extra, pads = ints("output_padding", (0, 0)), ints("pads", (0, 0, 0, 0))
    if mode != "NOTSET" or "output_shape" in node.attributes:
        spans = zip(source[2:], target[2:], strides, dilations, kernel, extra, strict=True)
        totals = [s * (n - 1) + e + (k - 1) * d + 1 - out for n, out, s, d, k, e in spans]
        if min(totals) < 0:
            return False
        small = [t // 2 for t in totals]
        large = [t - s for t, s in zip(totals, small, strict=True)]
        pads = [*small, *large] if mode == "SAME_UPPER" else [*large, *small]
    dense = _spread(graph, node, dilations)
    attributes = {
        "kernel_shape": (static_shape(node.inputs[1]) or ())[2:],
        "strides": tuple(strides),
        "dilations": (1, 1),
        "pads": tuple(pads),
        "output_padding": tuple(extra),
        "group": 1 if dense else node.attributes.get_int("group", 1),
    }
    if values_of(node) == attributes:
        return False
    set_attributes(node, attributes_of(attributes))
    return True


def _spread(graph: ir.Graph, node: ir.Node, dilations: Sequence[int]) -> bool:
    """Write dilations and groups of a ConvTranspose as zeros in its weights.

    Returns whether groups became dense. Depthwise ones do not: machines support them.
    """
    w, group = node.inputs[1], node.attributes.get_int("group", 1)
    weight = constant(w)
    assert w is not None
    assert weight is not None
    quant, (channels, filters) = quant_of(w), weight.shape[:2]
    zero = 0 if quant is None else quant.zero_point
    if dilations != (1, 1):
        size = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
        taps = np.full((channels, filters, *size), zero, weight.dtype)
        taps[:, :, :: dilations[0], :: dilations[1]] = weight
        weight = taps
    dense = group > 1 and (channels, filters) != (group, 1)
    if dense:
        blocks = np.full((channels, group, *weight.shape[1:]), zero, weight.dtype)
        rows = np.arange(channels)
        blocks[rows, rows * group // channels] = weight
        weight = blocks.reshape(channels, -1, *weight.shape[2:])
        if quant is not None and quant.axis is not None:  # one scale for each filter of a group
            quant = replace(quant, scale=quant.scale * group)
    if dense or dilations != (1, 1):
        node.replace_input_with(1, add_constant(graph, f"{w.name}/spread", weight, quant))
    return dense


@functools.lru_cache(maxsize=1024)
def _explicit_attributes(
    attributes: tuple[tuple[str, Any], ...], size: Ints, kernel: Ints
) -> tuple[Mapping[str, Any], Mapping[str, ir.Attr]]:
    """All attributes of a Conv, auto_pad resolved, as values and as ONNX attributes.

    attributes: names and values of the explicit ones. size: input rows and columns. Cached, since
    networks repeat few combinations often.
    """
    known, ones = dict(attributes), (1,) * len(size)
    strides, dilations = (tuple(known.get(name, ones)) for name in ("strides", "dilations"))
    pads = explicit_pads(known, size, kernel, strides, dilations)
    explicit = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "group": known.get("group", 1),
    }
    return explicit, attributes_of(explicit)


def _widen(graph: ir.Graph, node: ir.Node, attributes: Mapping[str, Any]) -> None:
    """Replace a 1-D Conv on [1, c, l] by a 2-D one on [1, c, 1, l] between two Reshapes."""
    x, w, y = node.inputs[0], node.inputs[1], node.outputs[0]
    source, target = static_shape(x), static_shape(y)
    weight = constant(w)
    assert x is not None
    assert w is not None
    assert weight is not None
    assert source is not None
    assert target is not None
    wide = (source[0], source[1], 1, source[2])
    shape = _shape(graph, f"{node.name}/wide_shape", wide)
    data = insert_before(node, "Reshape", [x, shape], name=f"{node.name}/wide", shape=wide)
    quant = quant_of(x)
    if quant is not None:
        data.meta[META_KEY] = quant
    filters = add_constant(graph, f"{w.name}/wide", weight[:, :, None, :], quant_of(w))
    explicit = {
        name: (1, *values) if isinstance(values, tuple) else values
        for name, values in attributes.items()
        if name != "pads"
    }
    begin, end = attributes["pads"]
    explicit["pads"] = (0, begin, 0, end)
    result = insert_before(
        node,
        "Conv",
        [data, filters, *node.inputs[2:]],
        explicit,
        name=f"{node.name}/conv",
        shape=(target[0], target[1], 1, target[2]),
        quant=quant_of(y),
    )
    rewrite(node, "Reshape", [result, _shape(graph, f"{node.name}/shape", target)])


def _shape(graph: ir.Graph, name: str, dims: tuple[int, ...]) -> ir.Value:
    return add_constant(graph, name, np.asarray(dims, np.int64))
