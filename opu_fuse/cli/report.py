"""`opu-fuse report`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from opu_fuse import __version__
from opu_fuse.cli.arguments import require_suffix
from opu_fuse.cli.console import out, typed_command
from opu_fuse.cli.progress import progress
from opu_fuse.errors import RunError, UserError
from opu_fuse.number_text import byte_size
from opu_fuse.sim.array_files import read_text, require_targets, write_text


def report(
    programs: Annotated[
        list[Path],
        typer.Argument(metavar="OUT.opu…", help="compiled programs; several are compared"),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="R.html", help="page to write; its figures go to R.json"
        ),
    ],
    accuracy: Annotated[
        list[Path] | None,
        typer.Option(metavar="A.json", help="output of `accuracy --json` for a program's model"),
    ] = None,
) -> None:
    """Write an HTML report: time, DRAM traffic, placement, reasons; compares programs."""
    from opu_fuse.overview import SCHEMA_VERSION, accuracy_of, overview
    from opu_fuse.pipeline import Program

    require_suffix(output, (".html", ".htm"))
    data = output.with_suffix(".json")
    require_targets(output, data)
    document = _document()
    measured = [_accuracy(path) for path in accuracy or ()]
    with progress() as show:
        trees = []
        for number, path in enumerate(programs):
            show(str(path), number / (len(programs) + 1))
            program = Program.load(path)
            trees.append(overview(program, accuracy_of(program, measured)))
        show("draw", len(programs) / (len(programs) + 1))
        _all_used(accuracy or [], measured, trees)
        command = typed_command()
        page = document(trees, command)
    write_text(output, page)
    tree = {
        "schema_version": SCHEMA_VERSION,
        "tool_version": __version__,
        "command": command,
        "programs": trees,
    }
    write_text(data, json.dumps(tree, separators=(",", ":")))
    out.print(f"{output}: {byte_size(output.stat().st_size)}, figures in {data}")


def _document() -> Any:
    try:
        from opu_fuse.report.page.document import document
    except ModuleNotFoundError as error:
        if error.name != "bokeh":
            raise
        raise RunError(
            "report",
            "bokeh draws the charts, and is not installed",
            "pip install 'opu-fuse[report]'",
        ) from None
    return document


def _accuracy(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(read_text(path))
    except ValueError:
        tree = None
    if not isinstance(tree, dict) or not {"model", "machine", "outputs"} <= tree.keys():
        raise UserError(
            str(path),
            "is not the output of `opu-fuse accuracy --json`",
            "redirect that output into a file and pass the file",
        )
    return tree


def _all_used(
    paths: list[Path], measured: list[dict[str, Any]], trees: list[dict[str, Any]]
) -> None:
    for path, loss in zip(paths, measured, strict=True):
        if not any(tree["accuracy"] is loss for tree in trees):
            raise UserError(
                str(path),
                f"is about {loss['model']} on {loss['machine']}, and none of the programs is",
                "leave it out, or pass that program too",
            )
