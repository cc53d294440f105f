"""`opu-fuse compile`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from opu_fuse.array_layout import ArrayLayout
from opu_fuse.cli.arguments import (
    Batch,
    BiasCorrection,
    Budget,
    Calibration,
    CalibrationMethod,
    Dims,
    Equalisation,
    Hw,
    KeepFloat,
    Layout,
    Method,
    Model,
    Pictures,
    Scales,
    ScalesOf,
    Shapes,
    Strategy,
    Wide,
    dims_of,
    require_pictures,
    shapes_of,
    with_pictures,
)
from opu_fuse.cli.console import out, print_plain
from opu_fuse.cli.progress import COMPILE_SHARES, stages
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY
from opu_fuse.host.form_names import HostForm
from opu_fuse.schedule.choice_names import FusedStackChoice
from opu_fuse.sim.array_files import require_targets

MODEL_SUFFIX = ".onnx"
"""Suffix of an output that is a model for ONNX Runtime."""


def compile_(
    context: typer.Context,
    model: Model,
    hw: Hw,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT.opu",
            help="program file to write; OUT.onnx: the program as a model for ONNX Runtime "
            "(docs/onnxruntime.md)",
        ),
    ],
    strategy: Strategy = DEFAULT_STRATEGY,
    calibration: Calibration = None,
    pictures: Pictures = None,
    layout: Layout = ArrayLayout.AUTO,
    scales: ScalesOf = Scales.POW2,
    calibration_method: CalibrationMethod = Method.MSE,
    bias_correction: BiasCorrection = False,
    equalisation: Equalisation = False,
    keep_float: KeepFloat = None,
    budget: Budget = 1.0,
    batch: Batch = 1,
    shape: Shapes = None,
    dim: Dims = None,
    keep_tensors: Annotated[
        bool,
        typer.Option(
            "--keep-tensors",
            help="write every feature map to DRAM at an address of its own, so that `run --check` "
            "compares all of them",
        ),
    ] = False,
    cascades: Annotated[
        FusedStackChoice,
        typer.Option(
            help="fused stacks (Vela: cascades), executed depth-first, a row strip at a time "
            "(docs/scheduling.md)"
        ),
    ] = FusedStackChoice.AUTO,
    host: Annotated[
        HostForm,
        typer.Option(
            help="host segments: for ONNX Runtime alone, or in a form that libopu runs in C, too "
            "(docs/run-on-a-board.md)"
        ),
    ] = HostForm.ONNXRUNTIME,
    level: Annotated[
        int,
        typer.Option(
            "-O",
            min=0,
            max=3,
            metavar="LEVEL",
            help="optimisation level of the passes (docs/passes.md)",
        ),
    ] = 2,
    disable_pass: Annotated[
        list[str] | None, typer.Option("--disable-pass", metavar="NAME", help="skip a pass")
    ] = None,
    print_ir_before: Annotated[
        list[str] | None,
        typer.Option(
            "--print-ir-before",
            metavar="NAME",
            help="print the model before a pass; all: every pass",
        ),
    ] = None,
    print_ir_after: Annotated[
        list[str] | None,
        typer.Option(
            "--print-ir-after", metavar="NAME", help="print the model after a pass; all: every pass"
        ),
    ] = None,
    print_after: Annotated[
        list[str] | None,
        typer.Option(
            "--print-after",
            metavar="STAGE",
            help="print the result of a stage: model, dfg, partition, plan, program, or all",
        ),
    ] = None,
    time_passes: Annotated[
        bool, typer.Option("--time-passes", help="print the time of each pass")
    ] = False,
    verify_passes: Annotated[
        bool, typer.Option("--verify-passes", help="check the model after each pass")
    ] = False,
    context_files: Annotated[
        bool,
        typer.Option(
            "--context-files",
            help="with -o OUT.onnx: write the programs of its segments next to it, not into it",
        ),
    ] = False,
    wide: Wide = False,
    explain_tiles: Annotated[
        str | None,
        typer.Option(
            metavar="NODE", help="print every tile tried for an operator's group, and its cost"
        ),
    ] = None,
) -> None:
    """Compile an ONNX or TFLite model into a program for a machine."""
    from opu_fuse.fuse.explain.coverage import low_coverage
    from opu_fuse.fuse.explain.host_text import host_lines
    from opu_fuse.fuse.partition import added_lines
    from opu_fuse.hw.spec.load_spec import load_hw
    from opu_fuse.number_text import byte_size, counted, whole
    from opu_fuse.passes import PassOptions
    from opu_fuse.pipeline import Options, compile_model
    from opu_fuse.report.tables import groups_table
    from opu_fuse.schedule.fused_stack_text import unit_lines

    _check_output(output, context_files=context_files)
    require_pictures(pictures, calibration)
    spec = load_hw(hw)
    passes = PassOptions(
        opt_level=level,
        disable=tuple(disable_pass or ()),
        print_before=tuple(print_ir_before or ()),
        print_after=tuple(print_ir_after or ()),
        time_passes=time_passes,
        verify=verify_passes,
    )
    options = Options(
        strategy=strategy,
        calibration=with_pictures(calibration, pictures),
        layout=layout,
        scales=scales,
        calibration_method=calibration_method,
        bias_correction=bias_correction,
        equalisation=equalisation,
        keep_float=tuple(keep_float or ()),
        budget=budget,
        shapes=shapes_of(shape),
        dims=dims_of(dim),
        reuse_memory=not keep_tensors,
        batch=batch,
        cascades=cascades,
        host=host,
        passes=passes,
        print_after=tuple(print_after or ()),
    )
    with stages(COMPILE_SHARES) as begin:
        done = compile_model(model, spec, options, begin, print_plain)
        tiles = () if explain_tiles is None else _tile_lines(done, spec, explain_tiles)
        begin("write")
        _write(done, spec, output, context_files=context_files)
    out.print(groups_table(done.bundle, wide=wide, host_reasons=False))
    if done.partition.search is not None:
        from opu_fuse.fuse.strategies.search_report import search_lines

        for line in search_lines(done.dfg, done.partition.search):
            out.print(line)
    for line in added_lines(done.partition):
        out.print(line)
    for line in unit_lines(done.plan):
        out.print(line)
    if resident := len(done.plan.resident_groups):
        only, groups = len(done.plan.not_stored), counted(len(done.plan.layers), "group")
        out.print(
            f"resident maps: {resident} of {groups} pass their map "
            f"to the next group without DRAM, {only} of them write nothing to it"
        )
    source = context.get_parameter_source("scales")
    if done.prepared.prequantised and source is not None and source.name != "DEFAULT":
        print_plain("warning: the model is quantised already: --scales is not used")
    for line in host_lines(done.dfg, done.partition):
        out.print(line)
    out.print(
        f"{output}: {byte_size(output.stat().st_size)}, "
        f"{counted(len(done.bundle.words), 'program word')}",
    )
    memory = done.plan.memory
    out.print(
        f"DRAM: constants {whole(done.plan.constants_bytes)} bytes, feature maps "
        f"{whole(memory.total_bytes)} bytes (live at one time: {whole(memory.lower_bound_bytes)})",
    )
    for line in tiles:
        out.print(line)
    if warning := low_coverage(done.dfg, spec, done.partition, reasons=out.quiet):
        print_plain(f"warning: {warning}")


def _check_output(output: Path, *, context_files: bool) -> None:
    require_targets(output)
    if context_files and output.suffix != MODEL_SUFFIX:
        raise typer.BadParameter(f"--context-files is for -o OUT{MODEL_SUFFIX}")


def _write(done: Any, spec: Any, output: Path, *, context_files: bool) -> None:
    """The program, in the form that the name of its file asks for."""
    from opu_fuse.pipeline import Program, context_of

    if output.suffix == MODEL_SUFFIX:
        stem = output.stem if context_files else ""
        context_of(done, spec, stem=stem).save(output)
    else:
        Program(bundle=done.bundle, hw=spec).save(output)


def _tile_lines(done: Any, spec: Any, node: str) -> tuple[str, ...]:
    from opu_fuse.schedule.tile_trace import explain_tiles

    return tuple(explain_tiles(done.dfg, done.partition, done.plan, spec, node))
