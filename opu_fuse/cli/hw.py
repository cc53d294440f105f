"""`opu-fuse hw …`: hardware specs."""

from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.cli.arguments import machines, require_suffix
from opu_fuse.cli.console import err, out
from opu_fuse.cli.memory_options import BytesPerCycle, Latency, Memory, Waves, memory_port
from opu_fuse.cli.progress import progress
from opu_fuse.number_text import byte_size, counted
from opu_fuse.sim.array_files import write_files, write_text

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, check, compare, draw and simulate machines; write their SystemVerilog.",
)
SPEC = "name from `hw list`, or path of a YAML file"


@app.command("list")
def hw_list() -> None:
    """List the machines of the package with their multiply-accumulates per cycle."""
    from opu_fuse.hw.spec.load_spec import load_hw, spec_names

    width = max(map(len, spec_names()))
    for name in spec_names():
        spec = load_hw(name)
        out.print(f"{name:{width}} {spec.macs:5} MAC/cycle  {spec.description}")


@app.command("show")
def hw_show(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC, autocompletion=machines)],
    operators: Annotated[
        bool,
        typer.Option("--operators", help="print which module runs which operator, and its limits"),
    ] = False,
    area: Annotated[
        bool,
        typer.Option("--area", help="print the estimated FPGA resources (docs/synthesis.md)"),
    ] = False,
) -> None:
    """Print the sizes of a machine, the operators that it runs, or its FPGA resources."""
    from opu_fuse.hw.spec import show
    from opu_fuse.hw.spec.load_spec import load_hw

    loaded = load_hw(spec)
    if not (operators or area):
        out.print(show.sizes_table(loaded))
    if operators:
        from opu_fuse.fuse.machine_operators import operators_table

        out.print(operators_table(loaded))
    if area:
        out.print(show.area_table(loaded))
        out.print("\n".join(show.shares(loaded)))


@app.command("check")
def hw_check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML file, or name from `hw list`")],
) -> None:
    """Report every mistake in a spec with file and line; exit code 1 if there is one."""
    from opu_fuse.hw.spec.excerpt import excerpt
    from opu_fuse.hw.spec.load_spec import problems

    mistakes = problems(file)
    for where, group in groupby(mistakes, key=lambda mistake: mistake.where):
        for mistake in group:
            err.print(f"error: {mistake}")
        for line in excerpt(where):
            err.print(line)
    if mistakes:
        raise typer.Exit(1)
    out.print(f"{file}: no mistakes found")


@app.command("diff")
def hw_diff(
    one: Annotated[str, typer.Argument(metavar="A", help=SPEC, autocompletion=machines)],
    other: Annotated[str, typer.Argument(metavar="B", help=SPEC, autocompletion=machines)],
) -> None:
    """Print the keys in which two machines differ, defaults and inherited keys included."""
    from opu_fuse.hw.spec.differences import difference_lines
    from opu_fuse.hw.spec.load_spec import load_hw

    lines = list(difference_lines(load_hw(one), load_hw(other)))
    for line in lines or ["no difference"]:
        out.print(line)


@app.command("schema")
def hw_schema(
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="F.json", help="file to write; default: the terminal"
        ),
    ] = None,
) -> None:
    """Print the JSON schema of specs, for editors that complete and check YAML."""
    from opu_fuse.hw.spec.json_schema import schema_text

    if output is None:
        out.print(schema_text(), end="")
    else:
        write_text(output, schema_text())
        out.print(f"{output}: {byte_size(output.stat().st_size)}")


@app.command("draw")
def hw_draw(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC, autocompletion=machines)],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="F.svg",
            help=".svg or .dot file; default: text on the terminal",
        ),
    ] = None,
) -> None:
    """Draw the pipeline of a machine."""
    from opu_fuse.hw.spec import draw
    from opu_fuse.hw.spec.load_spec import load_hw

    loaded = load_hw(spec)
    if output is None:
        out.print(draw.draw_text(loaded))
        return
    drawers = {".svg": partial(draw.draw_svg, legend=True), ".dot": draw.draw_dot}
    require_suffix(output, drawers)
    write_text(output, drawers[output.suffix](loaded))
    out.print(f"{output}: {byte_size(output.stat().st_size)}")


@app.command("rtl")
def hw_rtl(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC, autocompletion=machines)],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="folder to write")],
    prefix: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="start of the names of all modules and packages, for two machines in one design",
        ),
    ] = "",
    verilog: Annotated[
        bool,
        typer.Option(
            "--verilog",
            help="also write the machine as one Verilog-2005 file (needs the extra `synth`)",
        ),
    ] = False,
) -> None:
    """Write the SystemVerilog of a machine, a file list, a FuseSoC core and the C driver."""
    from opu_fuse.hw.rtlgen.plain_verilog import plain_verilog
    from opu_fuse.hw.rtlgen.rtl_files import TOP, rtl_files
    from opu_fuse.hw.spec.load_spec import load_hw

    files = rtl_files(load_hw(spec), prefix)
    if verilog:
        top = prefix + TOP
        files[f"{top}.v"] = plain_verilog(files, top)
    write_files(output, {name: text.encode() for name, text in files.items()})
    out.print(f"{output}: {counted(len(files), 'file')}; opu.f lists the sources to compile")


@app.command("sim")
def hw_sim(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=SPEC, autocompletion=machines)],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="socket to create")],
    size: Annotated[
        int, typer.Option(min=1, max=4096, metavar="MIB", help="memory of the machine, in MiB")
    ] = 64,
    waves: Waves = None,
    latency: Latency = None,
    bytes_per_cycle: BytesPerCycle = None,
    memory: Memory = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="build the simulator longer, for long programs")
    ] = False,
) -> None:
    """Simulate the SystemVerilog of a machine as a device for libopu and Python, until Ctrl-C."""
    from opu_fuse.devices.sim_server import SimServer, simulated
    from opu_fuse.hw.spec.load_spec import load_hw
    from opu_fuse.sim.runner import RtlOptions

    port = memory_port(latency, bytes_per_cycle, memory)
    loaded = load_hw(spec)
    with SimServer(path) as server:
        with progress():
            machine = simulated(loaded, size << 20, RtlOptions(waves=waves, **port), fast=fast)
        with machine:
            server.listen()
            where = f"sim:{path.absolute()}"
            out.print(f"{loaded.name} with {byte_size(size << 20)} of memory is {where}")
            server.serve(machine)
