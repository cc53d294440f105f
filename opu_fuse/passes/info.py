"""What a pass is called, at which level it runs, and what has to run before it."""

from msgspec import Struct
from msgspec.structs import force_setattr

LOWEST_LEVEL = 0
HIGHEST_LEVEL = 3
DEFAULT_LEVEL = 2


class PassInfo(Struct, frozen=True, kw_only=True):
    """Metadata of a pass.

    name: unique among the registered passes. opt_level: lowest level of a `PassContext` at which a
    `Sequential` runs the pass (0: always). required: names of registered passes that a
    `Sequential` runs immediately before it. always: nothing leaves it out (`step.py`). Raises
    TypeError or ValueError for values of another kind.
    """

    name: str
    opt_level: int = LOWEST_LEVEL
    required: tuple[str, ...] = ()
    always: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"a pass needs a name, got {self.name!r}")
        if type(self.opt_level) is not int or self.opt_level < LOWEST_LEVEL:
            raise ValueError(f"opt_level of pass {self.name!r} is {self.opt_level!r}, not 0, 1, …")
        force_setattr(self, "required", names_of(self.required, "required"))


def names_of(names: object, what: str) -> tuple[str, ...]:
    """A collection of pass names as a tuple; TypeError for one bare string (a forgotten comma)."""
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        raise TypeError(f"{what} is a list of pass names, got {names!r}")
    found = tuple(names)  # pyright: ignore[reportArgumentType]  # it has __iter__
    wrong = [name for name in found if not isinstance(name, str)]
    if wrong:
        raise TypeError(f"{what} is a list of pass names, got {wrong[0]!r} in it")
    return found
