"""The canonical form, step by step; each step is one file with `run(model) -> changed`.

All steps work with and without quantisation annotations and keep operator names, origins, and what
is rounded where.
"""

import logging
from types import ModuleType

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.errors import InternalError
from opu_fuse.frontend.shapes import infer_shapes
from opu_fuse.frontend.transforms import (
    affine,
    convolutions,
    dense,
    elementwise,
    identities,
    padding,
    pools,
    views,
)

STEPS: tuple[ModuleType, ...] = (
    identities,  # so that the others see neighbours, not wrappers
    pools,  # before all that write shapes: it may correct them
    views,
    convolutions,
    dense,  # before affine: a MatMul's Add becomes its bias
    elementwise,  # before affine: constants stand second and lack the batch dimension
    affine,
    padding,  # after pools and convolutions: automatic padding is resolved there
)
ROUNDS = 4
"""Two suffice for all networks seen; a step that still fires after these is a bug."""

_log = logging.getLogger(__name__)


def canonicalise(model: ir.Model) -> None:
    """Bring a model (float, or int8 with annotations) into canonical form, in place.

    Expects static shapes and unique names. Raises InternalError when a step still changes something
    after ROUNDS rounds.
    """
    firing: list[str] = []
    for _ in range(ROUNDS):
        _remove_unused(model)
        firing = [step.__name__.rsplit(".", 1)[-1] for step in STEPS if _run(step, model)]
        if not firing:
            break
        _log.debug("changed by %s", ", ".join(firing))
    else:
        raise InternalError(
            stage="canonical form", what=f"{', '.join(firing)} still fires after {ROUNDS} rounds"
        )
    _remove_unused(model)
    common.NameFixPass()(model)


def _run(step: ModuleType, model: ir.Model) -> bool:
    changed = step.run(model)
    if changed and step is pools and _shapes_forgotten(model):
        infer_shapes(model)
    return changed


def _shapes_forgotten(model: ir.Model) -> bool:
    return any(v.shape is None for node in model.graph for v in node.outputs)


def _remove_unused(model: ir.Model) -> None:
    common.RemoveUnusedNodesPass()(model)
