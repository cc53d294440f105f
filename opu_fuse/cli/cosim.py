"""`opu-fuse cosim …`: the machine in other people's cocotb benches."""

from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.cli.arguments import Hw
from opu_fuse.cli.console import out
from opu_fuse.number_text import counted

app = typer.Typer(no_args_is_help=True, help="Simulate a machine inside your own cocotb bench.")


@app.command("init")
def cosim_init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder to write")],
    hw: Hw = "opu-tiny",
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="F.onnx", help="your network; default: a small one"),
    ] = None,
) -> None:
    """Write a project that runs at once: a system with the machine, its bench, a network."""
    import onnx_ir as ir

    from opu_fuse import zoo
    from opu_fuse.cosim.project import NETWORK, project_files, write_project
    from opu_fuse.frontend.importing.load import load
    from opu_fuse.hw.rtlgen.rtl_files import rtl_files
    from opu_fuse.hw.spec.load_spec import load_hw

    rtl_files(load_hw(hw))  # says why where a machine has no RTL
    machine = str(Path(hw).resolve()) if Path(hw).is_file() else hw
    if model is None:
        network = ir.to_proto(zoo.build("tiny_residual")).SerializeToString()
    else:
        load(model)
        network = model.read_bytes()
    files = {name: text.encode() for name, text in project_files(machine).items()}
    write_project(folder, files | {NETWORK: network})
    out.print(f"{folder}: {counted(len(files) + 1, 'file')}; next: cd {folder}; pytest")
