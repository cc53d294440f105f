"""The circumstances under which passes run: level, exceptions to it, configuration, instruments."""

import difflib
import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, cast

import onnx_ir as ir
from msgspec import Struct
from msgspec.structs import force_setattr

from opu_fuse.errors import InternalError, UserError

LOWEST_LEVEL, DEFAULT_LEVEL, HIGHEST_LEVEL = 0, 2, 3

CHECK_WORD = "passes.check_word"
FIXED_POINT_CAP = "passes.fixed_point_cap"
CONFIG: Mapping[str, tuple[int, str]] = {
    CHECK_WORD: (
        False,
        "compare the model around every pass with what the pass says about having changed it",
    ),
    FIXED_POINT_CAP: (8, "rounds after which a fixed point that still changes is an error"),
}
"""Keys of a context's `config`: default, whose type (bool, int) a value has, and meaning."""

_PLACE = "pass configuration"
_log = logging.getLogger(__name__)


class PassInfo(Struct, frozen=True, kw_only=True):
    """Metadata of a pass.

    name: unique among the registered passes. opt_level: lowest level of a `PassContext` at which a
    `Sequential` runs the pass (0: always). required: names of registered passes that a
    `Sequential` runs immediately before it. always: nothing leaves it out (`Step`). Raises
    TypeError or ValueError for values of another kind.
    """

    name: str
    opt_level: int = LOWEST_LEVEL
    required: tuple[str, ...] = ()
    always: bool = False

    def __post_init__(self) -> None:
        # The type is checked too: passes of users need no type checker.
        if not isinstance(self.name, str) or not self.name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a pass needs a name, got {self.name!r}")
        if type(self.opt_level) is not int or self.opt_level < LOWEST_LEVEL:
            raise ValueError(f"opt_level of pass {self.name!r} is {self.opt_level!r}, not 0, 1, …")
        force_setattr(self, "required", names_of(self.required, "required"))


class PassContext:
    """A context manager; `PassContext.current()` is the innermost one entered by this thread.

    opt_level: passes of a higher level are left out by a `Sequential`. required_pass: run
    whatever their level. disabled_pass: left out whatever their level, even if required here.
    config: values of the keys of CONFIG; UserError for another key, with the nearest one, and for
    a value of another type. instruments: objects with some of the methods in docs/passes.md,
    called in this order. Errors of theirs:

    * Case 1, `enter_pass_ctx` raises: those that had entered are left, last one first, the list
      is cleared, the error propagates and the context is not entered.
    * Case 2, `exit_pass_ctx` raises: the list is cleared, the remaining ones are not called, the
      error propagates; the context is left all the same.
    * Case 3, `should_run`, `run_before_pass`, the pass or `run_after_pass` raises: nothing of what
      would have followed is called, except `run_on_error` of all; the error propagates, and
      leaving the context still leaves every instrument.
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
        self.config: Mapping[str, int] = {k: _value(k, v) for k, v in (config or {}).items()}
        self.instruments = tuple(instruments or ())
        self._ran: set[str] = set()

    @staticmethod
    def current() -> "PassContext":
        """The innermost context of this thread, or the thread's default one."""
        return _contexts.entered[-1] if _contexts.entered else _contexts.default

    def get_config(self, key: str) -> int:
        """Value of a key of CONFIG here, its default if it is not set."""
        return self.config.get(key, CONFIG[key][0])

    def enabled(self, info: PassInfo) -> bool:
        """Whether a `Sequential` runs this pass here."""
        if info.always or info.name in self.disabled_pass:
            return info.always
        return info.name in self.required_pass or info.opt_level <= self.opt_level

    def required_in_vain(self) -> tuple[str, ...]:
        """Required passes that have not run here, sorted."""
        return tuple(sorted(self.required_pass - self._ran))

    def override_instruments(self, instruments: Sequence[object] | None) -> None:
        """Replace the instruments: leave the old ones, then enter the new ones.

        A context that this thread has not entered only gets a new list. Errors as on leaving and
        entering (Cases 2 and 1); either way the list is empty afterwards.
        """
        live = self is _contexts.default or any(context is self for context in _contexts.entered)
        if live:
            self._leave_instruments()
        self.instruments = tuple(instruments or ())
        if live:
            self._enter_instruments()

    def __enter__(self) -> Self:
        self._enter_instruments()
        _contexts.entered.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not _contexts.entered or _contexts.entered[-1] is not self:
            raise InternalError(
                stage="pass context", what="left, but it is not the innermost one of this thread"
            )
        _contexts.entered.pop()
        self._leave_instruments()

    # What `Pass.__call__` needs.

    def should_run(self, model: ir.Model, info: PassInfo) -> bool:
        """Ask all instruments, unless the pass always runs or is required here.

        InternalError when an answer is no bool (a forgotten return).
        """
        if info.always or info.name in self.required_pass:
            return True
        answers: list[bool] = []
        for instrument in self.instruments:
            answer = _call(instrument, "should_run", model, info, default=True)
            if not isinstance(answer, bool):
                raise InternalError(
                    stage=f"pass {info.name}",
                    what=f"{type(instrument).__name__}.should_run returned {answer!r}, not a bool",
                )
            answers.append(answer)
        return all(answers)

    def before_pass(self, model: ir.Model, info: PassInfo) -> None:
        """Notify the instruments that a pass starts."""
        self._ran.add(info.name)
        self.notify("run_before_pass", model, info)

    def notify(self, hook: str, *arguments: object) -> None:
        """Call this method of all instruments that have it."""
        for instrument in self.instruments:
            _call(instrument, hook, *arguments)

    def notify_quietly(self, hook: str, *arguments: object) -> None:
        """As `notify` while another error is handled: what they raise is only logged."""
        for instrument in self.instruments:
            _call_quietly(instrument, hook, *arguments)

    def _enter_instruments(self) -> None:
        entered: list[object] = []
        try:
            for instrument in self.instruments:
                _call(instrument, "enter_pass_ctx")
                entered.append(instrument)
        except BaseException:  # Case 1
            self.instruments = ()
            for instrument in reversed(entered):
                _call_quietly(instrument, "exit_pass_ctx")
            raise

    def _leave_instruments(self) -> None:
        try:
            self.notify("exit_pass_ctx")
        except BaseException:  # Case 2
            self.instruments = ()
            raise


def names_of(names: object, what: str) -> tuple[str, ...]:
    """A collection of pass names as a tuple; TypeError for one bare string (a forgotten comma)."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{what} is a list of pass names, got {names!r}")
    entries = tuple(cast("Iterable[object]", names))
    for name in entries:
        if not isinstance(name, str):
            raise TypeError(f"{what} is a list of pass names, got {name!r} in it")
    return cast("tuple[str, ...]", entries)


def suggestion(name: str, known: Collection[str], what: str) -> str:
    """`did you mean ...?` where something is near, the list of everything known otherwise."""
    plain = {_plain(other): other for other in known}
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    if near:
        return f"did you mean {plain[near[0]]!r}?"
    return f"known {what}: {', '.join(sorted(known)) or 'none'}"


def _plain(name: str) -> str:
    """fold_constant, fold-constant and FoldConstant are near."""
    return name.replace("_", "").replace("-", "").casefold()


def _value(key: str, value: object) -> int:
    """The value set for a key, if it has the type of the key's default."""
    if key not in CONFIG:
        raise UserError(_PLACE, f"unknown key {key!r}", suggestion(key, CONFIG, "keys"))
    default, meaning = CONFIG[key]
    if not isinstance(value, int) or type(value) is not type(default):
        raise UserError(
            _PLACE,
            f"{key} takes {type(default).__name__}, got {value!r} ({type(value).__name__})",
            f"its default is {default!r} ({meaning})",
        )
    return value


def _call(instrument: object, hook: str, *arguments: object, default: object = None) -> object:
    method = getattr(instrument, hook, None)
    return default if method is None else method(*arguments)


def _call_quietly(instrument: object, hook: str, *arguments: object) -> None:
    try:
        _call(instrument, hook, *arguments)
    except Exception:  # noqa: BLE001  # the error being handled is the one to report
        name = f"{type(instrument).__name__}.{hook}"
        _log.exception("%s failed while another error was handled", name)


class _ThreadContexts(threading.local):
    """Each thread's own stack, with its own default at the bottom."""

    def __init__(self) -> None:
        self.entered: list[PassContext] = []
        self.default = PassContext()


_contexts = _ThreadContexts()
