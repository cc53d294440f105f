"""The compiler, one line a stage.

Stages are plain functions with frozen results; this file is the only one that knows their order.
The loop "a group does not fit: forbid it and fuse again" lives here, so that imports point one
way.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from opu_fuse import __version__
from opu_fuse.array_layout import ArrayLayout
from opu_fuse.bundle.program import Bundle
from opu_fuse.bundle.verify_program import self_check
from opu_fuse.choices import option
from opu_fuse.codegen.bundle import Origin, build_bundle
from opu_fuse.dfg.build import build_dfg
from opu_fuse.dfg.graph import Dfg
from opu_fuse.errors import DoesNotFit, SpecError, UserError
from opu_fuse.frontend.choice_names import Scales
from opu_fuse.frontend.importing.dynamic_dims import NO_SIZES, Sizes
from opu_fuse.frontend.importing.load import ModelLike
from opu_fuse.frontend.importing.size_limits import check_instructions
from opu_fuse.frontend.prepare import ALL_PASSES, Prepared, prepare
from opu_fuse.fuse.explain.coverage import warn_of_low_coverage
from opu_fuse.fuse.gathered_values import with_gathered_values
from opu_fuse.fuse.norm_operators import norms_of
from opu_fuse.fuse.partition import Partition
from opu_fuse.fuse.requantise_modules import with_requantisers
from opu_fuse.fuse.strategies.registry import partition as fuse_partition
from opu_fuse.fuse.strategies.registry import require_legal
from opu_fuse.fuse.strategies.strategy_names import (
    DEFAULT_STRATEGY,
    REWRITING,
    StrategyLike,
    StrategyName,
)
from opu_fuse.host.form_names import HostForm
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import HwLike, load_hw
from opu_fuse.layout.batch import MOST_IMAGES
from opu_fuse.options import STAGES, ModelOptions, Options, keywords_of
from opu_fuse.passes import EVERY, pass_context, require_ran
from opu_fuse.program import Program
from opu_fuse.schedule.aligned_copies import fuse_with_aligned_copies
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.schedule.co_scheduled_norms import with_co_scheduled_norms
from opu_fuse.schedule.insert_copies import (
    Fused,
    misfits_by_copies,
    name_copies,
    needed_copies,
    tile_with_copies,
)
from opu_fuse.schedule.large_max_pools import fuse_with_split_pools
from opu_fuse.schedule.misfits import Misfit
from opu_fuse.schedule.packed_copies import fuse_with_packed_copies
from opu_fuse.schedule.plan import MachineProgram, Plan, schedule
from opu_fuse.schedule.tile_choice import Tiling, misfits_by_structure
from opu_fuse.schedule.timed_tiles import with_tiles_for_slow_memory
from opu_fuse.schedule.two_results import with_two_results

if TYPE_CHECKING:
    from opu_fuse.bundle.context_model import ContextModel
    from opu_fuse.frontend.calibration import Calibration  # quantised models need none
    from opu_fuse.partitioned_model import PartitionedModel

log = logging.getLogger(__name__)

Progress = Callable[[str], None]
"""Receives a description of every stage as it begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """Results of all stages, for reports and tests. dfg: with the copies that the compiler added
    after the strategy (`Partition.copies`).
    """

    prepared: Prepared
    dfg: Dfg
    partition: Partition
    plan: Plan
    bundle: Bundle


def compile_model(
    model: ModelLike,
    hw: HwSpec,
    options: Options | None = None,
    progress: Progress = log.debug,
    write: Progress = log.info,
) -> Compilation:
    """ONNX model -> program. Raises UserError with where, what and help when the input cannot be
    handled.
    """
    options = options or Options()
    require_machine(hw, options.scales)
    progress(STAGES["model"])  # float ONNX -> QDQ -> canonical int8 graph
    with pass_context(options.passes, write=write, more=ALL_PASSES) as context:
        prepared = prepare_model(model, options, norms=norms_of(hw))
    require_ran(context)
    return compile_prepared(prepared, hw, options, progress, write)


def require_machine(hw: HwSpec, scales: str) -> None:
    """SpecError where programs with such scales cannot be compiled for the machine."""
    if not hw.build:
        raise SpecError(
            hw.name,
            "this machine can be partitioned for, not built (build: false)",
            "compile for another machine",
        )
    if scales != Scales.POW2 and not hw.numeric.multiplier_bits:
        raise SpecError(
            hw.name,
            "it has shifters for multipliers (multiplier_bits 0), "
            f"{scales} scales need multipliers",
            f"compile with {option('scales', 'pow2')}, or for another machine",
        )


def prepare_model(
    model: ModelLike,
    options: ModelOptions,
    *,
    quantised: bool = True,
    norms: Collection[str] = (),
) -> Prepared:
    """`prepare` with the options of a compilation. quantised=False: leave a model in float. norms:
    of the machine (`norms_of`); others remain in floats.
    """
    return prepare(
        model,
        calibration=in_layout(options.calibration, options.layout),
        scales=options.scales,
        method=options.calibration_method,
        bias_correction=options.bias_correction,
        equalisation=options.equalisation,
        keep_float=options.keep_float,
        quantised=quantised,
        budget=options.budget,
        sizes=Sizes(shapes=options.shapes, dims=options.dims),
        rewriting=options.strategy in REWRITING,
        norms=norms,
    )


def in_layout(data: "Calibration", layout: str) -> "Calibration":
    """Data with the order of their axes, unless that is to be found out."""
    if data is None or layout == ArrayLayout.AUTO:
        return data
    from opu_fuse.frontend.calibration import DataInLayout

    return data if isinstance(data, DataInLayout) else DataInLayout(data, ArrayLayout(layout))


def compile_prepared(
    prepared: Prepared,
    hw: HwSpec,
    options: Options | None = None,
    progress: Progress = log.debug,
    write: Progress = log.info,
) -> Compilation:
    """The stages after quantisation: a quantised model can be compiled for several machines."""
    options = options or Options()

    def show(stage: str, *results: Any) -> None:
        if not {stage, EVERY}.isdisjoint(options.print_after):
            from opu_fuse.texts import TEXTS  # few ask for it

            write("\n".join([f"# after {stage}", *TEXTS[stage](*results)]))

    show("model", prepared)
    progress(STAGES["dfg"])  # one node per operator, with indexing maps
    dfg = _graph(prepared, hw)
    show("dfg", dfg)
    require_batch(dfg, options.batch)
    fused_stacks = FusedStackChoice(options.cascades)
    progress(STAGES["partition"])  # groups that are legal, copies after them, tiles that fit
    fitted = fuse_and_tile(dfg, hw, options.strategy, options.batch)
    rewrites = {**prepared.rewrites, **fitted.partition.rewrites}
    dfg, partition = fitted.dfg, replace(fitted.partition, rewrites=rewrites)
    show("partition", dfg, hw, partition, fitted.tiling)
    planned = chain.from_iterable(fitted.tiling.layers.values())
    check_instructions(sum(p.instructions for p in planned), dfg.name, hw.name, options.budget)
    progress(STAGES["plan"])  # memory, instructions, tokens, proofs
    plan = schedule(
        dfg, fitted.tiling, hw, reuse_memory=options.reuse_memory, fused_stacks=fused_stacks
    )
    show("plan", dfg, plan)
    progress(STAGES["program"])  # weights in load order, host models, manifest
    bundle = build_bundle(dfg, partition, plan, hw, _origin(prepared))
    if HostForm(options.host) is HostForm.C:
        from opu_fuse.host.build.steps.build import with_host_steps  # starts ONNX Runtime

        bundle = with_host_steps(bundle)
    programs = [s.instructions for s in plan.segments if isinstance(s, MachineProgram)]
    show("program", bundle, hw)
    self_check(bundle, hw, programs)  # what compiles, runs
    if bundle.hosts:
        from opu_fuse.host.run.segment import require_runnable  # starts ONNX Runtime

        require_runnable(bundle)
    return Compilation(
        prepared=prepared,
        dfg=dfg,
        partition=partition,
        plan=plan,
        bundle=bundle,
    )


def _graph(prepared: Prepared, hw: HwSpec) -> Dfg:
    """The data-flow graph of a model, with the operators that the machine runs."""
    dfg = build_dfg(prepared.canonical, quantised=prepared.qdq is not None)
    return with_gathered_values(with_requantisers(dfg, hw), hw)


def context_of(done: Compilation, hw: HwSpec, *, stem: str = "") -> "ContextModel":
    """A compiled model as a model for ONNX Runtime with the provider of this machine; stem: as of
    `context_model`. Raises ProgramError for a program that cannot be written so.
    """
    from opu_fuse.bundle.context_model import context_model  # programs need none
    from opu_fuse.codegen.bundle import host_models

    hosts = host_models(done.dfg, done.plan) if done.bundle.hosts else ()
    return context_model(done.bundle, hw, hosts, stem=stem)


def partition_model(
    model: ModelLike,
    hw: HwSpec,
    strategy: str = DEFAULT_STRATEGY,
    *,
    budget: float = 1.0,
    sizes: Sizes = NO_SIZES,
) -> tuple[Dfg, Partition]:
    """The DFG of a model and its groups, legal or not. A float model needs no quantisation; of one
    that is quantised already, what it leaves in floats is on the host, as `compile` leaves it.
    Groups that the machine cannot run are fused again as `compile` does, but for `greedy`, which is
    shown as published. Copies that `compile` would add are named, and are in no group; packed ones,
    which it adds where they are faster, are not named.
    """
    prepared = prepare(
        model,
        quantised=False,
        budget=budget,
        sizes=sizes,
        rewriting=strategy in REWRITING,
        norms=norms_of(hw),
    )
    dfg = _graph(prepared, hw)
    fuse = partial(_fused, hw=hw, strategy=strategy)
    aligned = partial(fuse_with_aligned_copies, hw=hw, fuse=fuse)
    dfg, fused, _ = fuse_with_split_pools(dfg, hw, aligned)
    if fused.legal:
        fused = name_copies(dfg, fused, needed_copies(dfg, fused, hw))
    return dfg, replace(fused, rewrites={**prepared.rewrites, **fused.rewrites})


def _fused(dfg: Dfg, hw: HwSpec, strategy: str) -> Fused[None]:
    forbidden: dict[tuple[int, ...], DoesNotFit] = {}
    while True:
        fused = fuse_partition(dfg, hw, strategy=strategy, forbid=forbidden)
        if not (fused.legal and hw.build) or strategy == StrategyName.GREEDY:
            break
        misfits = misfits_by_copies(dfg, fused, hw) or misfits_by_structure(dfg, fused, hw)
        if not _newly_forbidden(misfits, forbidden):
            break
    return Fused(dfg, fused, None)


def partition(
    model: ModelLike,
    hw: HwLike,
    strategy: StrategyLike = DEFAULT_STRATEGY,
    *,
    budget: float = 1.0,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> "PartitionedModel":
    """Groups of a model, legal or not (`Partition.violations` says why not). model, hw: as of
    `compile`, needs no quantisation. strategy, budget, shapes, dims: as in `ModelOptions`.
    """
    from opu_fuse.partitioned_model import PartitionedModel  # compiling has none

    hw, sizes = load_hw(hw), Sizes(shapes=shapes or {}, dims=dims or {})
    dfg, fused = partition_model(model, hw, strategy, budget=budget, sizes=sizes)
    warn_of_low_coverage(dfg, hw, fused)
    return PartitionedModel.of(dfg, hw, fused)


@keywords_of(Options)
def compile(model: ModelLike, hw: HwLike, options: Options) -> Program:  # noqa: A001 public name
    """Model -> program.

    model: path of an ONNX or TFLite file, an onnx.ModelProto or an onnx_ir.Model, in floats or
    quantised (QDQ, QOperator); it is not changed. hw: a machine, its name, or the path of its YAML
    file. Raises UserError with where, what and help when it cannot be handled.
    """
    hw = load_hw(hw)
    done = compile_model(model, hw, options)
    warn_of_low_coverage(done.dfg, hw, done.partition)
    return Program(bundle=done.bundle, hw=hw)


@keywords_of(Options)
def compile_context(model: ModelLike, hw: HwLike, options: Options) -> "ContextModel":
    """Model -> model for ONNX Runtime with the provider `onnxruntime-ep-opu`; `save` writes it.
    model, hw: as of `compile`. Raises UserError with where, what and help for what it refuses.
    """
    hw = load_hw(hw)
    return context_of(compile_model(model, hw, options), hw)


def require_batch(dfg: Dfg, images: int) -> None:
    """UserError where a program cannot run so many images together."""
    if not 1 <= images <= MOST_IMAGES:
        raise UserError(
            option("batch", images),
            f"a program runs 1 to {MOST_IMAGES} images together",
            "run the program several times, each time with as many as it takes",
        )
    for i, border in () if images == 1 else zip(dfg.inputs, dfg.entries, strict=True):
        name, shape = dfg[i].value, dfg[i].shape
        if border is not None:  # the user's, which may be another
            name, shape = border.name, border.type.shape or ()
        if not shape or shape[0] != 1:
            raise UserError(
                f"input {name!r}",
                f"has shape {list(shape)}, whose first size is not that of a single image",
                f"export the model for one image (first size 1), or leave out {option('batch')}",
            )


def fuse_and_tile(dfg: Dfg, hw: HwSpec, strategy: str, images: int = 1) -> Fused[Tiling]:
    """Partition, add copies, tile, and fuse again without the groups that fit nowhere. images: of a
    batch. Raises PartitionError for an illegal partition.
    """

    def fuse(graph: Dfg) -> Fused[Tiling]:
        forbidden: dict[tuple[int, ...], DoesNotFit] = {}
        while True:
            fused = fuse_partition(graph, hw, strategy=strategy, forbid=forbidden)
            require_legal(graph, fused)
            fitted = tile_with_copies(graph, fused, hw, images)
            if isinstance(fitted, Fused):
                return fitted
            _forbid(fitted, forbidden)

    aligned = partial(fuse_with_aligned_copies, hw=hw, fuse=fuse)
    dfg, partition, tiling = fuse_with_split_pools(
        dfg, hw, lambda graph: fuse_with_packed_copies(graph, hw, aligned)
    )
    tiling = with_tiles_for_slow_memory(tiling, hw)
    tiling = with_two_results(dfg, partition, tiling, hw)
    tiling = with_tiles_for_slow_memory(tiling, hw, next_to_units=True)
    tiling = with_co_scheduled_norms(dfg, partition, tiling, hw)
    return Fused(dfg, partition, tiling)


def _forbid(misfits: Sequence[Misfit], forbidden: dict[tuple[int, ...], DoesNotFit]) -> None:
    """Raises what the scheduler says of groups that are forbidden already, if it says no more."""
    if not _newly_forbidden(misfits, forbidden):
        raise misfits[0].error


def _newly_forbidden(
    misfits: Sequence[Misfit], forbidden: dict[tuple[int, ...], DoesNotFit]
) -> bool:
    """Adds the groups that do not fit; whether there are any that were not known."""
    new = {m.nodes: m.error for m in misfits if m.nodes not in forbidden}
    for error in new.values():
        log.info("fusing again: %s", error)
    forbidden |= new
    return bool(new)


def _origin(prepared: Prepared) -> Origin:
    return Origin(
        model=prepared.canonical.graph.name or "model",
        model_hash=prepared.source_hash,
        tool_version=__version__,
        qdq=prepared.qdq,
    )
