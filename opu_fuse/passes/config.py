"""Configuration of passes: keys with a type and a default, registered before use.

Text that a mistyped key or value gets stands here once; `PassContext` calls `checked`.
"""

import difflib
from collections.abc import Mapping

from msgspec import Struct

from opu_fuse.errors import InternalError, UserError

ConfigValue = bool | int | float | str

_PLACE = "pass configuration"


class ConfigKey(Struct, frozen=True, kw_only=True):
    """A registered key. type: exact type of its values (an int is accepted where a float is
    meant, a bool never where a number is); meaning: one line for the manual.
    """

    name: str
    type: type
    default: ConfigValue
    meaning: str


_keys: dict[str, ConfigKey] = {}


def register_config(name: str, default: ConfigValue, meaning: str) -> ConfigKey:
    """Make a key known; its type is that of its default. InternalError if it is known already."""
    if name in _keys:
        raise InternalError(stage=_PLACE, what=f"key {name!r} is registered twice")
    key = ConfigKey(name=name, type=type(default), default=default, meaning=meaning)
    _keys[name] = key
    return key


def known_keys() -> tuple[ConfigKey, ...]:
    """All registered keys, by name."""
    return tuple(_keys[name] for name in sorted(_keys))


def checked(config: Mapping[str, object]) -> dict[str, ConfigValue]:
    """The same mapping with every value of its key's type.

    Raises UserError for a key nobody registered (with the nearest one) and for a value of another
    type.
    """
    return {name: _value(name, value) for name, value in config.items()}


def default_of(name: str) -> ConfigValue:
    """Default of a registered key; InternalError for another (our own code asks)."""
    if name not in _keys:
        raise InternalError(stage=_PLACE, what=f"a pass asks for {name!r}, which is not registered")
    return _keys[name].default


def _value(name: str, value: object) -> ConfigValue:
    if name not in _keys:
        raise UserError(_PLACE, f"unknown key {name!r}", suggestion(name, _keys, "keys"))
    wanted = _keys[name].type
    if wanted is float and type(value) is int:
        return float(value)
    if not isinstance(value, bool | int | float | str) or type(value) is not wanted:
        raise UserError(
            _PLACE,
            f"{name} takes {wanted.__name__}, got {value!r} ({type(value).__name__})",
            f"its default is {_keys[name].default!r} ({_keys[name].meaning})",
        )
    return value


def suggestion(name: str, known: Mapping[str, object], what: str) -> str:
    """`did you mean ...?` where something is near, the list of everything known otherwise."""
    plain = {_plain(other): other for other in known}
    near = difflib.get_close_matches(_plain(name), plain, n=1)
    if near:
        return f"did you mean {plain[near[0]]!r}?"
    return f"known {what}: {', '.join(sorted(known)) or 'none'}"


def _plain(name: str) -> str:
    """fold_constant, fold-constant and FoldConstant are near."""
    return name.replace("_", "").replace("-", "").casefold()


CHECK_WORD = register_config(
    "passes.check_word",
    False,
    "compare the model around every pass with what the pass says about having changed it",
)
FIXED_POINT_CAP = register_config(
    "passes.fixed_point_cap", 8, "rounds after which a fixed point that still moves is an error"
)
