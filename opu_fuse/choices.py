"""Checks of names that Python code passes; the command line checks its own. And what options are
called in messages.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar

from opu_fuse.errors import UserError


def require_choice(what: str, value: object, known: Iterable[str]) -> None:
    """Raise UserError unless `value` is a known name. what: the choice, as `engine`."""
    names = [*known]
    if value not in names:
        raise UserError(
            f"{what} {value!r}", "there is no such choice", f"use one of {', '.join(names)}"
        )


def require_names(option: str, value: object) -> None:
    """Raise UserError for a text instead of a tuple: each letter would be taken for a name."""
    if isinstance(value, str):
        raise UserError(
            f"{option}={value!r}", "is a text, not a tuple of names", f"write {option}=({value!r},)"
        )


_COMMAND_NAMES = {
    "shapes": "shape",
    "dims": "dim",
    "clock_mhz": "clock",
    "objectives": "objective",
}
"""Options that the command calls otherwise than Python."""
_in_command: ContextVar[bool] = ContextVar("in_command", default=False)


@contextmanager
def named_for_the_command() -> Generator[None]:
    """Inside, `option` writes options as the command line has them."""
    token = _in_command.set(True)
    try:
        yield
    finally:
        _in_command.reset(token)


def option(name: str, value: object = None, *, key: str = "") -> str:
    """An option as the caller writes it: `batch=4` in Python, `--batch 4` for the command.

    name: the argument's; value: None for the name alone; key: of the mappings `shapes` and `dims`.
    """
    if _in_command.get():
        flag = f"--{_COMMAND_NAMES.get(name, name).replace('_', '-')}"
        return flag if value is None else f"{flag} {key}={value}" if key else f"{flag} {value}"
    if value is None:
        return name
    if key:
        return f"{name}={{{key!r}: {f'({value})' if name == 'shapes' else value}}}"
    return f"{name}={value!r}"
