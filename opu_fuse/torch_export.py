"""A module of PyTorch as a program."""

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol

from opu_fuse.errors import ModelError, UserError
from opu_fuse.extras import library
from opu_fuse.fuse.explain.coverage import warn_of_low_coverage
from opu_fuse.hw.spec.load_spec import HwLike, load_hw
from opu_fuse.options import Options, describe
from opu_fuse.pipeline import compile_model
from opu_fuse.process.sandbox import ForeignError, complaints
from opu_fuse.program import Program

if TYPE_CHECKING:
    import onnx_ir as ir


P = ParamSpec("P")


class TakesModule(Protocol[P]):
    """`from_torch` with the options of the compiler P as keyword arguments."""

    def __call__(
        self, module: Any, example_inputs: Any, hw: HwLike, *args: P.args, **kwargs: P.kwargs
    ) -> Program:
        """As documented by the function itself."""
        ...


def _with_keywords(options: Callable[P, Options]) -> TakesModule[P]:
    def from_torch(
        module: Any, example_inputs: Any, hw: HwLike, *args: P.args, **kwargs: P.kwargs
    ) -> Program:
        return _from_torch(module, example_inputs, hw, options(*args, **kwargs))

    describe(from_torch, _from_torch, options, 3)
    return from_torch


def _from_torch(module: Any, example_inputs: Any, hw: HwLike, options: Options) -> Program:
    """Module of PyTorch -> program, through `torch.export` and ONNX.

    module: a torch.nn.Module; it is exported as in `eval()`, and not changed. example_inputs: a
    tensor, or a tuple of the tensors that its `forward` takes; their shapes are the program's,
    their values are not used. The program's inputs have the names of `forward`'s parameters. hw:
    as of `compile`. Raises UserError with where, what and help for what cannot be exported or
    compiled, RunError without torch (extra `torch`).
    """
    hw = load_hw(hw)
    done = compile_model(exported(module, example_inputs), hw, options)
    warn_of_low_coverage(done.dfg, hw, done.partition)
    return Program(bundle=done.bundle, hw=hw)


from_torch = _with_keywords(Options)


def exported(module: Any, example_inputs: Any) -> "ir.Model":
    """The ONNX model of a module. Raises as `from_torch`."""
    torch = library("torch", where="from_torch", purpose="modules are exported by", extra="torch")
    where = f"module {type(module).__name__}"
    if not isinstance(module, torch.nn.Module):
        raise UserError(
            where, "is no torch.nn.Module", "give the module, not its weights or output"
        )
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else example_inputs
    if not _are_tensors(inputs, torch):
        what = "example_inputs are neither a tensor nor a tuple of tensors"
        raise UserError(
            where, what, "give what `forward` takes, such as torch.zeros(1, 3, 224, 224)"
        )
    try:
        with complaints(), _evaluating(module), warnings.catch_warnings(action="ignore"):
            program = torch.onnx.export(module, tuple(inputs), dynamo=True, verbose=False)
    except ForeignError as error:
        help_ = "torch.export.export(module, example_inputs) says where; give it as an ONNX file"
        raise ModelError(where, f"torch cannot export it ({_reason(error)})", help_) from None
    model: ir.Model = program.model
    model.graph.name = type(module).__name__
    return model


def _are_tensors(inputs: Any, torch: Any) -> bool:
    return isinstance(inputs, Sequence) and all(isinstance(x, torch.Tensor) for x in inputs)


@contextmanager
def _evaluating(module: Any) -> Generator[None]:
    """Dropout off, running statistics of normalisations; each module as it was in the end."""
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, was in training.items():
            part.training = was


def _reason(error: ForeignError) -> str:
    """What torch says first of why; its exporter wraps that in advice."""
    cause: BaseException = error
    while (before := cause.__cause__) is not None:
        cause = before
    text = str(cause).strip()
    return text.splitlines()[0].rstrip(".") if text else type(cause).__name__
