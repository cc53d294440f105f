"""The canonical form, step by step; each step is one file with `run(model) -> changed`.

All steps work with and without quantisation annotations and keep operator names, origins, and what
is rounded where.
"""

from collections.abc import Callable, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.frontend.canonical import (
    channel_pads,
    channel_permutes,
    convolutions,
    crop_as_conv,
    dense,
    dense_to_conv1x1,
    einsums,
    elementwise,
    fold_affine,
    fold_crops,
    fold_pads,
    identities,
    image_channels,
    lift_1d,
    pools,
    pools_before_concat,
    reductions_as_conv,
    repeats,
    reshapes,
    resize_down,
    resize_linear,
    sink_transposes,
    slices,
    space_depth_as_conv,
    split_averages,
)
from opu_fuse.frontend.importing.node_names import fix_names
from opu_fuse.frontend.importing.shapes import infer_shapes
from opu_fuse.frontend.pass_steps import step
from opu_fuse.model.unused import anything_unused
from opu_fuse.passes import LOWEST_LEVEL, FixedPoint, Pass, Sequential, lookup, module_pass

Step = Callable[[ir.Model], bool]
"""Changes a model in place; says whether it changed anything."""


def _pools_step(model: ir.Model) -> bool:
    """Pools may correct shapes that others were derived from. Behind operators of other domains
    none is known from the beginning.
    """
    unknown = _without_shape(model)
    changed = pools.run(model)
    if changed and _without_shape(model) > unknown:
        infer_shapes(model)
    return changed


def _remove_unused(model: ir.Model) -> bool:
    return anything_unused(model) and bool(common.RemoveUnusedNodesPass()(model).modified)


STEPS: Mapping[str, Step] = {
    "unused": _remove_unused,
    "identities": identities.run,  # so that the others see neighbours, not wrappers
    "einsums": einsums.run,  # before all that know what they become
    "preprocessing": image_channels.run,  # before all that would leave parts where they are
    "lines": lift_1d.run,  # before pools: they are to see images
    "pools": _pools_step,  # before all that write shapes: it may correct them
    "rows": dense_to_conv1x1.run,  # before transposes: it makes some
    "transposes": sink_transposes.run,  # before all that knows channels by their place
    "slices": slices.run,
    "tiles": repeats.run,
    "views": reshapes.run,
    "shuffles": channel_permutes.run,  # after views: they are all Reshapes
    "convolutions": convolutions.run,
    "dense": dense.run,  # before affine: a MatMul's Add becomes its bias
    "elementwise": elementwise.run,  # before affine: constants stand second, without batch
    "affine": fold_affine.run,
    "padding": fold_pads.run,  # after pools and convolutions: automatic padding is resolved there
    "crops": fold_crops.run,  # after padding: less of it is what makes less of a map
}
REWRITES: Mapping[str, Step] = {
    "branches": pools_before_concat.run,  # after padding: a pool has what belongs to it
    "resizes": resize_linear.run,
    "shrinking": resize_down.run,
    "sums": reductions_as_conv.run,  # before averages: it makes some
    "averages": split_averages.run,  # after pools: means of rows and columns are GlobalAveragePools
    # After slices, shuffles and padding: they need no convolution.
    "pixels": space_depth_as_conv.run,
    "crop_passes": crop_as_conv.run,  # after crops: what no operator took
    "widening": channel_pads.run,  # after padding: a pad has its eight amounts
}
"""Steps that give fusing another graph than the user's, behind the others. They run for strategies
that ask for them, and say in `REWRITE_KEY` what they did.
"""
STEP_LEVEL = {"affine": 1}
"""Steps that only make faster: folding batch norm and scales into weights."""

_OPTIONAL = Sequential(
    [lookup(n) for n in ("FoldConstant", "EliminateCommonSubexpr", "DeadCodeElimination")],
    name="optional",
)


def _until_rest(steps: Mapping[str, Step]) -> FixedPoint:
    passes = [_as_pass(*item) for item in steps.items()]
    return FixedPoint(passes, name="canonical form", always=True)


def _as_pass(name: str, run: Step) -> Pass:
    level = STEP_LEVEL.get(name, LOWEST_LEVEL)
    return module_pass(name=name, opt_level=level)(lambda model, _: run(model))


_CANONICAL = _until_rest(STEPS)
_FOR_FUSING = _until_rest({**STEPS, **REWRITES})

PASSES = tuple(p.info for p in (_OPTIONAL, _FOR_FUSING, *_FOR_FUSING.passes))
"""All that may be named besides registered passes and steps of the front end."""


def canonicalise(model: ir.Model, *, rewriting: bool = False) -> None:
    """Bring a model (float, or int8 with annotations) into canonical form, in place.

    Expects static shapes and unique names. rewriting: for fusing, too (`REWRITES`). Raises
    InternalError when a step still changes something after many rounds.
    """
    form = _FOR_FUSING if rewriting else _CANONICAL
    Sequential([_OPTIONAL, form]).run_once(model)  # those that the context enables
    step("names", model, fix_names)


def _without_shape(model: ir.Model) -> int:
    return sum(v.shape is None for node in model.graph for v in node.outputs)
