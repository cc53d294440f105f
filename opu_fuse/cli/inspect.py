"""`opu-fuse inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.cli.arguments import AsJson, ProgramFile, Wide
from opu_fuse.cli.console import out, print_json
from opu_fuse.number_text import byte_size
from opu_fuse.sim.array_files import require_targets, write_bytes


def inspect(
    program: ProgramFile,
    asm: Annotated[
        bool, typer.Option("--asm", help="print the instructions as commented assembly")
    ] = False,
    memory: Annotated[bool, typer.Option("--memory", help="print the memory map")] = False,
    groups: Annotated[
        bool,
        typer.Option(
            "--groups", help="print the groups; default: without another of these options"
        ),
    ] = False,
    fused: Annotated[
        Path | None,
        typer.Option(
            "--fused", metavar="F.onnx", help="write the model with each group as an ONNX function"
        ),
    ] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Show the groups, the memory map or the assembly of a program file."""
    from opu_fuse.bundle.listing import program_listing
    from opu_fuse.pipeline import Program
    from opu_fuse.report import json_trees as report_json
    from opu_fuse.report.tables import groups_table, memory_table

    if as_json and asm:
        raise typer.BadParameter("--asm is text: leave --json out")
    require_targets(fused)
    loaded = Program.load(program)
    if fused is not None:
        from opu_fuse.bundle.fused_onnx import load_fused

        write_bytes(fused, load_fused(loaded.bundle).SerializeToString(deterministic=True))
    if as_json:
        print_json(report_json.inspect_json(loaded.bundle, memory=memory))
        return
    if asm:
        out.print(program_listing(loaded.bundle, loaded.hw))
    if memory:
        out.print(memory_table(loaded.bundle, wide=wide))
    if fused is not None:
        out.print(f"{fused}: {byte_size(fused.stat().st_size)}")
    if groups or not (asm or memory or fused):
        out.print(groups_table(loaded.bundle, wide=wide))
