"""Small models as ONNX text, and passes and instruments that write down when they are called."""

from collections.abc import Sequence

import onnx_ir as ir

from opu_fuse.passes import ModulePass, Pass, PassContext, PassInfo

HEADER = '<ir_version: 8, opset_import: ["" : 17, "f" : 1]>\n'

CHAIN = """
g (float[1,4] x) => (float[1,4] y) {
  [first] a = Relu (x)
  [second] y = Neg (a)
}
"""


def model_of(text: str) -> ir.Model:
    """A model from the ONNX text of its graph, and of its functions after it."""
    return ir.from_onnx_text(HEADER + text)


def recording(
    name: str,
    log: list[str],
    *,
    opt_level: int = 0,
    required: Sequence[str] = (),
    changed: bool = False,
    error: Exception | None = None,
) -> Pass:
    """A pass that only writes its name into `log` (and raises `error`)."""

    def transform(model: ir.Model, _: PassContext) -> tuple[ir.Model, bool]:
        log.append(name)
        if error is not None:
            raise error
        return model, changed

    return ModulePass(PassInfo(name=name, opt_level=opt_level, required=tuple(required)), transform)


class Recorder:
    """An instrument with all hooks, each writing `<name> <hook> [<pass>]` into the log.

    broken: hook that raises RuntimeError("<name> <hook>") after writing. refuse: pass for which
    `should_run` says no.
    """

    def __init__(self, name: str, log: list[str], *, broken: str = "", refuse: str = "") -> None:
        self.name, self.log, self.broken, self.refuse = name, log, broken, refuse

    def _write(self, hook: str, info: PassInfo | None = None) -> None:
        self.log.append(f"{self.name} {hook}" + (f" {info.name}" if info else ""))
        if hook == self.broken:
            raise RuntimeError(f"{self.name} {hook}")

    def enter_pass_ctx(self) -> None:
        self._write("enter")

    def exit_pass_ctx(self) -> None:
        self._write("exit")

    def should_run(self, _: ir.Model, info: PassInfo) -> bool:
        self._write("should_run", info)
        return info.name != self.refuse

    def run_before_pass(self, _: ir.Model, info: PassInfo) -> None:
        self._write("before", info)

    def run_after_pass(self, _: ir.Model, info: PassInfo) -> None:
        self._write("after", info)
