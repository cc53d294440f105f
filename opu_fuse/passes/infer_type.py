"""InferType: types and shapes of all values, from those of the inputs."""

from onnx_ir.passes import common

from opu_fuse.passes.library import from_library
from opu_fuse.passes.registry import register

# What onnx cannot infer (shapes that depend on data) stays unknown, so neither mode is strict.
infer_type = register(
    from_library(
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True),
        name="InferType",
        opt_level=0,
        measure=True,
    )
)
