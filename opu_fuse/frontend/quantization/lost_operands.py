"""Operands of a Concat that its one scale makes zero."""

import logging
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from opu_fuse.frontend.editing import is_standard
from opu_fuse.frontend.quantization.activation_ranges import Range
from opu_fuse.quant import QuantParams

_log = logging.getLogger(__name__)


def lost_operands(
    nodes: Sequence[ir.Node], ranges: Mapping[str, Range], quants: Mapping[str, QuantParams]
) -> list[str]:
    """A warning for each Concat whose one scale makes an operand zero: the scores next to boxes in
    pixels.
    """
    found: list[str] = []
    for node in (node for node in nodes if is_standard(node, "Concat")):
        for name in (value.name or "" for value in node.inputs if value is not None):
            if name not in ranges or not 0 < ranges[name].largest < quants[name].per_tensor / 2:
                continue
            found.append(
                f"operand {name} of {node.name} becomes zero: its values are at most "
                f"{ranges[name].largest:.3g}, the scale of all operands is "
                f"{quants[name].per_tensor:.3g}; give --keep-float {node.name}"
            )
            _log.warning(found[-1])
    return found
