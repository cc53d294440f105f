"""Passes: a module pass sees the model, a function pass one function of it at a time.

Every pass is also an `onnx_ir.passes.PassBase`, so that library drivers take it; `library.py` is
the other direction.
"""

from abc import abstractmethod
from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes import PassBase, PassResult

from opu_fuse.errors import InternalError
from opu_fuse.passes.config import CHECK_WORD
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.fingerprint import fingerprint
from opu_fuse.passes.info import PassInfo

SKIP_KEY = "opu_fuse.skip_optimization"
"""Function passes leave a function (or main graph) alone that has this key in metadata_props."""

ModuleOutcome = PassResult | tuple[ir.Model, bool] | bool
"""What a module pass returns: (model, changed), or changed alone when it works in place."""

FunctionOutcome = tuple[ir.Function, bool] | bool
"""What a function pass returns: (function, changed), or changed alone when it works in place."""

TransformModule = Callable[[ir.Model, PassContext], ModuleOutcome]
TransformFunction = Callable[[ir.Function, ir.Model, PassContext], FunctionOutcome]


class Pass(PassBase):
    """Model -> (model, changed), run under the current `PassContext` and its instruments.

    A call outside a `Sequential` runs whatever the context's level says, and without the passes
    it requires: only a `Sequential` selects. in_place: the model returned is the one given;
    otherwise the one given stays as it is and another one is returned. options: the instance
    behind a pass made from a class, else None.
    """

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
        given = model_or_result
        model = given.model if isinstance(given, PassResult) else given
        context = PassContext.current()
        try:
            if not context.should_run(model, self.info):
                return PassResult(model, False)
            context.before_pass(model, self.info)
            result = self.apply(model, context)
            context.after_pass(result.model, self.info)
        except BaseException as error:
            context.pass_failed(model, self.info, error)
            raise
        return result

    def apply(self, model: ir.Model, context: PassContext) -> PassResult:
        """`call` between `requires` and `ensures`; its word is checked where the context asks."""
        if not context.get_config(CHECK_WORD.name):
            return super().__call__(model)
        before = fingerprint(model)
        result = super().__call__(model)
        _check_word(self, result, before, given_after=fingerprint(model))
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
    has its nodes and values; `function.graph is model.graph` tells it apart.
    """

    def __init__(self, info: PassInfo, transform: TransformFunction) -> None:
        super().__init__(info, in_place=True)
        self._transform = transform

    def call(self, model: ir.Model) -> PassResult:
        context = PassContext.current()
        changed = False
        for key, function in list(model.functions.items()):
            returned, touched = self._one(function, model, context)
            if returned.identifier() != key:
                raise InternalError(
                    stage=f"pass {self.info.name}",
                    what=f"a function pass made {returned.identifier()} out of function {key}",
                )
            model.functions[key] = returned
            changed |= touched
        main = ir.Function("", model.graph.name or "main", graph=model.graph, attributes=())
        returned, touched = self._one(main, model, context)
        model.graph = returned.graph
        return PassResult(model, changed or touched)

    def _one(
        self, function: ir.Function, model: ir.Model, context: PassContext
    ) -> tuple[ir.Function, bool]:
        if is_skipped(function):
            return function, False
        outcome: object = self._transform(function, model, context)
        match outcome:
            case bool() as changed:
                return function, changed
            case (ir.Function() as returned, bool() as changed):
                return returned, changed
            case _:
                raise _no_outcome(self.info, outcome, "(function, changed) or changed")


def is_skipped(function: ir.Function | ir.Graph) -> bool:
    """Whether optimisations pass over a function, or over the main graph."""
    return SKIP_KEY in function.metadata_props


def _no_outcome(info: PassInfo, got: object, wanted: str) -> InternalError:
    return InternalError(
        stage=f"pass {info.name}", what=f"returned {type(got).__name__}, not {wanted}"
    )


def _check_word(pass_: Pass, result: PassResult, before: str, *, given_after: str) -> None:
    """Raises InternalError when the pass did not do what it says."""
    after = fingerprint(result.model)
    lie = ""
    if not pass_.in_place and given_after != before:
        lie = "is not in place, but it changed the model it was given"
    elif result.modified and after == before:
        lie = "says that it changed the model, which is as it was"
    elif not result.modified and after != before:
        lie = "says that it changed nothing, but the model is another"
    if lie:
        raise InternalError(stage=f"pass {pass_.info.name}", what=lie)
