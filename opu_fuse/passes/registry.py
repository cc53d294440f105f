"""Passes by name: what `required` lists and command-line options refer to."""

from typing import Protocol, TypeVar

from opu_fuse.errors import InternalError
from opu_fuse.passes.base import Pass
from opu_fuse.passes.config import suggestion
from opu_fuse.passes.decorators import PassClass
from opu_fuse.passes.info import PassInfo


class _Named(Protocol):
    @property
    def info(self) -> PassInfo: ...


Registrable = TypeVar("Registrable", bound=_Named)

_registered: dict[str, Pass | PassClass] = {}


def register(entry: Registrable) -> Registrable:
    """Make a pass known under its name; a decorated class is called without arguments when used.

    Works as a decorator above `@module_pass` or `@function_pass`. InternalError for a name that is
    taken.
    """
    name = entry.info.name
    if not isinstance(entry, Pass | PassClass):
        raise InternalError(stage="pass registry", what=f"{entry!r} is not a pass")
    if name in _registered:
        raise InternalError(stage="pass registry", what=f"pass {name!r} is registered twice")
    _registered[name] = entry
    return entry


def lookup(name: str) -> Pass:
    """The registered pass of that name, with default options. InternalError if there is none."""
    if name not in _registered:
        raise InternalError(
            stage="pass registry",
            what=f"no pass {name!r} is registered; {suggestion(name, _registered, 'passes')}",
        )
    entry = _registered[name]
    return entry if isinstance(entry, Pass) else entry()


def registered() -> tuple[PassInfo, ...]:
    """What is registered, by name."""
    return tuple(_registered[name].info for name in sorted(_registered))
