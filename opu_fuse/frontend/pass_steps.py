"""Passes of the front end before and after canonicalisation, in the order in which they run."""

from collections.abc import Callable
from typing import TypeVar

import onnx_ir as ir

from opu_fuse.frontend.importing.validate import TARGET_OPSET
from opu_fuse.model.opsets import IR_VERSION
from opu_fuse.passes import RunStep, Step

NAMES = (
    "load",  # contains the next seven
    "upgrade",
    "inline",
    "spell out",
    "constants",
    "float32",
    "norms",
    "masks",
    "rotations",
    "dequantise",
    "equalise",
    "separate",
    "quantise",
    "requantise",
    "between",
    "unbake",
    "absorb",
    "rounding",
    "names",
)
"""Pass names. docs/passes.md describes each of them."""

Extra = TypeVar("Extra")


def step(name: str, model: ir.Model, run: RunStep) -> ir.Model:
    """Run one front-end pass and return the resulting model. Its exceptions propagate."""
    assert name in NAMES, name
    return Step(name, run)(model).model


def step_with_result(
    name: str, model: ir.Model, run: Callable[[ir.Model], tuple[ir.Model, Extra]]
) -> tuple[ir.Model, Extra]:
    """Run one front-end pass that returns a model and a second result; return both."""
    second: list[Extra] = []

    def run_plainly(model: ir.Model) -> ir.Model:
        result, extra = run(model)
        second.append(extra)
        return result

    return step(name, model, run_plainly), second[0]


def nothing() -> ir.Model:
    """Empty model: the input of the pass that reads a model."""
    graph = ir.Graph((), (), nodes=(), opset_imports={"": TARGET_OPSET}, name="nothing")
    return ir.Model(graph, ir_version=IR_VERSION)
