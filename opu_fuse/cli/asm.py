"""`opu-fuse asm`."""

from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.cli.console import out
from opu_fuse.number_text import counted
from opu_fuse.sim.array_files import read_text, require_targets, write_bytes


def asm(
    source: Annotated[Path, typer.Argument(metavar="PROGRAM.asm", help="assembly text")],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="PROGRAM.bin", help="file of program words to write"
        ),
    ],
    hw: Annotated[
        str | None,
        typer.Option("--hw", metavar="SPEC", help="the machine; needed where `order` names stages"),
    ] = None,
) -> None:
    """Assemble instructions into little-endian program words (docs/isa.md)."""
    from opu_fuse.hw.isa.assembly import assemble
    from opu_fuse.hw.isa.encoding import encode
    from opu_fuse.hw.spec.load_spec import load_hw

    require_targets(output)
    spec = None if hw is None else load_hw(hw)
    words = encode(assemble(read_text(source), str(source), spec))
    write_bytes(output, words.astype("<u4").tobytes())
    out.print(f"{output}: {counted(len(words), 'word')}")
