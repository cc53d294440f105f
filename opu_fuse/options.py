"""Options of the compiler: names, types, defaults and what they mean, for Python and the command.

A function of the API takes the fields of one of these classes as keyword arguments
(`keywords_of`), so that an option is written once.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar, cast

from opu_fuse.array_layout import ArrayLayout, LayoutLike
from opu_fuse.choices import option, require_choice, require_names
from opu_fuse.errors import UserError
from opu_fuse.frontend.choice_names import Method, MethodLike, Scales, ScalesLike
from opu_fuse.frontend.importing.load import ModelLike
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY, StrategyLike, StrategyName
from opu_fuse.host.form_names import HostForm, HostFormLike
from opu_fuse.hw.spec.load_spec import HwLike
from opu_fuse.passes import EVERY, PassOptions
from opu_fuse.schedule.choice_names import FusedStackChoice, FusedStackLike

if TYPE_CHECKING:
    from opu_fuse.frontend.calibration import Calibration  # quantised models need none

STAGES = {
    "model": "quantise",
    "dfg": "build the data-flow graph",
    "partition": "fuse and tile",
    "plan": "schedule",
    "program": "generate the program",
}
"""The stages of a compilation in order: name of the result -> what the stage does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Options of reading, quantising and grouping a model.

    strategy: how operators are grouped.
    calibration: sample inputs. Arrays by input name, or for a model with one input an array or a
    list of arrays; one sample or many along the first axis; or a .npz or .npy file, a folder of
    them, or None: noise.
    layout: axes of four-dimensional calibration arrays: auto, nchw or nhwc.
    scales: pow2, pow2-asymmetric or free.
    calibration_method, bias_correction, equalisation: how they are chosen (`frontend/prepare.py`).
    keep_float: operators left to the host.
    budget: how many times the usual size the network may have.
    shapes, dims: sizes of dynamic dimensions, by input and by their names
    (`frontend/importing/dynamic_dims.py`).
    """

    strategy: StrategyLike = DEFAULT_STRATEGY
    calibration: "Calibration" = None
    layout: LayoutLike = ArrayLayout.AUTO
    scales: ScalesLike = Scales.POW2
    calibration_method: MethodLike = Method.MSE
    bias_correction: bool = False
    equalisation: bool = False
    keep_float: tuple[str, ...] = ()
    budget: float = 1.0
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """UserError for a name that is none: here, not after minutes of quantising."""
        require_choice("strategy", self.strategy, StrategyName)
        require_choice("layout", self.layout, ArrayLayout)
        require_choice("scales", self.scales, Scales)
        require_choice("calibration method", self.calibration_method, Method)
        require_names("keep_float", self.keep_float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ModelOptions):
    """Options of a compilation, besides those of the model.

    reuse_memory: dead feature maps give their memory to later ones, and maps that are resident get
    none. False stores every tensor for comparing.
    batch: images that a program runs together.
    cascades: fused stacks, which Vela calls cascades: auto, always or never.
    host: how the program holds its host segments: for onnxruntime alone, or for libopu in c, too.
    passes: levels, names and instruments.
    print_after: stages (or EVERY) whose results are written as text.
    """

    reuse_memory: bool = True
    batch: int = 1
    cascades: FusedStackLike = FusedStackChoice.AUTO
    host: HostFormLike = HostForm.ONNXRUNTIME
    passes: PassOptions = field(default_factory=PassOptions)
    print_after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """As of `ModelOptions`, and UserError for a stage that is none."""
        ModelOptions.__post_init__(self)
        require_choice("cascades", self.cascades, FusedStackChoice)
        require_choice("host", self.host, HostForm)
        require_names("print_after", self.print_after)
        for name in self.print_after:
            if name not in (*STAGES, EVERY):
                raise UserError(
                    option("print_after", name),
                    f"there is no stage {name!r}",
                    f"stages are {', '.join(STAGES)}, or {EVERY} for each",
                )


P = ParamSpec("P")
Record = TypeVar("Record")
Result_co = TypeVar("Result_co", covariant=True)


class TakesKeywords(Protocol[P, Result_co]):
    """A function of a model and a machine, whose other arguments are P."""

    def __call__(
        self, model: ModelLike, hw: HwLike, *args: P.args, **kwargs: P.kwargs
    ) -> Result_co:
        """As documented by the function itself."""
        ...


def keywords_of(
    options: Callable[P, Record],
) -> Callable[[Callable[[ModelLike, HwLike, Record], Result_co]], TakesKeywords[P, Result_co]]:
    """Make a function that takes an options record one that takes its fields as keywords.

    Type checkers see the fields with their types; so does `inspect.signature`, which notebooks and
    documentation ask. The docstrings of the record and its bases follow that of the function.
    """

    def decorate(
        function: Callable[[ModelLike, HwLike, Record], Result_co],
    ) -> TakesKeywords[P, Result_co]:
        @functools.wraps(function)
        def call(model: ModelLike, hw: HwLike, *args: P.args, **kwargs: P.kwargs) -> Result_co:
            return function(model, hw, options(*args, **kwargs))

        describe(call, function, options, 2)
        return cast("TakesKeywords[P, Result_co]", call)

    return decorate


def describe(
    call: Callable[..., object], function: Callable[..., object], options: object, own: int
) -> None:
    """Give `call` the signature and docstring of a function whose last argument is a record of
    options, with the fields of the record in its place. own: arguments before it.
    """
    record = cast("type", options)
    plain = inspect.signature(function)
    before = [*plain.parameters.values()][:own]
    fields = inspect.signature(record).parameters.values()
    call.__signature__ = plain.replace(parameters=[*before, *fields])  # type: ignore[attr-defined]  # as `inspect` allows
    records = [c for c in reversed(inspect.getmro(record)) if is_dataclass(c)]
    call.__doc__ = "\n\n".join(inspect.cleandoc(c.__doc__ or "") for c in (function, *records))
