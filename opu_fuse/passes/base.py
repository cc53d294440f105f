"""Passes: a module pass sees the model, a function pass one function of it at a time.

Every pass is also an `onnx_ir.passes.PassBase`, so that library drivers accept it; `from_library`
is the other direction.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import onnx_ir as ir
from onnx_ir.passes import PassBase, PassResult

from opu_fuse.errors import InternalError
from opu_fuse.passes.context import CHECK_WORD, LOWEST_LEVEL, PassContext, PassInfo
from opu_fuse.passes.fingerprint import fingerprint

SKIP_KEY = "opu_fuse.skip_optimization"
"""Function passes leave a function (or main graph) alone that has this key in metadata_props."""

ModuleOutcome = PassResult | tuple[ir.Model, bool] | bool
"""What a module pass returns: (model, changed), or changed alone when it mutates the model."""

FunctionOutcome = tuple[ir.Function, bool] | bool
"""What a function pass returns: (function, changed), or changed alone when it mutated it."""

TransformModule = Callable[[ir.Model, PassContext], ModuleOutcome]
TransformFunction = Callable[[ir.Function, ir.Model, PassContext], FunctionOutcome]
RunStep = Callable[[ir.Model], ir.Model | None]
"""Mutates a model, or returns another one that replaces it."""


class Pass(PassBase):
    """Model -> (model, changed), run under the current `PassContext` and its instruments.

    A call outside a `Sequential` runs whatever the context's level says, and without the passes
    it requires: only a `Sequential` selects. in_place: the model returned is the argument;
    otherwise the argument is not changed and another one is returned. options: the instance
    of a pass that is a class, else None.
    """

    checked = True
    """Whether `requires`, `ensures` and the result are checked; passes inside have their own."""

    def __init__(self, info: PassInfo, *, in_place: bool = True) -> None:
        self.info = info
        self.options: object = None
        self._in_place = in_place

    @property
    def in_place(self) -> bool:
        return self._in_place

    @property
    def changes_input(self) -> bool:
        return self._in_place

    def __call__(self, model_or_result: ir.Model | PassResult, /) -> PassResult:
        """Run, unless an instrument says no (then: the same model, unchanged)."""
        argument = model_or_result
        model = argument.model if isinstance(argument, PassResult) else argument
        context, info = PassContext.current(), self.info
        try:
            if not context.should_run(model, info):
                return PassResult(model, False)
            context.before_pass(model, info)
            result = self._apply(model, context)
            context.notify("run_after_pass", result.model, info)
        except BaseException as error:
            context.notify_quietly("run_on_error", model, info, error)
            raise
        return result

    def _apply(self, model: ir.Model, context: PassContext) -> PassResult:
        if not self.checked:
            return self.call(model)
        if not context.get_config(CHECK_WORD):
            return super().__call__(model)
        before = fingerprint(model)
        result = super().__call__(model)
        _check_word(self, result, before, argument_after=fingerprint(model))
        return result

    @abstractmethod
    def call(self, model: ir.Model) -> PassResult:
        """The transformation itself, without instruments and checks."""

    def __str__(self) -> str:
        return self.info.name


class ModulePass(Pass):
    """May do anything to the model, add and remove functions included."""

    def __init__(
        self, info: PassInfo, transform: TransformModule, *, in_place: bool = True
    ) -> None:
        super().__init__(info, in_place=in_place)
        self._transform = transform

    def call(self, model: ir.Model) -> PassResult:
        outcome: object = self._transform(model, PassContext.current())
        match outcome:
            case bool() as changed:
                return PassResult(model, changed)
            case PassResult() as result:
                return result
            case (ir.Model() as returned, bool() as changed):
                return PassResult(returned, changed)
            case _:
                raise _no_outcome(self.info, outcome, "(model, changed), a PassResult or changed")


class FunctionPass(Pass):
    """Transforms the model's functions one at a time, the main graph (seen as one) last.

    Functions with SKIP_KEY in their metadata_props are passed over. The view of the main graph
    has its nodes and values; `function.graph is model.graph` identifies it.
    """

    def __init__(self, info: PassInfo, transform: TransformFunction) -> None:
        super().__init__(info)
        self._transform = transform

    def call(self, model: ir.Model) -> PassResult:
        changed = False
        for key, function in list(model.functions.items()):
            returned, touched = self._one(function, model)
            if returned.identifier() != key:
                raise InternalError(
                    stage=f"pass {self.info.name}",
                    what=f"a function pass returned {returned.identifier()} for function {key}",
                )
            model.functions[key] = returned
            changed |= touched
        main = ir.Function("", model.graph.name or "main", graph=model.graph, attributes=())
        returned, touched = self._one(main, model)
        model.graph = returned.graph
        return PassResult(model, changed or touched)

    def _one(self, function: ir.Function, model: ir.Model) -> tuple[ir.Function, bool]:
        if is_skipped(function):
            return function, False
        outcome: object = self._transform(function, model, PassContext.current())
        match outcome:
            case bool() as changed:
                return function, changed
            case (ir.Function() as returned, bool() as changed):
                return returned, changed
            case _:
                raise _no_outcome(self.info, outcome, "(function, changed) or changed")


class Step(Pass):
    """A step that compiling needs, seen as a pass by instruments and on the command line.

    It changes many things at once, so it counts as a change whatever it did. It always runs, and
    may consume the model that it gets.
    """

    checked = False

    def __init__(self, name: str, run: RunStep) -> None:
        super().__init__(PassInfo(name=name, always=True), in_place=False)
        self._run = run

    @property
    def changes_input(self) -> bool:
        return True

    def call(self, model: ir.Model) -> PassResult:
        return PassResult(self._run(model) or model, modified=True)


def from_library(
    library_pass: PassBase,
    *,
    name: str | None = None,
    opt_level: int = LOWEST_LEVEL,
    required: Sequence[str] = (),
) -> ModulePass:
    """A pass of `onnx_ir.passes` as one of ours, so that contexts and instruments see it.

    name: default is the class's name. The library pass's own `requires` and `ensures` remain
    in force.
    """
    info = PassInfo(
        name=name or type(library_pass).__name__, opt_level=opt_level, required=tuple(required)
    )
    return ModulePass(info, lambda model, _: library_pass(model), in_place=library_pass.in_place)


def is_skipped(function: ir.Function | ir.Graph) -> bool:
    """Whether optimisations pass over a function, or over the main graph."""
    return SKIP_KEY in function.metadata_props


def _no_outcome(info: PassInfo, got: object, wanted: str) -> InternalError:
    return InternalError(
        stage=f"pass {info.name}", what=f"returned {type(got).__name__}, not {wanted}"
    )


def _check_word(pass_: Pass, result: PassResult, before: str, *, argument_after: str) -> None:
    """Raises InternalError when the pass did not do what it says."""
    after = fingerprint(result.model)
    mistake = ""
    if not pass_.in_place and argument_after != before:
        mistake = "is not in place, but it changed its argument"
    elif result.modified and after == before:
        mistake = "says that it changed the model, which is as it was"
    elif not result.modified and after != before:
        mistake = "says that it changed nothing, but the model is another"
    if mistake:
        raise InternalError(stage=f"pass {pass_.info.name}", what=mistake)
