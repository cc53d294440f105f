"""How long ONNX Runtime may take for calibration samples, even on a slow and busy machine."""

import onnx_ir as ir

from opu_fuse.frontend.budget import effort


def calibration_seconds(model: ir.Model, count: int) -> float:
    """For `count` samples."""
    elements, products = effort(model)
    return 10.0 + count * (elements / 2e6 + products / 2e8)
