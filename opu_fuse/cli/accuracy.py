"""`opu-fuse accuracy`."""

from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.array_layout import ArrayLayout
from opu_fuse.cli.arguments import (
    AsJson,
    BiasCorrection,
    Budget,
    Calibration,
    CalibrationMethod,
    Dims,
    Equalisation,
    FloatModel,
    Hw,
    KeepFloat,
    Layout,
    Method,
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
from opu_fuse.cli.console import out, print_json
from opu_fuse.cli.progress import progress
from opu_fuse.fuse.strategies.strategy_names import DEFAULT_STRATEGY


def accuracy(
    model: FloatModel,
    hw: Hw,
    calibration: Calibration = None,
    pictures: Pictures = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE", help="inputs to measure on; default: those of --calibration"
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="F.npy", help="class of each sample")
    ] = None,
    layout: Layout = ArrayLayout.AUTO,
    scales: ScalesOf = Scales.POW2,
    calibration_method: CalibrationMethod = Method.MSE,
    bias_correction: BiasCorrection = False,
    equalisation: Equalisation = False,
    keep_float: KeepFloat = None,
    strategy: Strategy = DEFAULT_STRATEGY,
    budget: Budget = 1.0,
    shape: Shapes = None,
    dim: Dims = None,
    no_remedies: Annotated[
        bool, typer.Option("--no-remedies", help="do not try other options, which may lose less")
    ] = False,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Measure the error of quantisation per tensor, try remedies and recommend one."""
    from opu_fuse.hw.spec.load_spec import load_hw
    from opu_fuse.loss import accuracy as measure
    from opu_fuse.report.accuracy import accuracy_json, accuracy_lines, accuracy_table

    require_pictures(pictures, calibration, data)
    spec = load_hw(hw)
    with progress() as show:
        loss = measure(
            model,
            spec,
            data=with_pictures(data, pictures),
            labels=labels,
            remedies=not no_remedies,
            progress=show,
            calibration=with_pictures(calibration, pictures),
            layout=layout,
            scales=scales,
            calibration_method=calibration_method,
            bias_correction=bias_correction,
            equalisation=equalisation,
            keep_float=tuple(keep_float or ()),
            strategy=strategy,
            budget=budget,
            shapes=shapes_of(shape),
            dims=dims_of(dim),
        )
    if as_json:
        print_json(accuracy_json(loss))
        return
    out.print(accuracy_table(loss, wide=wide))
    for line in accuracy_lines(loss):
        out.print(line)
