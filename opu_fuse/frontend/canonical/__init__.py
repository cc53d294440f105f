"""The canonical form, step by step; each step is one file with `run(model) -> changed`.

All steps run with and without quantisation annotations. They preserve operator names, origins and
quantisation.
"""

from collections.abc import Callable, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from opu_fuse.frontend.canonical import (
    binned_distances,
    channel_convs,
    channel_max,
    channel_pads,
    channel_permutes,
    concats_as_sums,
    convolutions,
    crop_as_conv,
    dense,
    early_crops,
    einsums,
    elementwise,
    fold_affine,
    fold_crops,
    fold_pads,
    group_norms,
    identities,
    image_channels,
    layers_of_maps,
    lift_1d,
    patch_embeddings,
    pixel_permutes,
    pools,
    pools_before_concat,
    products,
    reductions_as_conv,
    repeats,
    reshapes,
    resize_down,
    resize_linear,
    resized_branches,
    row_splits,
    scalar_factors,
    separable_attention,
    sink_transposes,
    slices,
    space_depth_as_conv,
    spatial_gates,
    split_averages,
    stacked_maps,
    token_turns,
    tokens,
    unfolds,
    window_sums,
)
from opu_fuse.frontend.editing import is_standard, standard_nodes
from opu_fuse.frontend.importing.node_names import fix_names
from opu_fuse.frontend.importing.shapes import infer_shapes
from opu_fuse.frontend.pass_steps import step
from opu_fuse.model.unused import anything_unused
from opu_fuse.passes import LOWEST_LEVEL, FixedPoint, Pass, Sequential, lookup, module_pass

Step = Callable[[ir.Model], bool]
"""A function that changes its argument and returns whether it changed anything."""


def _pools_step(model: ir.Model) -> bool:
    """Run `pools` and infer the shapes that it clears.

    Shapes after operators of other domains may be unknown before; these do not count.
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
    "identities": identities.run,  # first: other steps match adjacent operators
    "group_norms": group_norms.run,  # before views: it matches Reshapes
    "einsums": einsums.run,  # before the steps that convert its results
    "unfolds": unfolds.run,  # before the steps that move Reshapes and Transposes
    "preprocessing": image_channels.run,  # before the steps that rewrite its Slices
    "lines": lift_1d.run,  # before pools: they expect images
    "pools": _pools_step,  # before the steps that write shapes: it may correct them
    "rows": tokens.run,  # before transposes: it inserts some
    "transposes": sink_transposes.run,  # before the steps that depend on the channel axis
    "slices": slices.run,
    "tiles": repeats.run,
    "views": reshapes.run,
    "shuffles": channel_permutes.run,  # after views: all of them are Reshapes then
    "permutations": pixel_permutes.run,
    "window_sums": window_sums.run,  # after permutations: it matches them
    "convolutions": convolutions.run,
    "dense": dense.run,  # before affine: a MatMul's Add becomes its bias
    "elementwise": elementwise.run,  # before affine: it moves constants second, without batch
    "factors": scalar_factors.run,  # after elementwise: all are products with the scalar second
    "affine": fold_affine.run,
    "padding": fold_pads.run,  # after pools and convolutions: they resolve automatic padding
    "crops": fold_crops.run,  # after padding: crops reduce it
}
REWRITES: Mapping[str, Step] = {
    "channel_convs": channel_convs.run,  # after views: a line is a map of one row
    "stacks": stacked_maps.run,  # after views: all of them are Reshapes then
    "branches": pools_before_concat.run,  # after padding: pools have their pads
    "layers_of_maps": layers_of_maps.run,  # after views: convolutions read (1, c, 1, n)
    "resized_branches": resized_branches.run,  # before resizes: it matches linear ones
    "resizes": resize_linear.run,
    "shrinking": resize_down.run,
    "distances": binned_distances.run,  # before averages and joins: it leaves Concats to the host
    "weighted_sums": separable_attention.run,  # before sums: else the host weights them
    "sums": reductions_as_conv.run,  # before averages: it inserts some
    "largest": channel_max.run,
    "averages": split_averages.run,  # after pools: means of rows and columns are GlobalAveragePools
    # After slices, shuffles and padding: they need no convolution.
    "pixels": space_depth_as_conv.run,
    "patches": patch_embeddings.run,  # after padding: Convs have their pads
    "row_splits": row_splits.run,
    "gates": spatial_gates.run,  # after elementwise: constants have the shapes of maps
    "joins": concats_as_sums.run,  # after crops: they belong to the Pads that it inserts
    "early_crops": early_crops.run,  # after crops: those that no operator absorbed
    "crop_passes": crop_as_conv.run,
    "widening": channel_pads.run,  # after padding: pads have eight amounts
}
"""Steps that replace operators of the user's graph before fusing. They run after the others, for
strategies that ask for them, and explain their changes in `REWRITE_KEY`.
"""
STEP_LEVEL = {"affine": 1, "factors": 1}
"""Optimisations only: folding batch norm and scales into weights."""

_OPTIONAL = Sequential(
    [lookup(n) for n in ("FoldConstant", "EliminateCommonSubexpr", "DeadCodeElimination")],
    name="optional",
)


def _fixed_point(steps: Mapping[str, Step]) -> FixedPoint:
    passes = [_as_pass(*item) for item in steps.items()]
    return FixedPoint(passes, name="canonical form", always=True)


def _as_pass(name: str, run: Step) -> Pass:
    level = STEP_LEVEL.get(name, LOWEST_LEVEL)
    return module_pass(name=name, opt_level=level)(lambda model, _: run(model))


_CANONICAL = _fixed_point(STEPS)
_FOR_FUSING = _fixed_point({**STEPS, **REWRITES})
_CROPS = frozenset({"early_crops", "crop_passes"})
"""Not before products: their operands are maps of all pixels then, which a crop would not leave.
And not before crops whose Concat joins later, when its channels are first.
"""
_GATES = frozenset({"gates"})
"""Not before products: a mask of scores is no gate of a map."""
_SUMS = frozenset({"sums"})
"""Not before transposes, if pixels of a channels-last map are reduced, which is a pool."""
_RESIZES = frozenset({"resized_branches", "resizes"})
"""Not before views, if linear Resizes are joined: tokens of projections become maps."""

_PRODUCTS = _as_pass("products", products.run)
"""Runs on the canonical form, in which convolutions and dense layers write maps."""
_TURNS = _as_pass("turns", token_turns.run)
"""Likewise, and after products: what they transpose for heads cancels before."""

PASSES = tuple(p.info for p in (_OPTIONAL, _FOR_FUSING, *_FOR_FUSING.passes, _PRODUCTS, _TURNS))
"""Passes that can be named in addition to registered passes and steps of the front end."""


def canonicalise(model: ir.Model, *, rewriting: bool = False) -> None:
    """Convert a model (float, or int8 with annotations) to canonical form (mutates it).

    Expects static shapes and unique names. rewriting: also run `REWRITES`, for fusing. Raises
    InternalError if the steps reach no fixed point.
    """
    form = first = _FOR_FUSING if rewriting else _CANONICAL
    later = _later(model) if rewriting else frozenset()
    if later:
        first = _fixed_point({k: v for k, v in {**STEPS, **REWRITES}.items() if k not in later})
    Sequential([_OPTIONAL, first]).run_once(model)  # only steps that the context enables
    if Sequential([_PRODUCTS]).run_once(model)[1] or first is not form:
        Sequential([form]).run_once(model)
    if Sequential([_TURNS]).run_once(model)[1]:
        Sequential([form]).run_once(model)
    step("names", model, fix_names)


def _later(model: ir.Model) -> frozenset[str]:
    """Rewrites that wait until the model has its canonical form."""
    multiplies = products.multiplies_maps(model)
    waiting = {
        _CROPS: multiplies or _joins_pieces(model),
        _GATES: multiplies,
        _RESIZES: resized_branches.joins_resized(model),
        _SUMS: any(map(_reduces_pixels, standard_nodes(model.graph, "ReduceMean"))),
    }
    return frozenset().union(*(steps for steps, waits in waiting.items() if waits))


def _reduces_pixels(node: ir.Node) -> bool:
    return pools.reduced_axes(node) == frozenset({1, 2})


def _joins_pieces(model: ir.Model) -> bool:
    """Whether the model has a Concat of what Slices cut."""
    parts = (v for node in standard_nodes(model.graph, "Concat") for v in node.inputs)
    sources = (v.producer() for v in parts if v is not None)
    return any(source is not None and is_standard(source, "Slice") for source in sources)


def _without_shape(model: ir.Model) -> int:
    return sum(v.shape is None for node in model.graph for v in node.outputs)
