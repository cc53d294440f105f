"""Choices given from Python, which the command line would have checked: names among some."""

from collections.abc import Iterable

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
