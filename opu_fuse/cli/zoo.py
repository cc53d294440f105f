"""`opu-fuse zoo …`: standard networks."""

from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.cli.arguments import networks
from opu_fuse.cli.console import out
from opu_fuse.number_text import byte_size
from opu_fuse.sim.array_files import require_targets, write_file

app = typer.Typer(
    no_args_is_help=True, help="List and export standard networks with seeded weights."
)


@app.command("list")
def zoo_list() -> None:
    """List the standard networks that can be exported."""
    from opu_fuse import zoo

    width = max(map(len, zoo.names()))
    for name in zoo.names():
        out.print(f"{name:{width}}  {zoo.description(name)}")


@app.command("export")
def zoo_export(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="name from `zoo list`", autocompletion=networks)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="F.onnx", help="file to write")],
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="seed of the weights")] = 0,
    image: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="SIZE", help="height and width of the input"),
    ] = None,
) -> None:
    """Write a network as float ONNX, with seeded random weights."""
    import onnx_ir as ir

    from opu_fuse import zoo

    require_targets(output)
    model = zoo.build(name, seed=seed, image=image)
    write_file(output, lambda temporary: ir.save(model, temporary))
    out.print(f"{output}: {byte_size(output.stat().st_size)}")
