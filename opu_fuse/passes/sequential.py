"""Several passes as one: in a row, or in a row until nothing changes any more."""

import logging
from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir.passes import PassBase, PassResult

from opu_fuse.errors import InternalError
from opu_fuse.passes.base import Pass, from_library
from opu_fuse.passes.context import FIXED_POINT_CAP, LOWEST_LEVEL, PassContext, PassInfo
from opu_fuse.passes.registry import lookup

_log = logging.getLogger(__name__)


class Sequential(Pass):
    """Runs those of its passes that the current context enables, in order.

    A pass runs if it is not disabled, and is required by the context or its level is at most the
    context's. Immediately before it, each pass its `required` names is taken from the registry
    and run, whatever the context says about that one, and likewise what that one requires.
    The list may contain library passes. An error that leaves a pass gets a note that names the
    passes that ran before it here.
    """

    checked = False

    def __init__(
        self,
        passes: Sequence[PassBase],
        *,
        name: str = "sequential",
        opt_level: int = LOWEST_LEVEL,
        required: Sequence[str] = (),
        always: bool = False,
    ) -> None:
        info = PassInfo(name=name, opt_level=opt_level, required=tuple(required), always=always)
        self.passes = tuple(p if isinstance(p, Pass) else from_library(p) for p in passes)
        super().__init__(info, in_place=all(p.in_place for p in self.passes))

    def call(self, model: ir.Model) -> PassResult:
        model, changed_by = self.run_once(model)
        return PassResult(model, bool(changed_by))

    def run_once(
        self, model: ir.Model, enough: int | None = None
    ) -> tuple[ir.Model, dict[str, int]]:
        """The model after all passes, and the names of those that changed it, each with how many
        passes of the list had run then. enough: of the list, if none of them changes anything.
        """
        context = PassContext.current()
        changed_by: dict[str, int] = {}
        ran: list[str] = []
        for count, pass_ in enumerate(self.passes, 1):
            if not context.enabled(pass_.info):
                continue
            for step in _with_required(pass_, context):
                result = self._run(step, model, ran)
                model = result.model
                ran.append(step.info.name)
                if result.modified:
                    changed_by[step.info.name] = count
            if count == enough and not changed_by:
                break
        return model, changed_by

    def _run(self, step: Pass, model: ir.Model, ran: list[str]) -> PassResult:
        try:
            return step(model)
        except Exception as error:
            before = ", ".join(ran) or "none"
            error.add_note(f"in pass {step.info.name} of {self.info.name}; ran before it: {before}")
            raise


class FixedPoint(Sequential):
    """Repeats its passes until a round changes nothing. That round ends with the pass that changed
    the model last: those after it have seen the model already.

    cap: rounds after which that is an InternalError naming the passes that still change the model
    (default: config key passes.fixed_point_cap). The last, quiet round counts.
    """

    def __init__(
        self,
        passes: Sequence[PassBase],
        *,
        name: str = "fixed_point",
        cap: int | None = None,
        opt_level: int = LOWEST_LEVEL,
        required: Sequence[str] = (),
        always: bool = False,
    ) -> None:
        super().__init__(passes, name=name, opt_level=opt_level, required=required, always=always)
        if cap is not None and cap < 1:
            raise ValueError(f"a fixed point needs at least one round, got cap={cap}")
        self.cap = cap

    def call(self, model: ir.Model) -> PassResult:
        cap = self.cap or PassContext.current().get_config(FIXED_POINT_CAP)
        firing: dict[str, int] = {}
        for round_ in range(cap):
            model, firing = self.run_once(model, max(firing.values(), default=None))
            if not firing:
                return PassResult(model, round_ > 0)
            _log.debug("%s: changed by %s", self.info.name, ", ".join(firing))
        raise InternalError(
            stage=f"pass {self.info.name}",
            what=f"{', '.join(firing)} still changes the model after {cap} rounds",
        )


def _with_required(pass_: Pass, context: PassContext) -> list[Pass]:
    """The pass after all that it requires, directly or not, each before the one that needs it."""
    order: list[Pass] = []
    todo: list[tuple[Pass, tuple[str, ...]]] = [(pass_, (pass_.info.name,))]
    while todo:
        step, chain = todo.pop()
        order.append(step)
        for name in step.info.required:
            if name in chain:
                raise InternalError(
                    stage="pass registry", what=f"{' requires '.join((*chain, name))}: a circle"
                )
            if name in context.disabled_pass:
                _log.warning("pass %s is disabled, but %s requires it: it runs", name, chain[-1])
            todo.append((lookup(name), (*chain, name)))
    return order[::-1]  # `order` has dependents before their requirements
