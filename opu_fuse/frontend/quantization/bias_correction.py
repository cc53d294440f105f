"""Bias correction: what rounding weights adds to the mean of a layer's results is taken off.

Rounded weights of an output channel are off by other amounts than zero on the whole, so its results
are off by the same sum at every place: the error of each weight times the mean of the channel it
reads, over the calibration samples. Borders, where padding takes the place of values, are counted
like any other place.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from opu_fuse.frontend.editing import add_constant, constant, is_standard, operand
from opu_fuse.frontend.quantization.activation_ranges import Range
from opu_fuse.frontend.weights import QUANTIZED, SCALE
from opu_fuse.model.operator_sets import ROWS_FIRST


def corrected(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """Those whose biases are corrected."""
    return [n for n in nodes if is_standard(n, *ROWS_FIRST)]


def give_biases(graph: ir.Graph, nodes: Iterable[ir.Node]) -> None:
    """A bias of zeros for each of these layers that has none, in place."""
    for node in corrected(nodes):
        weight = constant(node.inputs[1])
        if operand(node, 2) is None and weight is not None:
            zeros = add_constant(graph, f"{node.name}/bias", np.zeros(len(weight), np.float32))
            node.resize_inputs(3)
            node.replace_input_with(2, zeros)


def correct_biases(
    qdq: onnx.GraphProto, nodes: Iterable[ir.Node], ranges: Mapping[str, Range]
) -> None:
    """Change the int32 biases of a quantised graph in place. nodes: the float model's; ranges: of
    what they read, with the means of channels.
    """
    tensors = {t.name: t for t in qdq.initializer}
    for node in corrected(nodes):
        x, weight, bias = (v.name or "" for v in node.inputs[:3] if v is not None)
        means, real = ranges[x].means, constant(node.inputs[1])
        assert means is not None
        assert real is not None
        rounded = numpy_helper.to_array(tensors[weight + QUANTIZED]).astype(np.float64)
        scale = numpy_helper.to_array(tensors[weight + SCALE]).astype(np.float64)
        off = rounded * scale.reshape(-1, *[1] * (real.ndim - 1)) - real
        # [groups, outputs of a group, inputs of a group]
        sums = off.reshape(len(means) // real.shape[1], -1, real.shape[1], _taps(real)).sum(axis=3)
        added = np.einsum("goi,gi->go", sums, means.reshape(len(sums), -1)).reshape(-1)
        target = tensors[bias + QUANTIZED]
        unit = numpy_helper.to_array(tensors[bias + QUANTIZED + SCALE]).astype(np.float64)
        steps = numpy_helper.to_array(target) - np.rint(added / unit)
        target.CopyFrom(numpy_helper.from_array(steps.astype(np.int32), target.name))


def _taps(weight: np.ndarray) -> int:
    return int(np.prod(weight.shape[2:], dtype=np.int64))
