"""Choices given from Python, which the command line would have checked, and what options are called
in messages.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar

from opu_fuse.errors import UserError


def require_choice(what: str, given: object, known: Iterable[str]) -> None:
    """UserError where something is none of the known names. what: is chosen, as `engine`."""
    names = [*known]
    if given not in names:
        raise UserError(
            f"{what} {given!r}", "there is no such choice", f"use one of {', '.join(names)}"
        )


def require_names(option: str, given: object) -> None:
    """UserError for a bare text where several are meant: each letter would be taken for a name."""
    if isinstance(given, str):
        raise UserError(
            f"{option}={given!r}", "is a text, not a tuple of names", f"write {option}=({given!r},)"
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
