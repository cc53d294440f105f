"""`opu-fuse explore`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opu_fuse.cli.arguments import Cluster, Jobs
from opu_fuse.cli.console import out, share_bar, time_left
from opu_fuse.hw.spec.limits import FASTEST_CLOCK, SLOWEST_CLOCK

if TYPE_CHECKING:
    from opu_fuse.exploring.run import Objective


def explore(
    model: Annotated[
        list[str], typer.Option("--model", help="file, or network of the zoo; several: repeat it")
    ],
    device: Annotated[str, typer.Option("--device", help="ecp5-85, xc7z020, xc7k325t or zu7ev")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="where machines are written")
    ],
    objective: Annotated[
        str, typer.Option(help="what to make small: latency, area, dram, lut, dsp, bram, by commas")
    ] = "latency,area",
    trials: Annotated[int, typer.Option(min=1, help="machines to time")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="of the search")] = 0,
    image: Annotated[
        int | None, typer.Option(min=1, help="size of images, for networks of the zoo")
    ] = None,
    clock_mhz: Annotated[
        float | None,
        typer.Option(
            "--clock",
            min=SLOWEST_CLOCK,
            max=FASTEST_CLOCK,
            help="MHz of all machines; else the device's",
        ),
    ] = None,
    fill: Annotated[
        float | None,
        typer.Option(help="share of the tables that a machine may take; else the device's"),
    ] = None,
    cluster: Cluster = None,
    jobs: Jobs = None,
) -> None:
    """Search for machines that fit an FPGA and run some models well (docs/explore.md)."""
    from opu_fuse.exploring.results import best_table, write_results
    from opu_fuse.exploring.run import explore as run
    from opu_fuse.sweeping.plan import is_file

    sized = [name for name in model if not is_file(name)] or model  # files alone are refused
    with share_bar() as show:
        found = run(
            [{"model": name, "image": image if name in sized else None} for name in model],
            device,
            objectives=cast("list[Objective]", objective.split(",")),  # checked by `run`
            folder=output,
            trials=trials,
            seed=seed,
            clock_mhz=clock_mhz,
            fill=fill,
            cluster=cluster,
            jobs=jobs,
            progress=lambda *at: show(time_left("machines", *at), at[0] / at[1]),
        )
    out.print(best_table(found, device))
    written = write_results(found, device, output)
    machines = "1 machine" if len(found.best) == 1 else f"{len(found.best)} machines"
    out.print(f"{machines}: {', '.join(map(str, written))}")
