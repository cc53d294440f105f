"""Corrects the results of onnx's version converter, where the semantics of an operator changed.

tests/frontend/test_old_opsets.py compares these operators, and those of common networks, from opset
7 on. The reference is ONNX Runtime on the model before the conversion.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.validate import EVALUATION, IN_TRAINING, TARGET_OPSET
from opu_fuse.model.opsets import STANDARD

_RESIZE_CAME = 10
"""Opset, like the numbers below."""
_UPSAMPLE = np.ones(1, np.float32)
"""Scales for an Upsample (before opset 10), which never shrinks, whatever its actual scales."""
_RESIZE_GOT_MODES = 11
_HARDMAX_GOT_ONE_AXIS = 13
_SCAN_LOST_THE_BATCH = 9
_TRAINING_GOT_A_MODE = 14
"""Before, a BatchNormalization with more than one result was in training mode."""


def check_modes(proto: onnx.ModelProto, where: str, opset: int) -> None:
    """Raise ModelError for a node in training mode.

    onnx's converter would only report that its results are not supported.
    """
    for node in proto.graph.node if opset < _TRAINING_GOT_A_MODE else ():
        standard = node.op_type == "BatchNormalization" and node.domain in STANDARD
        if standard and any(node.output[1:]):
            later = f"with opset {TARGET_OPSET} or later if it normalises weights"
            raise ModelError(_location(node, where), IN_TRAINING, f"{EVALUATION}, or {later}")


def restore_semantics(proto: onnx.ModelProto, where: str, opset: int) -> None:
    """Restore the semantics that a converted model had in `opset` (mutates it).

    Raises ModelError for a node that has no equivalent.
    """
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.domain not in STANDARD:
            continue
        location = _location(node, where)
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
        elif node.op_type == "Resize" and opset < _RESIZE_GOT_MODES:
            scales = constants.get(node.input[2]) if len(node.input) > 2 else None
            known = None if scales is None else numpy_helper.to_array(scales)
            _set_resize_modes(node, _UPSAMPLE if opset < _RESIZE_CAME else known, location)
        elif node.op_type == "Scan" and opset < _SCAN_LOST_THE_BATCH:
            raise ModelError(
                location,
                f"in opset {opset} this control flow scans each image of a batch, in no later one",
                f"export it again with opset {_SCAN_LOST_THE_BATCH} or later",
            )
        elif node.op_type == "Hardmax" and opset < _HARDMAX_GOT_ONE_AXIS:
            raise ModelError(
                location,
                f"in opset {opset} it flattens its operand, which no later one does",
                f"export it again with opset {_HARDMAX_GOT_ONE_AXIS} or later",
            )


def _location(node: onnx.NodeProto, where: str) -> str:
    return f"{where}: node {node.name!r} ({node.op_type})"


def _set_resize_modes(node: onnx.NodeProto, scales: np.ndarray | None, location: str) -> None:
    """Set the coordinate and rounding modes of a Resize of opset 10 or an Upsample.

    They sample at x / scale. Mode nearest rounds down when it enlarges and up when it shrinks.
    scales: None if computed.
    """
    node.attribute.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    if any(a.name == "mode" and a.s != b"nearest" for a in node.attribute):
        return
    if scales is None or (np.any(scales > 1.0) and np.any(scales < 1.0)):
        raise ModelError(
            location,
            "whether it enlarges or shrinks decides how it rounds, but its scales are "
            + ("computed" if scales is None else "of both kinds"),
            f"export it again with opset {_RESIZE_GOT_MODES} or later",
        )
    rounding = "ceil" if np.any(scales < 1.0) else "floor"
    node.attribute.append(helper.make_attribute("nearest_mode", rounding))
