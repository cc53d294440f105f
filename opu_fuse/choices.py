"""Checks of names that Python code passes; the command line checks its own."""

from collections.abc import Iterable

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
