"""Rotate the residual streams of transformers, so that few channels no longer set their scale.

Some channels of a stream are a hundred times larger than the others (for a few tokens, in trained
BERTs and ViTs), and int8 rounds the others away. An orthogonal matrix Q that leaves the vector of
ones as it is commutes with the core of a layer normalisation: mean and variance of a pixel remain.
Multiplying a stream by Q spreads a large channel over all of them, and preserves the results:

1. Layers (Conv) that add to the stream have Q in their weights and biases.
2. A normalisation of the stream loses its scale and shift, which go with the inverse of Q into the
   1 x 1 convolutions that read its result.
3. Where other operators write or read a stream or a normalised result, a 1 x 1 convolution comes
   between. Streams whose sums have no outliers are left as they are: that costs cycles.

A stream is the operand of a normalisation, and what is added up to it. After a normalisation whose
result is added to the next stream (post-norm) a stream ends.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.frontend.calibration import Sample
from opu_fuse.frontend.canonical.norms import is_of_norm
from opu_fuse.frontend.editing import (
    add_constant,
    constant,
    insert_before,
    is_standard,
    operand,
    sole_reader,
    static_shape,
)
from opu_fuse.frontend.quantization.activation_ranges import Range, measure
from opu_fuse.model.operator_sets import NORMS
from opu_fuse.quant import FLOAT_KEY

OUTLIERS = 16.0
"""Least ratio of the largest value of a stream to its root mean square. A normal distribution has
about 5, and so have rotated streams."""
_TINY = 1e-30


class _Norm(Struct, frozen=True, kw_only=True):
    """A normalisation of the channels of a pixel: its operand and result have channels first."""

    node: ir.Node
    source: ir.Value
    result: ir.Value


class _Stream(Struct, frozen=True, kw_only=True):
    """Maps of one size that have the same rotation. norms: all normalisations that read them."""

    values: tuple[ir.Value, ...]
    norms: tuple[_Norm, ...]


def rotate(model: ir.Model, samples: Sequence[Sample]) -> None:
    """Rotate the streams that have outliers on the samples (mutates a canonical float model)."""
    streams = list(_streams(model.graph))
    if not streams:
        return
    ranges = measure(model, [value for s in streams for value in s.values], samples)
    rotated = [s for s in streams if any(_has_outliers(ranges[v.name or ""]) for v in s.values)]
    _rotate(model.graph, rotated)


def rotation(channels: int) -> np.ndarray:
    """Q: orthogonal, float64 [channels, channels], each row sums to 1, none of its elements is
    much larger than the others.

    It is circulant. Its eigenvalues are those of a chirp: all of magnitude 1, the first one 1.
    """
    frequencies = np.arange(channels // 2 + 1)
    phases = np.pi * np.square(frequencies) / channels
    if channels % 2 == 0:
        phases[-1] = np.pi * np.rint(phases[-1] / np.pi)  # a real number, as the first one
    column = np.fft.irfft(np.exp(1j * phases), channels)
    steps = np.arange(channels)
    return column[(steps[:, None] - steps) % channels]


def _has_outliers(r: Range) -> bool:
    mean_square = float(np.mean(np.square(r.samples, dtype=np.float64)))
    return r.largest > OUTLIERS * np.sqrt(mean_square) > _TINY


def _streams(graph: ir.Graph) -> Iterator[_Stream]:
    norms = list(_norms(graph))
    left = {norm.source: None for norm in norms}
    outputs = set(graph.outputs)
    while left:
        todo, values = [next(iter(left))], dict[ir.Value, None]()
        while todo:
            value = todo.pop()
            if value in values:
                continue
            values[value] = None
            left.pop(value, None)
            todo += [u.node.outputs[0] for u in value.uses() if u.node.outputs[0] in left]
            todo += [v for v in _summands(value) if v in left or _summands(v)]
        own = tuple(norm for norm in norms if norm.source in values)
        if outputs.isdisjoint([*values, *(norm.result for norm in own)]):
            yield _Stream(values=tuple(values), norms=own)


def _norms(graph: ir.Graph) -> Iterator[_Norm]:
    for node in graph:
        if not is_standard(node, *NORMS) or FLOAT_KEY in node.metadata_props:
            continue
        first, after = _before(node), sole_reader(node.outputs[0])
        if first is None or after is None or not (is_of_norm(first) and is_of_norm(after)):
            continue
        source, scale = first.inputs[0], constant(operand(node, 1))
        shift = constant(operand(node, 2))
        known = scale is not None and (operand(node, 2) is None or shift is not None)
        if source is not None and constant(source) is None and known:
            yield _Norm(node=node, source=source, result=after.outputs[0])


def _before(norm: ir.Node) -> ir.Node | None:
    """The producer of what a normalisation reads."""
    return None if norm.inputs[0] is None else norm.inputs[0].producer()


def _summands(value: ir.Value) -> tuple[ir.Value, ...]:
    """What an Add of two maps of its own size adds up to a value; none for others."""
    node, shape = value.producer(), static_shape(value)
    if node is None or not is_standard(node, "Add") or FLOAT_KEY in node.metadata_props:
        return ()
    inputs = tuple(v for v in node.inputs if v is not None and constant(v) is None)
    same = len(set(inputs)) == 2 and all(static_shape(v) == shape for v in inputs)
    return inputs if same and shape is not None and len(shape) == 4 else ()


def _rotate(graph: ir.Graph, streams: Sequence[_Stream]) -> None:
    values = dict.fromkeys(
        value if _summands(value) or _is_layer(value.producer()) else _after(value)  # Case 3
        for stream in streams
        for value in stream.values
    )
    norms = {norm.result: norm for stream in streams for norm in stream.norms}
    sums = {v.producer() for v in values if _summands(v)}
    turns = {_before(norm.node) for norm in norms.values()}
    writers = {p: None for v in values if (p := v.producer()) is not None and p not in sums}
    for node in list(graph):
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            is_added = node in sums and value not in values
            if value in norms or value in values:
                in_stream = value in values and (node in sums or node in turns)
                fits = in_stream or (index == 0 and _is_pixelwise(node))
            else:
                alone = _is_layer(value.producer()) and sole_reader(value) is node
                fits = not is_added or alone
            read = value if fits else _between(node, index, value)  # Case 3
            if is_added and (writer := read.producer()) is not None:
                writers[writer] = None
    for node in list(graph):
        x = node.inputs[0] if node.inputs else None
        if x in norms or (x in values and _is_pixelwise(node)):
            _undo(graph, node, *_scale_and_shift(x, norms.get(x)))  # Case 2
    for norm in norms.values():
        _clear(graph, norm.node)
    for node in writers:
        _apply(graph, node)  # Case 1


def _is_layer(node: ir.Node | None) -> bool:
    """Whether a node is a Conv with all channels in one group, which alone has its constants."""
    if node is None or not is_standard(node, "Conv") or FLOAT_KEY in node.metadata_props:
        return False
    known = [constant(v) is not None for v in node.inputs[1:] if v is not None]
    return all(known) and node.attributes.get_int("group", 1) == 1


def _is_pixelwise(node: ir.Node) -> bool:
    """Whether a node is a 1 x 1 convolution without padding, whose operand may be transformed."""
    weight = constant(operand(node, 1)) if _is_layer(node) else None
    pads = node.attributes.get_ints("pads", ())
    return weight is not None and weight.shape[2:] == (1, 1) and not any(pads or ())


def _after(value: ir.Value) -> ir.Value:
    """The result of a convolution with the unit matrix that all readers of a value read."""
    uses = list(value.uses())
    graph, readers = uses[0].node.graph, {use.node for use in uses}
    assert graph is not None
    first = next(node for node in graph if node in readers)  # uses are in any order
    copy = _unit(first, value, f"{value.name}/rotated")
    for use in uses:
        use.node.replace_input_with(use.idx, copy)
    return copy


def _between(node: ir.Node, index: int, value: ir.Value) -> ir.Value:
    """Let an operand of a node pass a convolution with the unit matrix, and return its result."""
    copy = _unit(node, value, f"{node.name}/operand{index}")
    node.replace_input_with(index, copy)
    return copy


def _unit(node: ir.Node, value: ir.Value, name: str) -> ir.Value:
    shape = static_shape(value)
    assert node.graph is not None
    assert shape is not None
    unit = np.eye(shape[1], dtype=np.float32)[:, :, None, None]
    weight = add_constant(node.graph, f"{name}/matrix", unit)
    return insert_before(node, "Conv", [value, weight], name=name, shape=shape)


def _scale_and_shift(value: ir.Value, norm: _Norm | None) -> tuple[np.ndarray, np.ndarray]:
    """float64 [channels] each, of the normalisation that computes a value: 1 and 0 for others."""
    channels = static_shape(value)[1]  # type: ignore[index]  # four dimensions
    if norm is None:
        return np.ones(channels), np.zeros(channels)
    scale, shift = (constant(operand(norm.node, i)) for i in (1, 2))
    both = (np.zeros(()) if data is None else data.reshape(-1) for data in (scale, shift))
    a, b = (np.broadcast_to(data.astype(np.float64), channels) for data in both)
    return a, b


def _undo(graph: ir.Graph, node: ir.Node, scale: np.ndarray, shift: np.ndarray) -> None:
    """Let a 1 x 1 convolution read rotated operands, without the scale and shift before."""
    weight, bias = constant(node.inputs[1]), constant(operand(node, 2))
    assert weight is not None
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    added = rows @ shift + (0.0 if bias is None else bias)
    _set(graph, node, ((rows * scale) @ rotation(len(scale)).T).reshape(weight.shape), added)


def _apply(graph: ir.Graph, node: ir.Node) -> None:
    """Let a convolution compute rotated results."""
    weight, bias = constant(node.inputs[1]), constant(operand(node, 2))
    assert weight is not None
    matrix = rotation(len(weight))
    rotated = matrix @ weight.reshape(len(weight), -1).astype(np.float64)
    added = None if bias is None else matrix @ bias.astype(np.float64)
    _set(graph, node, rotated.reshape(weight.shape), added)


def _set(graph: ir.Graph, node: ir.Node, weight: np.ndarray, bias: np.ndarray | None) -> None:
    names = ("weight", "bias")
    for index, (name, data) in enumerate(zip(names, (weight, bias), strict=True), 1):
        if data is not None:
            value = add_constant(graph, f"{node.name}/{name}/rotated", data.astype(np.float32))
            if index == len(node.inputs):
                node.resize_inputs(index + 1)
            node.replace_input_with(index, value)


def _clear(graph: ir.Graph, node: ir.Node) -> None:
    """A normalisation without scale and shift."""
    for index, fill in ((1, 1.0), (2, 0.0)):
        if (data := constant(operand(node, index))) is not None:
            plain = np.full(data.shape, fill, np.float32)
            node.replace_input_with(index, add_constant(graph, f"{node.name}/plain{index}", plain))
