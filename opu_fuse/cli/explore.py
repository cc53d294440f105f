"""`opu-fuse explore`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opu_fuse.cli.arguments import Cluster, Jobs
from opu_fuse.cli.console import out, typed_command
from opu_fuse.cli.progress import progress, time_left
from opu_fuse.hw.spec.limits import FASTEST_CLOCK, SLOWEST_CLOCK
from opu_fuse.number_text import counted

if TYPE_CHECKING:
    from opu_fuse.exploring.run import Objective


def explore(
    model: Annotated[
        list[str],
        typer.Option("--model", metavar="M.onnx", help="model file, or network of `zoo list`"),
    ],
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="NAME", help="target FPGA: ecp5-85, xc7z020, xc7k325t or zu7ev"
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="folder for machines and results")
    ],
    objective: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="what to minimise: latency, area, dram, lut, dsp, bram, comma-separated",
        ),
    ] = "latency,area",
    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="number of machines to evaluate")
    ] = 60,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="seed of the search")] = 0,
    image: Annotated[
        int | None, typer.Option(min=1, metavar="SIZE", help="image size, for networks of the zoo")
    ] = None,
    clock_mhz: Annotated[
        float | None,
        typer.Option(
            "--clock",
            min=SLOWEST_CLOCK,
            max=FASTEST_CLOCK,
            metavar="MHZ",
            help="clock of all machines in MHz; default: the device's",
        ),
    ] = None,
    fill: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="share of the LUTs that a machine may use; default: the device's"
        ),
    ] = None,
    cluster: Cluster = None,
    jobs: Jobs = None,
) -> None:
    """Search for machines that fit an FPGA and run some models fast."""
    from opu_fuse.exploring.results import best_table, write_results
    from opu_fuse.exploring.run import explore as run
    from opu_fuse.sweeping.plan import is_file

    sized = [name for name in model if not is_file(name)] or model  # files alone are refused
    with progress(measured=True) as show:
        exploration = run(
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
    out.print(best_table(exploration, device))
    command = typed_command()
    written = write_results(exploration, device, output, command)
    out.print(f"{counted(len(exploration.best), 'machine')}: {', '.join(map(str, written))}")
