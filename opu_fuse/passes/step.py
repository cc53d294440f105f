"""Steps that compiling cannot do without, seen as passes by instruments and on the command line."""

from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes import PassResult

from opu_fuse.passes.base import Pass
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.info import PassInfo

RunStep = Callable[[ir.Model], ir.Model | None]
"""Changes a model in place, or returns another one that stands in its place."""


class Step(Pass):
    """Changes many things at once, so it counts as a change whatever it did. It always runs."""

    def __init__(self, name: str, run: RunStep) -> None:
        super().__init__(PassInfo(name=name, always=True), in_place=False)
        self._run = run

    @property
    def changes_input(self) -> bool:
        """The model given may be used up."""
        return True

    def apply(self, model: ir.Model, context: PassContext) -> PassResult:  # noqa: ARG002  as every pass
        """Without the checks of a pass: there is no word to check."""
        return self.call(model)

    def call(self, model: ir.Model) -> PassResult:
        return PassResult(self._run(model) or model, modified=True)
