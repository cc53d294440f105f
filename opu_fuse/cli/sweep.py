"""`opu-fuse sweep`."""

import json
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.cli.arguments import Cluster, Jobs
from opu_fuse.cli.console import out, typed_command
from opu_fuse.cli.progress import progress, time_left
from opu_fuse.number_text import counted


def sweep(
    plan: Annotated[
        Path,
        typer.Argument(metavar="SWEEP.yaml", help="axes of the sweep (docs/sweep.md)"),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="folder for results; an interrupted sweep continues",
        ),
    ],
    cluster: Cluster = None,
    jobs: Jobs = None,
) -> None:
    """Compile and time all combinations of models, machines, strategies and memories."""
    from opu_fuse.report.page.points import page
    from opu_fuse.sim.array_files import write_text
    from opu_fuse.sweeping.run import sweep as run
    from opu_fuse.sweeping.table import write_tables

    with progress(measured=True) as show:
        rows = run(
            plan,
            output,
            cluster=cluster,
            jobs=jobs,
            progress=lambda *at: show(time_left("points", *at), at[0] / at[1]),
        )
    written = (*write_tables(rows, output), output / "sweep.html")
    points = json.loads(str(rows.to_json(orient="records")))
    command = typed_command()
    write_text(written[-1], page(points, f"Sweep {plan.name}", command=command))
    failed = Counter(point["error"] for point in points if point["error"] is not None)
    files = ", ".join(map(str, written))
    out.print(f"{counted(len(rows), 'point')}, {failed.total():,} failed: {files}")
    for message, count in failed.most_common():
        out.print(f"  {count}: {message}")
