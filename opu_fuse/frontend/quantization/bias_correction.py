"""Bias correction: subtract the mean error that weight quantisation adds to a layer's results.

The quantisation errors of an output channel's weights do not cancel. They shift its results at
every pixel by the sum of each weight's error times the mean of its input channel over the
calibration samples. Borders are treated like any other pixel, although padding replaces values
in their windows.
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
    """The layers whose biases are corrected."""
    return [n for n in nodes if is_standard(n, *ROWS_FIRST)]


def give_biases(graph: ir.Graph, nodes: Iterable[ir.Node]) -> None:
    """Add a bias of zeros to each of these layers that has none."""
    for node in corrected(nodes):
        weight = constant(node.inputs[1])
        if operand(node, 2) is None and weight is not None:
            zeros = add_constant(graph, f"{node.name}/bias", np.zeros(len(weight), np.float32))
            node.resize_inputs(3)
            node.replace_input_with(2, zeros)


def correct_biases(
    qdq: onnx.GraphProto, nodes: Iterable[ir.Node], ranges: Mapping[str, Range]
) -> None:
    """Change the int32 biases of a quantised graph (mutates it).

    nodes: those of the float model. ranges: of their operands, with channel means.
    """
    tensors = {t.name: t for t in qdq.initializer}
    for node in corrected(nodes):
        x, weight, bias = (v.name or "" for v in node.inputs[:3] if v is not None)
        means, real = ranges[x].means, constant(node.inputs[1])
        assert means is not None
        assert real is not None
        integers = numpy_helper.to_array(tensors[weight + QUANTIZED]).astype(np.float64)
        scale = numpy_helper.to_array(tensors[weight + SCALE]).astype(np.float64)
        errors = integers * scale.reshape(-1, *[1] * (real.ndim - 1)) - real
        # [groups, outputs of a group, inputs of a group]
        sums = errors.reshape(len(means) // real.shape[1], -1, real.shape[1], _taps(real)).sum(
            axis=3
        )
        added = np.einsum("goi,gi->go", sums, means.reshape(len(sums), -1)).reshape(-1)
        target = tensors[bias + QUANTIZED]
        unit = numpy_helper.to_array(tensors[bias + QUANTIZED + SCALE]).astype(np.float64)
        steps = numpy_helper.to_array(target) - np.rint(added / unit)
        target.CopyFrom(numpy_helper.from_array(steps.astype(np.int32), target.name))


def _taps(weight: np.ndarray) -> int:
    return int(np.prod(weight.shape[2:], dtype=np.int64))
