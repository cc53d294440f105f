"""Cross-layer equalisation: equalise the channel ranges of a map between two layers.

A map has one scale. If its channel ranges differ, as between the depthwise layers of small
networks, channels with a small range use few of the 256 steps. Dividing channel c by a factor in
the layer that computes it and multiplying it in the layers that read it preserves the results. The
factors are powers of two, so float results are bit-exact, too. A channel's range may be much larger
before slopes and averages than after them; a factor respects the larger share of both.

Depthwise readers have a weight scale per channel, so all channels get the largest range. Other
readers hold the factors in the weights of one output channel. There the factor is the square root
of channel range over weight column range, and only depthwise writers are equalised, whose channels
differ. Between two dense layers it loses more than it gains (docs/decisions.md).
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from msgspec import Struct

from opu_fuse.choices import option
from opu_fuse.errors import ModelError
from opu_fuse.frontend.calibration import Calibration, samples
from opu_fuse.frontend.editing import constant, filter_axis, is_standard, operand, static_shape
from opu_fuse.frontend.quantization.activation_ranges import Range, measure
from opu_fuse.frontend.quantization.rotate import rotate
from opu_fuse.model.operator_sets import HOMOGENEOUS, LAYERS, OWN_SCALE, ROWS_FIRST
from opu_fuse.quant import FLOAT_KEY

FURTHEST = 12
"""Largest exponent of a factor, so that nearly dead channels are not amplified further."""
_TINY = 1e-30
"""Avoids a division by zero where a whole map is zero."""


class _Link(Struct, frozen=True, kw_only=True):
    """A layer and the layers that read its result.

    readers: all of them, possibly through operators that commute with factors.
    values: those between with their own scale, channels along axis 1.
    """

    writer: ir.Node
    values: tuple[ir.Value, ...]
    readers: tuple[ir.Node, ...]


def equalise(model: ir.Model, calibration: Calibration) -> None:
    """Change weights and biases of a canonical float model (mutates it).

    Channel ranges are measured on the calibration data. Raises ModelError if there are none or if
    they are unusable.
    """
    if calibration is None:
        raise ModelError(
            "calibration",
            "equalisation measures the channels of maps",
            f"pass {option('calibration')}",
        )
    calibration_samples, _ = samples(model, calibration)
    rotate(model, calibration_samples)
    links = list(_links(model.graph))
    if not links:
        return
    values = [value for link in links for value in link.values]
    ranges = measure(model, values, calibration_samples, by_channel=True)
    for link in links:
        _scale(link, _factors(link, _sizes(link, ranges)))


def _links(graph: ir.Graph) -> Iterator[_Link]:
    for node in graph:
        bias = operand(node, 2)
        if not is_standard(node, *LAYERS) or not _is_own(node.inputs[1]):
            continue
        if node.op_type == "ConvTranspose" and node.attributes.get_int("group", 1) != 1:
            continue
        if bias is not None and not _is_own(bias):
            continue
        ends = _ends(node.outputs[0])
        readers = tuple(reader for _, reader in ends if is_standard(reader, *ROWS_FIRST))
        if readers and (_is_depthwise(node) or all(map(_is_depthwise, readers))):
            values = dict.fromkeys(value for value, _ in ends)
            yield _Link(writer=node, values=tuple(values), readers=readers)


def _ends(value: ir.Value) -> Sequence[tuple[ir.Value, ir.Node]]:
    """The layers that a value reaches, and the nodes on the way with their own scale.

    Each comes with the value that it reads. Empty if any other operator reads one of the values.
    """
    if value.is_graph_output() or static_shape(value) is None or not value.uses():
        return ()
    ends: list[tuple[ir.Value, ir.Node]] = []
    for use in value.uses():
        node, reached = use.node, ()
        if FLOAT_KEY in node.metadata_props or use.idx != 0:
            return ()
        if is_standard(node, *HOMOGENEOUS) and len(node.outputs) == 1:
            reached = _ends(node.outputs[0])
        elif is_standard(node, *ROWS_FIRST) and _is_own(node.inputs[1]):
            reached = ((value, node),)
        if not reached:
            return ()
        ends.extend(reached)
        if is_standard(node, *OWN_SCALE):
            ends.append((value, node))
    return ends


def _sizes(link: _Link, ranges: Mapping[str, Range]) -> np.ndarray:
    """[channels]: largest magnitude of each channel relative to its map's, maximum over maps."""
    relative = []
    for value in link.values:
        largest = ranges[value.name or ""].largest_of
        assert largest is not None
        relative.append(largest.astype(np.float64) / max(float(largest.max()), _TINY))
    return np.max(relative, axis=0)


def _is_own(value: ir.Value | None) -> bool:
    """Whether a value is a constant with one reader."""
    return value is not None and constant(value) is not None and len(value.uses()) == 1


def _factors(link: _Link, sizes: np.ndarray) -> np.ndarray:
    """[channels]: powers of two by which the writer's channels are divided."""
    columns = np.max([_columns(r, len(sizes)) for r in link.readers], axis=0)
    nonzero = (sizes > 0.0) & (columns > 0.0)
    if not nonzero.any():
        return np.ones_like(sizes)
    factors = np.ones_like(sizes)
    if all(_is_depthwise(r) for r in link.readers):
        factors[nonzero] = sizes[nonzero]
    else:
        factors[nonzero] = np.sqrt(sizes[nonzero] / columns[nonzero])
        factors[nonzero] /= np.exp2(np.median(np.log2(factors[nonzero])))
    return np.exp2(np.clip(np.rint(np.log2(factors)), -FURTHEST, FURTHEST))


def _is_depthwise(node: ir.Node) -> bool:
    weight = constant(node.inputs[1])
    grouped = node.op_type == "Conv" and node.attributes.get_int("group", 1) > 1
    return grouped and weight is not None and weight.shape[1] == 1


def _by_input(node: ir.Node, channels: int) -> np.ndarray:
    """[groups, outputs of a group, inputs of a group, taps] of a reader's weight."""
    weight = constant(node.inputs[1])
    assert weight is not None
    groups = channels // weight.shape[1]
    return weight.reshape(groups, len(weight) // groups, weight.shape[1], -1)


def _columns(node: ir.Node, channels: int) -> np.ndarray:
    """[channels]: the largest weight by which a reader multiplies each."""
    return np.abs(_by_input(node, channels)).max(axis=(1, 3)).reshape(-1).astype(np.float64)


def _scale(link: _Link, factors: np.ndarray) -> None:
    small = factors.astype(np.float32)
    writer = link.writer
    for value, axis in ((writer.inputs[1], filter_axis(writer)), (operand(writer, 2), 0)):
        data = constant(value)
        if value is not None and data is not None:
            shape = [1] * data.ndim
            shape[axis] = -1
            _set_data(value, data / small.reshape(shape))
    for reader in link.readers:
        rows = _by_input(reader, len(small))
        weight = reader.inputs[1]
        assert weight is not None
        scaled = rows * small.reshape(len(rows), 1, -1, 1)
        _set_data(weight, scaled.reshape(tuple(weight.const_value.shape)))  # type: ignore[union-attr]  # a constant, as `_links` saw


def _set_data(value: ir.Value, data: np.ndarray) -> None:
    value.const_value = ir.tensor(np.ascontiguousarray(data, np.float32), name=value.name)
