"""InferType: types and shapes of all values, from those of the inputs."""

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.passes.context import PassContext
from opu_fuse.passes.fingerprint import measured_change
from opu_fuse.passes.registry import module_pass, register


@register
@module_pass(name="InferType", opt_level=0)
def infer_type(model: ir.Model, _: PassContext) -> tuple[ir.Model, bool]:
    """Shape inference of onnx; what it cannot infer (shapes that depend on data) is unknown."""
    return measured_change(model, lambda: _infer(model))


def _infer(model: ir.Model) -> ir.Model:
    constants = model.graph.initializers
    order = list(constants.values())
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    for value in order:  # the library takes large constants away and appends them again
        del constants[str(value.name)]
        constants.add(value)
    return model
