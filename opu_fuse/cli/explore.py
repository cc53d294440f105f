"""`opu-fuse explore`."""

import math
from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.cli.console import out, share_bar


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
        typer.Option("--clock", min=0.001, help="MHz of all machines; else the device's"),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="tcp://…", help="a Dask scheduler; else processes of this machine"),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="processes of this machine; else one a core")
    ] = None,
) -> None:
    """Search for machines that fit an FPGA and run some models well (docs/explore.md)."""
    from opu_fuse.exploring.results import best_table, write_results
    from opu_fuse.exploring.run import explore as run

    with share_bar() as show:
        found = run(
            [{"model": name, "image": image} for name in model],
            device,
            objectives=objective.split(","),
            folder=output,
            trials=trials,
            seed=seed,
            clock_mhz=clock_mhz,
            cluster=cluster,
            jobs=jobs,
            progress=lambda done, total, left: show(_told(done, total, left), done / total),
        )
    out.print(best_table(found, device))
    written = write_results(found, device, output)
    out.print(f"{len(found.best)} machines: {', '.join(map(str, written))}", markup=False)


def _told(done: int, total: int, left: float) -> str:
    minutes, seconds = divmod(round(left) if math.isfinite(left) else 0, 60)
    return f"{done} of {total} machines, {minutes}:{seconds:02} left"
