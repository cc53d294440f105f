"""Whether each pass leaves a valid model behind."""

import onnx_ir as ir
from onnx_ir.passes.common import CheckerPass

from opu_fuse.errors import InternalError
from opu_fuse.passes.info import PassInfo
from opu_fuse.passes.instrument import PassInstrument
from opu_fuse.passes.well_formed import first_undefined


class VerifyIR(PassInstrument):
    """After each pass: every value is defined where it is read, and `onnx.checker` agrees.

    Raises InternalError that names the pass which broke the model and those that ran before it
    in this context. The model given to the first pass is checked too, so that no pass is blamed for
    it.
    """

    def __init__(self) -> None:
        self._ran: list[str] = []
        self._seen_valid = False

    def enter_pass_ctx(self) -> None:
        self._ran.clear()
        self._seen_valid = False

    def run_before_pass(self, model: ir.Model, info: PassInfo) -> None:
        if self._seen_valid:
            return
        _check(model, "passes", f"the model is invalid before {info.name}, the first pass")
        self._seen_valid = True

    def run_after_pass(self, model: ir.Model, info: PassInfo) -> None:
        before = f"passes that ran before: {', '.join(self._ran) or 'none'}"
        _check(model, f"pass {info.name}", f"it left an invalid model ({before})")
        self._ran.append(info.name)


def _check(model: ir.Model, stage: str, what: str) -> None:
    undefined = first_undefined(model)
    if undefined is not None:
        raise InternalError(stage=stage, what=f"{what}: {undefined}")
    try:
        CheckerPass()(model.clone())  # it puts constants into another order
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InternalError(stage=stage, what=f"{what}: {reason}") from error
