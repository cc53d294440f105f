"""The canonical form, step by step; each step is one file with `run(model) -> changed`.

All steps work with and without quantisation annotations and keep operator names, origins, and what
is rounded where.
"""

import logging
from collections.abc import Callable, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.errors import InternalError
from opu_fuse.frontend.naming import fix_names
from opu_fuse.frontend.shapes import infer_shapes
from opu_fuse.frontend.transforms import (
    affine,
    branches,
    convolutions,
    dense,
    elementwise,
    identities,
    padding,
    pools,
    views,
)
from opu_fuse.model.unused import anything_unused

Step = Callable[[ir.Model], bool]
"""Changes a model in place; says whether it changed anything."""

Drive = Callable[[ir.Model, Mapping[str, Step]], None]
"""Runs steps in their order, again and again until none changes anything."""


def _pools_step(model: ir.Model) -> bool:
    """Pools may correct shapes that others were derived from."""
    changed = pools.run(model)
    if changed and _shapes_forgotten(model):
        infer_shapes(model)
    return changed


STEPS: Mapping[str, Step] = {
    "identities": identities.run,  # so that the others see neighbours, not wrappers
    "pools": _pools_step,  # before all that write shapes: it may correct them
    "views": views.run,
    "convolutions": convolutions.run,
    "dense": dense.run,  # before affine: a MatMul's Add becomes its bias
    "elementwise": elementwise.run,  # before affine: constants stand second, without batch
    "affine": affine.run,
    "padding": padding.run,  # after pools and convolutions: automatic padding is resolved there
}
REWRITES: Mapping[str, Step] = {
    "branches": branches.run,  # after padding: a pool has what belongs to it
}
"""Steps that give fusing another graph than the user's, behind the others. They run for strategies
that ask for them, and say in `REWRITE_KEY` what they did.
"""
ROUNDS = 4
"""Two suffice for all networks seen; a step that still fires after these is a bug."""

_log = logging.getLogger(__name__)


def drive_plainly(model: ir.Model, steps: Mapping[str, Step]) -> None:
    """All steps, at most ROUNDS times. Raises InternalError when one still changes something."""
    firing: list[str] = []
    for _ in range(ROUNDS):
        firing = [name for name, step in steps.items() if step(model)]
        if not firing:
            return
        _log.debug("changed by %s", ", ".join(firing))
    raise InternalError(
        stage="canonical form", what=f"{', '.join(firing)} still fires after {ROUNDS} rounds"
    )


def canonicalise(model: ir.Model, drive: Drive = drive_plainly) -> None:
    """Bring a model (float, or int8 with annotations) into canonical form, in place.

    Expects static shapes and unique names. drive: what runs the steps (the compiler's own runs
    them as passes).
    """
    drive(model, {"unused": _remove_unused, **STEPS})
    fix_names(model)


def _shapes_forgotten(model: ir.Model) -> bool:
    return any(v.shape is None for node in model.graph for v in node.outputs)


def _remove_unused(model: ir.Model) -> bool:
    return anything_unused(model) and bool(common.RemoveUnusedNodesPass()(model).modified)
