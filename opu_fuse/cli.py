"""The command line: the only file that prints.

Exit codes: 0 done, 1 the user's input cannot be handled (one line, no traceback), 2 wrong usage,
3 a bug of ours.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.logging import RichHandler

from opu_fuse import __version__
from opu_fuse.errors import OpuFuseError, RunError
from opu_fuse.fuse.names import DEFAULT_STRATEGY, StrategyName
from opu_fuse.sim.files import (
    file_errors,
    read_inputs,
    read_text,
    write_arrays,
    write_bytes,
    write_text,
)

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

EVERYTHING = "*"
"""Value of a bare `--explain`."""

app = typer.Typer(
    name="opu-fuse",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Compile CNNs for OPU-style overlays and run them on simulators and RTL.",
)
hw_app = typer.Typer(no_args_is_help=True, help="Hardware specs.")
zoo_app = typer.Typer(no_args_is_help=True, help="Standard networks with seeded weights.")
app.add_typer(hw_app, name="hw")
app.add_typer(zoo_app, name="zoo")


class Scales(StrEnum):
    """Scales of a quantised float model."""

    POW2 = "pow2"
    FREE = "free"


class Engine(StrEnum):
    """What a program runs on."""

    FUNCTIONAL = "functional"
    CYCLE = "cycle"
    RTL = "rtl"


TIMED = (Engine.CYCLE, Engine.RTL)
WITH_DATA = (Engine.FUNCTIONAL, Engine.RTL)

Model = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="float or QDQ ONNX model")]
ProgramFile = Annotated[Path, typer.Argument(metavar="OUT.opu", help="compiled program")]
Hw = Annotated[
    str, typer.Option("--hw", metavar="SPEC", help="name of a spec, or path of a YAML file")
]
Strategy = Annotated[StrategyName, typer.Option(help="how operators are grouped")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object instead of tables")]


def main() -> None:
    """The console command, once it has started (`__main__.py`)."""
    try:
        app(args=_with_optional_value(sys.argv[1:]), standalone_mode=True)
    except OpuFuseError as error:
        err.print(f"error: {error}", markup=False)
        for note in getattr(error, "__notes__", ()):
            err.print(f"  {note}", markup=False)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(130)
    except Exception as error:
        logging.getLogger(__name__).debug("traceback", exc_info=True)
        err.print(
            f"internal error: {type(error).__name__}: {error} (please report this; -v shows the "
            "traceback)",
            markup=False,
        )
        sys.exit(3)


def _with_optional_value(arguments: list[str]) -> list[str]:
    """`--explain` may stand without a value: then it explains everything."""
    found = []
    for i, argument in enumerate(arguments):
        following = arguments[i + 1] if i + 1 < len(arguments) else "-"
        bare = argument == "--explain" and following.startswith("-")
        found.append(f"--explain={EVERYTHING}" if bare else argument)
    return found


@app.callback(invoke_without_command=True)
def _global(
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="say what is being done")
    ] = False,
) -> None:
    """Options before the verb."""
    if version:
        out.print(f"opu-fuse {__version__}")
        raise typer.Exit
    level = logging.DEBUG if verbose else logging.WARNING
    handler = RichHandler(console=err, show_time=False, show_path=False, markup=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler], force=True)
    logging.getLogger("opu_fuse").setLevel(level)


@app.command("compile")
def compile_(
    model: Model,
    hw: Hw,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT.opu", help="program file to write")
    ],
    strategy: Strategy = DEFAULT_STRATEGY,
    calibration: Annotated[
        Path | None, typer.Option(help="directory of .npy/.npz, or .npz, with real inputs")
    ] = None,
    scales: Annotated[Scales, typer.Option(help="scales of a float model")] = Scales.POW2,
    keep_tensors: Annotated[
        bool,
        typer.Option(
            "--keep-tensors", help="do not reuse feature map memory (to compare every tensor)"
        ),
    ] = False,
    level: Annotated[int, typer.Option("-O", min=0, max=3, help="level of the passes")] = 2,
    disable_pass: Annotated[
        list[str] | None, typer.Option("--disable-pass", metavar="NAME", help="leave a pass out")
    ] = None,
    print_ir_before: Annotated[
        list[str] | None,
        typer.Option(
            "--print-ir-before", metavar="NAME", help="show the model before a pass, or *"
        ),
    ] = None,
    print_ir_after: Annotated[
        list[str] | None,
        typer.Option("--print-ir-after", metavar="NAME", help="show the model after a pass, or *"),
    ] = None,
    time_passes: Annotated[
        bool, typer.Option("--time-passes", help="how long each pass took")
    ] = False,
    verify_passes: Annotated[
        bool, typer.Option("--verify-passes", help="check the model after each pass")
    ] = False,
    explain_tiles: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="every tile tried for an operator's group, and its cost"),
    ] = None,
) -> None:
    """Compile an ONNX model for a machine."""
    from opu_fuse.hw.load import load_hw
    from opu_fuse.passes import PassOptions
    from opu_fuse.pipeline import STAGES, Options, Program, compile_model
    from opu_fuse.report.tables import groups_table

    spec = load_hw(hw)
    passes = PassOptions(
        opt_level=level,
        disable=tuple(disable_pass or ()),
        print_before=tuple(print_ir_before or ()),
        print_after=tuple(print_ir_after or ()),
        time_passes=time_passes,
        verify=verify_passes,
    )
    options = Options(
        strategy=strategy,
        calibration=calibration,
        scales=scales,
        reuse_memory=not keep_tensors,
        passes=passes,
    )
    with _bar(len(STAGES) + 1) as begin:
        done = compile_model(model, spec, options, begin, _print_plain)
        told = () if explain_tiles is None else _tile_lines(done, spec, explain_tiles)
        begin("write")
        Program(bundle=done.bundle, hw=spec).save(output)
    out.print(groups_table(done.bundle))
    if done.partition.search is not None:
        from opu_fuse.fuse.search import search_lines

        for line in search_lines(done.dfg, done.partition.search):
            out.print(line, markup=False)
    for name, reason in done.copies.items():
        out.print(f"copy: {name}: {reason}", markup=False)
    names = {g: parts[0].layer.name for g, parts in done.plan.layers.items()}
    for group, companion in done.plan.beside.items():
        out.print(f"beside: {names[companion]}: between the tiles of {names[group]}", markup=False)
    if kept := len(done.plan.kept):
        out.print(f"on chip: {kept} of {len(names)} groups pass their map to the next one")
    for op in done.partition.host:
        out.print(f"host: {done.dfg[op.node].name}: {op.reason}", markup=False)
    out.print(
        f"{output}: {output.stat().st_size} bytes, {len(done.bundle.words)} program words",
        markup=False,
    )
    memory = done.plan.memory
    out.print(
        f"DRAM: constants {done.plan.constants_bytes} bytes, feature maps {memory.total_bytes} "
        f"bytes (alive at one time: {memory.lower_bound_bytes})",
        markup=False,
    )
    for line in told:
        out.print(line, markup=False)


@app.command()
def partition(
    model: Model,
    hw: Hw,
    strategy: Strategy = DEFAULT_STRATEGY,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="[NODE]",
            help="say why at every boundary, or all about one operator",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how operators are grouped; an illegal grouping is shown with its violations."""
    from opu_fuse.fuse.explain import explain as explanation
    from opu_fuse.fuse.to_json import partition_to_json
    from opu_fuse.hw.load import load_hw
    from opu_fuse.pipeline import partition_model

    if as_json and explain is not None:
        raise typer.BadParameter("--json holds all reasons already; leave --explain out")
    spec = load_hw(hw)
    dfg, found = partition_model(model, spec, strategy)
    if as_json:
        _print_json(partition_to_json(dfg, spec, found))
        return
    lines = explanation(dfg, spec, found, None if explain in (None, EVERYTHING) else explain)
    reasons = ("  before", "host")
    for line in lines:
        if explain is not None or not line.startswith(reasons):
            out.print(line, markup=False)


@app.command()
def run(
    program: ProgramFile,
    engine: Annotated[Engine, typer.Option(help="what to run on")] = Engine.FUNCTIONAL,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=X.npy", help="input tensor; else seeded noise"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write outputs as .npy")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="compare: rtl with functional, functional with ONNX Runtime"),
    ] = False,
    dump_tensors: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write the quantised tensors as .npy")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="T.json", help="write a Perfetto trace (cycle, rtl)")
    ] = None,
    waves: Annotated[Path | None, typer.Option(metavar="F.fst", help="write waves (rtl)")] = None,
    latency: Annotated[
        int | None, typer.Option(min=0, help="memory latency in cycles (cycle, rtl)")
    ] = None,
    bytes_per_cycle: Annotated[
        float | None, typer.Option(min=0.01, help="memory bandwidth (cycle, rtl)")
    ] = None,
    shuffle: Annotated[
        int | None, typer.Option(metavar="SEED", help="any order the counters allow (functional)")
    ] = None,
    hw: Annotated[
        str | None,
        typer.Option("--hw", metavar="SPEC", help="refuse programs of other machines than this"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a program on an engine."""
    from opu_fuse.hw.load import load_hw
    from opu_fuse.pipeline import Program
    from opu_fuse.report import json as report_json
    from opu_fuse.report.tables import groups_table
    from opu_fuse.report.trace import trace_json
    from opu_fuse.sim.cycle import MemoryOptions
    from opu_fuse.sim.runner import RtlOptions

    _check_options(
        engine,
        [
            ("--trace", trace, TIMED),
            ("--latency", latency, TIMED),
            ("--bytes-per-cycle", bytes_per_cycle, TIMED),
            ("--waves", waves, (Engine.RTL,)),
            ("--shuffle", shuffle, (Engine.FUNCTIONAL,)),
            ("--input", inputs, WITH_DATA),
            ("--output", output, WITH_DATA),
            ("--dump-tensors", dump_tensors, WITH_DATA),
            ("--check", check or None, WITH_DATA),
        ],
    )
    loaded = Program.load(program)
    if hw is not None:
        loaded = Program(bundle=loaded.bundle, hw=load_hw(hw))
    arrays = read_inputs(inputs) or {}
    if not arrays and engine in WITH_DATA:
        from opu_fuse.sim.ports import noise

        logging.getLogger("opu_fuse").warning("no --input given: running on seeded noise")
        arrays = noise(loaded.bundle)
    capture = check or dump_tensors is not None
    options: dict[str, Any] = {"capture": capture, "shuffle": shuffle}
    if engine is Engine.CYCLE:
        options = {"memory": MemoryOptions(latency=latency, bytes_per_cycle=bytes_per_cycle)}
    elif engine is Engine.RTL:
        options["rtl"] = RtlOptions(waves=waves, latency=latency, bytes_per_cycle=bytes_per_cycle)
    with err.status(f"run on the {engine} engine"):
        result = loaded.run(arrays or None, engine=engine, **options)
        checked = _check(loaded, arrays, result, engine) if check else None
    if output is not None:
        write_arrays(output, result.outputs)
    if dump_tensors is not None:
        write_arrays(dump_tensors, {_qdq_name(loaded, n): a for n, a in result.tensors.items()})
    if trace is not None:
        write_text(trace, trace_json(loaded.bundle, result))
    if as_json:
        _print_json(report_json.run_json(loaded.bundle, loaded.hw, result, checked))
    else:
        out.print(groups_table(loaded.bundle, result))
        for name, array in result.outputs.items():
            out.print(f"{name}: {array.dtype}{list(array.shape)}", markup=False)
    if checked is not None:
        _report_check(checked, quiet=as_json)


@app.command()
def inspect(
    program: ProgramFile,
    asm: Annotated[bool, typer.Option("--asm", help="commented assembly")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="memory map")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="groups (default)")] = False,
    fused: Annotated[
        Path | None,
        typer.Option("--fused", metavar="F.onnx", help="write the model with groups as functions"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look into a program file."""
    from opu_fuse.bundle.listing import program_listing
    from opu_fuse.pipeline import Program
    from opu_fuse.report import json as report_json
    from opu_fuse.report.tables import groups_table, memory_table

    if as_json and asm:
        raise typer.BadParameter("--asm is text: leave --json out")
    loaded = Program.load(program)
    if fused is not None:
        from opu_fuse.bundle.fused import load_fused

        write_bytes(fused, load_fused(loaded.bundle).SerializeToString(deterministic=True))
    if as_json:
        _print_json(report_json.inspect_json(loaded.bundle, memory=memory))
        return
    if asm:
        out.print(program_listing(loaded.bundle, loaded.hw), markup=False)
    if memory:
        out.print(memory_table(loaded.bundle))
    if fused is not None:
        out.print(f"{fused}: {fused.stat().st_size} bytes", markup=False)
    if groups or not (asm or memory or fused):
        out.print(groups_table(loaded.bundle))


@app.command()
def asm(
    source: Annotated[Path, typer.Argument(metavar="PROGRAM.asm", help="assembly text")],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="PROGRAM.bin", help="words to write")
    ],
) -> None:
    """Assemble text into program words (little-endian)."""
    from opu_fuse.hw.asm import assemble
    from opu_fuse.hw.encoding import encode

    words = encode(assemble(read_text(source), str(source)))
    write_bytes(output, words.astype("<u4").tobytes())
    out.print(f"{output}: {len(words)} words", markup=False)


@hw_app.command("list")
def hw_list() -> None:
    """Specs that come with opu-fuse."""
    from opu_fuse.hw.load import load_hw, spec_names

    for name in spec_names():
        spec = load_hw(name)
        out.print(f"{name:12} {spec.macs:5} MAC/cycle  {spec.description}", markup=False)


@hw_app.command("show")
def hw_show(
    spec: Annotated[str, typer.Argument(help="name or path")],
    operators: Annotated[
        bool, typer.Option("--operators", help="which module runs which operator, and its limits")
    ] = False,
) -> None:
    """Sizes of a machine, or what it can run."""
    from opu_fuse.hw import show
    from opu_fuse.hw.load import load_hw

    loaded = load_hw(spec)
    if not operators:
        out.print(show.sizes_table(loaded))
        return
    from opu_fuse.fuse.operators import operators_table

    out.print(operators_table(loaded))


@hw_app.command("check")
def hw_check(file: Annotated[str, typer.Argument(help="YAML file, or name of a spec")]) -> None:
    """Explain every mistake of a spec; exit code 1 if there is one."""
    from opu_fuse.hw.load import problems

    found = problems(file)
    for problem in found:
        err.print(f"error: {problem}", markup=False)
    if found:
        raise typer.Exit(1)
    out.print(f"{file}: no mistakes found", markup=False)


@hw_app.command("draw")
def hw_draw(
    spec: Annotated[str, typer.Argument(help="name or path")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help=".svg or .dot file; without: text")
    ] = None,
) -> None:
    """Draw the hardware data-flow graph."""
    from opu_fuse.hw import draw
    from opu_fuse.hw.load import load_hw

    loaded = load_hw(spec)
    if output is None:
        out.print(draw.draw_text(loaded), markup=False)
        return
    drawers = {".svg": draw.draw_svg, ".dot": draw.draw_dot}
    if output.suffix not in drawers:
        raise typer.BadParameter(f"{output}: the suffix must be one of {', '.join(drawers)}")
    write_text(output, drawers[output.suffix](loaded))


@zoo_app.command("list")
def zoo_list() -> None:
    """Networks that can be exported."""
    from opu_fuse import zoo

    for name in zoo.names():
        out.print(f"{name:14} {zoo.description(name)}", markup=False)


@zoo_app.command("export")
def zoo_export(
    name: Annotated[str, typer.Argument(help="network")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="F.onnx", help="file to write")],
    seed: Annotated[int, typer.Option(help="seed of the weights")] = 0,
    image: Annotated[int | None, typer.Option(min=1, help="input height and width")] = None,
) -> None:
    """Write a network as float ONNX."""
    import onnx_ir as ir

    from opu_fuse import zoo

    with file_errors(output):
        ir.save(zoo.build(name, seed=seed, image=image), output)
    out.print(f"{output}: {output.stat().st_size} bytes", markup=False)


def _check_options(engine: Engine, options: list[tuple[str, object, tuple[Engine, ...]]]) -> None:
    """options: name, value (None: not given), engines that have it."""
    wrong = [name for name, value, has in options if value is not None and engine not in has]
    if wrong:
        why = "; it has no data" if engine is Engine.CYCLE else ""
        raise typer.BadParameter(f"{', '.join(wrong)}: not an option of the {engine} engine{why}")


@contextmanager
def _bar(stages: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal that moves on with every stage named to it."""
    if not err.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("load", total=stages, completed=-1)
        yield lambda stage: bar.update(task, description=stage, advance=1)


def _check(program: Any, arrays: Mapping[str, np.ndarray], result: Any, engine: Engine) -> Any:
    """RTL against functional, functional against ONNX Runtime."""
    from opu_fuse.sim.compare import check, compare

    if engine is Engine.RTL:
        return compare(program.bundle, program.run(arrays, capture=True), result)
    return check(program.bundle, arrays, result)


def _report_check(checked: Any, *, quiet: bool) -> None:
    if not quiet:
        out.print(
            f"check against {checked.reference}: {checked.mismatches} of {checked.elements} "
            "values differ "
            f"in {checked.tensors} tensors, largest difference {checked.max_abs_diff}",
            markup=False,
        )
    if not checked.passed:
        raise RunError(
            "check", str(checked.first or "nothing could be compared"), "see --dump-tensors"
        )


def _qdq_name(program: Any, name: str) -> str:
    stored = {t.name: t.qdq_name for t in program.bundle.tensors}
    inside = {s.name: s.qdq_name for g in program.bundle.groups for s in g.stages}
    return stored.get(name) or inside.get(name) or name


def _tile_lines(done: Any, spec: Any, node: str) -> tuple[str, ...]:
    from opu_fuse.schedule.explain import explain_tiles

    return tuple(explain_tiles(done.dfg, done.partition, done.plan, spec, node))


def _print_plain(text: str) -> None:
    err.print(text, markup=False, end="" if text.endswith("\n") else "\n")


def _print_json(value: Any) -> None:
    out.print(json.dumps(value, indent=2), markup=False)
