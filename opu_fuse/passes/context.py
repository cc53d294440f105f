"""The circumstances under which passes run: level, exceptions to it, configuration, instruments."""

import threading
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

import onnx_ir as ir

from opu_fuse.errors import InternalError
from opu_fuse.passes import config as configuration
from opu_fuse.passes import instrument as hooks
from opu_fuse.passes.config import ConfigValue
from opu_fuse.passes.info import DEFAULT_LEVEL, LOWEST_LEVEL, PassInfo, names_of


class PassContext:
    """A context manager; `PassContext.current()` is the innermost one entered by this thread.

    opt_level: passes of a higher level are left out by a `Sequential`. required_pass: run
    whatever their level. disabled_pass: left out whatever their level, even if required here.
    config: values of registered keys; see `config.py` for the errors. instruments: see
    `instrument.py`; called in this order.
    """

    def __init__(
        self,
        opt_level: int = DEFAULT_LEVEL,
        required_pass: Collection[str] = (),
        disabled_pass: Collection[str] = (),
        config: Mapping[str, object] | None = None,
        instruments: Sequence[object] | None = None,
    ) -> None:
        if type(opt_level) is not int or opt_level < LOWEST_LEVEL:
            raise ValueError(f"opt_level is 0, 1, 2, …, got {opt_level!r}")
        self.opt_level = opt_level
        self.required_pass = frozenset(names_of(required_pass, "required_pass"))
        self.disabled_pass = frozenset(names_of(disabled_pass, "disabled_pass"))
        self._config = configuration.checked(config or {})
        self._instruments = tuple(instruments or ())
        self._ran: set[str] = set()

    @staticmethod
    def current() -> "PassContext":
        """The innermost context of this thread, or the thread's default one."""
        return _here.entered[-1] if _here.entered else _here.default

    @property
    def instruments(self) -> tuple[object, ...]:
        """The instruments in their order; empty after one failed on entering or leaving."""
        return self._instruments

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """The values given to this context, without defaults."""
        return self._config.copy()

    def get_config(self, key: str) -> ConfigValue:
        """Value of a registered key here, its default where nothing was given."""
        return self._config[key] if key in self._config else configuration.default_of(key)

    def enabled(self, info: PassInfo) -> bool:
        """Whether a `Sequential` runs this pass here."""
        if info.always:
            return True
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or info.opt_level <= self.opt_level

    def required_in_vain(self) -> tuple[str, ...]:
        """Required passes that have not run here, sorted."""
        return tuple(sorted(self.required_pass - self._ran))

    def override_instruments(self, instruments: Sequence[object] | None) -> None:
        """Replace the instruments: leave the old ones, then enter the new ones.

        A context that this thread has not entered only gets a new list. Errors as on leaving and
        entering (`instrument.py`, Cases 2 and 1); either way the list is empty afterwards.
        """
        live = self is _here.default or any(context is self for context in _here.entered)
        if live:
            self._leave_instruments()
        self._instruments = tuple(instruments or ())
        if live:
            self._enter_instruments()

    def __enter__(self) -> Self:
        self._enter_instruments()
        _here.entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not _here.entered or _here.entered[-1] is not self:
            raise InternalError(
                stage="pass context", what="left, but it is not the innermost one of this thread"
            )
        _here.entered.pop()
        self._leave_instruments()

    # What `Pass.__call__` needs.

    def should_run(self, model: ir.Model, info: PassInfo) -> bool:
        """Ask the instruments, unless the pass always runs or is required here."""
        if info.always or info.name in self.required_pass:
            return True
        return hooks.all_agree(self._instruments, model, info)

    def before_pass(self, model: ir.Model, info: PassInfo) -> None:
        """Tell the instruments that a pass starts."""
        self._ran.add(info.name)
        hooks.before_all(self._instruments, model, info)

    def after_pass(self, model: ir.Model, info: PassInfo) -> None:
        """Tell the instruments that a pass is done."""
        hooks.after_all(self._instruments, model, info)

    def pass_failed(self, model: ir.Model, info: PassInfo, error: BaseException) -> None:
        """Tell the instruments that a pass, or one of them around it, raised."""
        hooks.error_all(self._instruments, model, info, error)

    def _enter_instruments(self) -> None:
        try:
            hooks.enter_all(self._instruments)
        except BaseException:
            self._instruments = ()
            raise

    def _leave_instruments(self) -> None:
        try:
            hooks.exit_all(self._instruments)
        except BaseException:
            self._instruments = ()
            raise


class _Here(threading.local):
    """Each thread's own stack, with its own default at the bottom."""

    def __init__(self) -> None:
        self.entered: list[PassContext] = []
        self.default = PassContext()


_here = _Here()
