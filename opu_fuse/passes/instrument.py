"""What may look on while passes run. Any object with some of these methods is an instrument.

Order, for instruments (a, b): entering a context calls a, b; leaving it calls a, b. Around each
pass: `should_run` of a, b (all are asked, any "no" skips the pass; a required pass does not ask),
`run_before_pass` of a, b, the pass, `run_after_pass` of a, b.

Errors:
* Case 1, `enter_pass_ctx` raises: those that had entered are left, last one first, the context's
  list is cleared, the error propagates and the context is not entered.
* Case 2, `exit_pass_ctx` raises: the list is cleared, the remaining ones are not called, the error
  propagates; the context is left all the same.
* Case 3, `should_run`, `run_before_pass`, the pass or `run_after_pass` raises: nothing of what
  would have followed is called, except `run_on_error` of all; the error propagates, and leaving
  the context still leaves every instrument.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import onnx_ir as ir

from opu_fuse.errors import InternalError
from opu_fuse.passes.info import PassInfo

_log = logging.getLogger(__name__)


class PassInstrument:
    """An instrument that does nothing: base for those who like one. All methods are optional."""

    def enter_pass_ctx(self) -> None:
        """A context with this instrument is being entered."""

    def exit_pass_ctx(self) -> None:
        """The context is being left, normally or not."""

    def should_run(self, model: ir.Model, info: PassInfo) -> bool:  # noqa: ARG002  for others to override
        """False skips the pass."""
        return True

    def run_before_pass(self, model: ir.Model, info: PassInfo) -> None:
        """The pass is about to see this model."""

    def run_after_pass(self, model: ir.Model, info: PassInfo) -> None:
        """The pass has returned this model."""

    def run_on_error(self, model: ir.Model, info: PassInfo, error: BaseException) -> None:
        """The pass, or an instrument around it, raised. What is raised here is logged only."""


class Stream(Protocol):
    """Where text can be written to."""

    def write(self, text: str, /) -> object:
        """Write as it stands."""
        ...


Writer = Callable[[str], object] | Stream
"""Takes whole texts without final newline (a console's print), or a stream (which gets one)."""


def write_to(writer: Writer, text: str) -> None:
    """Hand one text to a callable, or to a stream with a final newline."""
    if callable(writer):
        writer(text)
    else:
        writer.write(text + "\n")


def enter_all(instruments: Sequence[object]) -> None:
    """Call `enter_pass_ctx` of all; Case 1 when one raises."""
    entered: list[object] = []
    try:
        for instrument in instruments:
            _call(instrument, "enter_pass_ctx")
            entered.append(instrument)
    except BaseException:
        for instrument in reversed(entered):
            _call_quietly(instrument, "exit_pass_ctx")
        raise


def exit_all(instruments: Sequence[object]) -> None:
    """Call `exit_pass_ctx` of all; Case 2 when one raises."""
    for instrument in instruments:
        _call(instrument, "exit_pass_ctx")


def all_agree(instruments: Sequence[object], model: ir.Model, info: PassInfo) -> bool:
    """Ask `should_run` of all. InternalError when an answer is no bool (a forgotten return)."""
    answers: list[bool] = []
    for instrument in instruments:
        answer = _call(instrument, "should_run", model, info, default=True)
        if not isinstance(answer, bool):
            raise InternalError(
                stage=f"pass {info.name}",
                what=f"{type(instrument).__name__}.should_run returned {answer!r}, not a bool",
            )
        answers.append(answer)
    return all(answers)


def before_all(instruments: Sequence[object], model: ir.Model, info: PassInfo) -> None:
    """Call `run_before_pass` of all."""
    for instrument in instruments:
        _call(instrument, "run_before_pass", model, info)


def after_all(instruments: Sequence[object], model: ir.Model, info: PassInfo) -> None:
    """Call `run_after_pass` of all."""
    for instrument in instruments:
        _call(instrument, "run_after_pass", model, info)


def error_all(
    instruments: Sequence[object], model: ir.Model, info: PassInfo, error: BaseException
) -> None:
    """Tell all that a pass failed (end of Case 3); never raises for their mistakes."""
    for instrument in instruments:
        _call_quietly(instrument, "run_on_error", model, info, error)


def _call(instrument: object, hook: str, *arguments: object, default: object = None) -> object:
    method = getattr(instrument, hook, None)
    return default if method is None else method(*arguments)


def _call_quietly(instrument: object, hook: str, *arguments: object) -> None:
    try:
        _call(instrument, hook, *arguments)
    except Exception:  # noqa: BLE001  # the error being handled is the one to report
        name = f"{type(instrument).__name__}.{hook}"
        _log.exception("%s failed while another error was handled", name)
