"""A pass of `onnx_ir.passes` as one of ours, so that contexts and instruments see it."""

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes import PassBase, PassResult

from opu_fuse.passes.base import ModulePass
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.fingerprint import measured_change
from opu_fuse.passes.info import LOWEST_LEVEL, PassInfo


def from_library(
    library_pass: PassBase,
    *,
    name: str | None = None,
    opt_level: int = LOWEST_LEVEL,
    required: Sequence[str] = (),
    measure: bool = False,
) -> ModulePass:
    """Wrap a library pass; its own `requires` and `ensures` stay in force.

    name: default is the class's name. measure: compare the model before and after instead of
    trusting what the pass says about having changed it; for passes that do not count every change.
    """
    info = PassInfo(
        name=name or type(library_pass).__name__, opt_level=opt_level, required=tuple(required)
    )

    def transform(model: ir.Model, _: PassContext) -> PassResult:
        if not measure:
            return library_pass(model)
        changed_model, changed = measured_change(model, lambda: library_pass(model).model)
        return PassResult(changed_model, changed)

    return ModulePass(info, transform, in_place=library_pass.in_place)
