"""The steps of the front end around the canonical form, in the order in which they run."""

from collections.abc import Callable
from typing import TypeVar

import onnx_ir as ir

from opu_fuse.frontend.importing.validate import TARGET_OPSET
from opu_fuse.model.opsets import IR_VERSION
from opu_fuse.passes import RunStep, Step

NAMES = (
    "load",  # holds the next five
    "upgrade",
    "inline",
    "spell out",
    "constants",
    "float32",
    "dequantise",
    "separate",
    "equalise",
    "quantise",
    "requantise",
    "between",
    "unbake",
    "absorb",
    "rounding",
    "names",
)
"""docs/passes.md says what each does."""

Told = TypeVar("Told")


def step(name: str, model: ir.Model, run: RunStep) -> ir.Model:
    """The model behind a step of the front end; what it raises comes through."""
    assert name in NAMES, name
    return Step(name, run)(model).model


def telling_step(
    name: str, model: ir.Model, run: Callable[[ir.Model], tuple[ir.Model, Told]]
) -> tuple[ir.Model, Told]:
    """As `step`, with what else the step has found."""
    told: list[Told] = []

    def run_plainly(given: ir.Model) -> ir.Model:
        found, more = run(given)
        told.append(more)
        return found

    return step(name, model, run_plainly), told[0]


def nothing() -> ir.Model:
    """What there is before a model has been read."""
    graph = ir.Graph((), (), nodes=(), opset_imports={"": TARGET_OPSET}, name="nothing")
    return ir.Model(graph, ir_version=IR_VERSION)
