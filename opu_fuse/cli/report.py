"""`opu-fuse report`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from opu_fuse.cli.arguments import require_suffix
from opu_fuse.cli.console import out, progress_bar
from opu_fuse.errors import RunError, UserError
from opu_fuse.sim.array_files import read_text, require_targets, write_text


def report(
    programs: Annotated[
        list[Path], typer.Argument(metavar="OUT.opu…", help="compiled programs, to compare")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="R.html", help="page to write, JSON beside it")
    ],
    accuracy: Annotated[
        list[Path] | None,
        typer.Option(metavar="A.json", help="what `accuracy --json` said of a program's model"),
    ] = None,
) -> None:
    """Write a page about programs: where time, memory traffic and operators go, and why."""
    from opu_fuse.overview import SCHEMA_VERSION, accuracy_of, overview
    from opu_fuse.pipeline import Program

    require_suffix(output, (".html", ".htm"))
    data = output.with_suffix(".json")
    require_targets(output, data)
    document = _document()
    measured = [_accuracy(path) for path in accuracy or ()]
    with progress_bar(len(programs) + 1) as begin:
        trees = []
        for path in programs:
            begin(str(path))
            program = Program.load(path)
            trees.append(overview(program, accuracy_of(program, measured)))
        begin("draw")
        _all_used(accuracy or [], measured, trees)
        page = document(trees)
    write_text(output, page)
    tree = {"schema_version": SCHEMA_VERSION, "programs": trees}
    write_text(data, json.dumps(tree, separators=(",", ":")))
    out.print(f"{output}: {output.stat().st_size} bytes, figures in {data}")


def _document() -> Any:
    try:
        from opu_fuse.report.page.document import document
    except ModuleNotFoundError as error:
        if error.name != "bokeh":
            raise
        raise RunError(
            "report",
            "charts are drawn by bokeh, which is not installed",
            "install opu-fuse[report]",
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
            "is not what `opu-fuse accuracy --json` prints",
            "write that into a file and name it",
        )
    return tree


def _all_used(
    paths: list[Path], measured: list[dict[str, Any]], trees: list[dict[str, Any]]
) -> None:
    for path, found in zip(paths, measured, strict=True):
        if not any(tree["accuracy"] is found for tree in trees):
            raise UserError(
                str(path),
                f"is about {found['model']} on {found['machine']}, and none of the programs is",
                "leave it out, or name that program too",
            )
