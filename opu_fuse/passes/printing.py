"""The model as ONNX text, before or after passes."""

import logging
from collections import Counter
from collections.abc import Callable, Collection

import onnx
import onnx_ir as ir

from opu_fuse.passes.context import PassInfo, names_of

EVERY = "all"
"""Name of all passes where names of passes are listed."""

LARGEST_CONSTANT = 16
"""Elements up to which a constant is printed with its values."""

Writer = Callable[[str], object]
"""Takes whole texts without final newline, like a console's print."""

_log = logging.getLogger(__name__)


class PrintIR:
    """Instrument: writes the model before and after the passes of these names (EVERY: all).

    Each text begins with a comment naming the pass, and which run of it this is. A name that no
    pass had while the context was live is warned about when it is left.
    """

    def __init__(
        self, write: Writer, *, before: Collection[str] = (), after: Collection[str] = ()
    ) -> None:
        self._write = write
        self._before = names_of(before, "before")
        self._after = names_of(after, "after")
        self._runs: Counter[str] = Counter()

    def enter_pass_ctx(self) -> None:
        self._runs.clear()

    def exit_pass_ctx(self) -> None:
        for name in dict.fromkeys([*self._before, *self._after]):
            if name not in self._runs and name != EVERY:
                _log.warning("pass %s did not run, so there is no IR of it to print", name)

    def run_before_pass(self, model: ir.Model, info: PassInfo) -> None:
        self._runs[info.name] += 1
        self._print(model, info, "before", self._before)

    def run_after_pass(self, model: ir.Model, info: PassInfo) -> None:
        self._print(model, info, "after", self._after)

    def _print(self, model: ir.Model, info: PassInfo, when: str, names: tuple[str, ...]) -> None:
        if info.name not in names and EVERY not in names:
            return
        run = self._runs[info.name]
        again = f" (run {run})" if run > 1 else ""
        self._write(f"# IR {when} {info.name}{again}\n{model_text(model)}")


def model_text(model: ir.Model) -> str:
    """ONNX text of a model, the same for the same model; `onnx.parser` reads it.

    Constants of more than LARGEST_CONSTANT elements appear with type and shape only.
    """
    shown = model.clone()
    constants = shown.graph.initializers
    elided = [v for v in constants.values() if _elements(v) > LARGEST_CONSTANT]
    for value in elided:
        del constants[str(value.name)]
    proto = ir.to_proto(shown)
    # The printer would list a constant with values a second time, as a value with a type.
    others = [info for info in proto.graph.value_info if info.name not in constants]
    del proto.graph.value_info[:]
    proto.graph.value_info.extend([*others, *(ir.to_proto(value) for value in elided)])
    return onnx.printer.to_text(proto).rstrip("\n")


def _elements(value: ir.Value) -> int:
    return 0 if value.const_value is None else value.const_value.size
