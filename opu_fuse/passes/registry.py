"""From a function, or a class with options, to a pass; passes by name."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, overload

from opu_fuse.errors import InternalError
from opu_fuse.passes.base import FunctionPass, ModulePass, Pass, TransformFunction, TransformModule
from opu_fuse.passes.context import LOWEST_LEVEL, PassInfo, suggestion


class PassClass:
    """A decorated class: called with the class's arguments, it makes a pass.

    options: the class itself; the built pass holds its instance under the same name.
    """

    def __init__(self, info: PassInfo, options: type, make: Callable[[Any], Pass]) -> None:
        self.info = info
        self.options = options
        self._make = make
        self.__doc__ = options.__doc__

    def __call__(self, *arguments: Any, **options: Any) -> Pass:
        instance = self.options(*arguments, **options)
        built = self._make(instance)
        built.options = instance
        return built

    def __repr__(self) -> str:
        return f"<pass class {self.info.name}>"


class _ModuleDecorator(Protocol):
    @overload
    def __call__(self, target: type, /) -> PassClass: ...
    @overload
    def __call__(self, target: TransformModule, /) -> ModulePass: ...


class _FunctionDecorator(Protocol):
    @overload
    def __call__(self, target: type, /) -> PassClass: ...
    @overload
    def __call__(self, target: TransformFunction, /) -> FunctionPass: ...


@overload
def module_pass(target: type, /) -> PassClass: ...
@overload
def module_pass(target: TransformModule, /) -> ModulePass: ...
@overload
def module_pass(
    *,
    opt_level: int = LOWEST_LEVEL,
    name: str | None = None,
    required: Sequence[str] = (),
    in_place: bool = True,
) -> _ModuleDecorator: ...
def module_pass(target: Any = None, /, *, in_place: bool = True, **info: Any) -> Any:
    """Make a pass of `transform(model, context)`, or of a class with such a `transform_module`.

    name: default is the function's or class's name. opt_level, required: see PassInfo. in_place:
    see Pass. A class may be a dataclass: its fields are the pass's options. Does not register.
    """

    def build(info: PassInfo, transform: TransformModule) -> ModulePass:
        return ModulePass(info, transform, in_place=in_place)

    decorate = _decorator("transform_module", build, **info)
    return decorate if target is None else decorate(target)


@overload
def function_pass(target: type, /) -> PassClass: ...
@overload
def function_pass(target: TransformFunction, /) -> FunctionPass: ...
@overload
def function_pass(
    *, opt_level: int = LOWEST_LEVEL, name: str | None = None, required: Sequence[str] = ()
) -> _FunctionDecorator: ...
def function_pass(target: Any = None, /, **info: Any) -> Any:
    """Make a pass of `transform(function, model, context)`, or of a class with such a
    `transform_function`. Parameters as for `module_pass`; it always mutates the function.
    """
    decorate = _decorator("transform_function", FunctionPass, **info)
    return decorate if target is None else decorate(target)


def _decorator(
    method: str, build: Callable[[PassInfo, Any], Pass], *, name: str | None = None, **info: Any
) -> Callable[[Any], Pass | PassClass]:
    def decorate(target: Any) -> Pass | PassClass:
        pass_info = PassInfo(name=name or target.__name__, **info)
        if not isinstance(target, type):
            return build(pass_info, target)
        if not callable(getattr(target, method, None)):
            raise TypeError(f"class {target.__name__} has no method {method}")
        return PassClass(
            pass_info, target, lambda options: build(pass_info, getattr(options, method))
        )

    return decorate


Registrable = TypeVar("Registrable", bound=Pass | PassClass)

_registered: dict[str, Pass | PassClass] = {}


def register(entry: Registrable) -> Registrable:
    """Make a pass known under its name; a decorated class is called without arguments when used.

    Use as a decorator above `@module_pass` or `@function_pass`. InternalError for a name that is
    taken.
    """
    name = entry.info.name
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
    """Registered passes by name."""
    return tuple(_registered[name].info for name in sorted(_registered))
