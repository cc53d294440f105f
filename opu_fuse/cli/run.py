"""`opu-fuse run`."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from opu_fuse.array_layout import ArrayLayout, channels_first
from opu_fuse.cli.arguments import (
    AsJson,
    Layout,
    Pictures,
    ProgramFile,
    Wide,
    require_pictures,
    with_pictures,
)
from opu_fuse.cli.console import out, print_json
from opu_fuse.cli.drawing import Draw, Labels, MinScore, drawing_of
from opu_fuse.cli.memory_options import BytesPerCycle, Latency, Memory, Waves, memory_port
from opu_fuse.cli.progress import progress
from opu_fuse.errors import RunError
from opu_fuse.sim.array_files import (
    read_array,
    read_inputs,
    require_folders,
    require_targets,
    write_arrays,
    write_text,
)
from opu_fuse.sim.engine_names import EngineName as Engine

TIMED = (Engine.CYCLE, Engine.RTL)
WITH_DATA = (Engine.FUNCTIONAL, Engine.NATIVE, Engine.RTL)


def run(
    program: ProgramFile,
    engine: Annotated[
        Engine, typer.Option(help="what to run on; native: the functional engine in C")
    ] = Engine.FUNCTIONAL,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=X.npy|X.npz",
            help="an input tensor, or a file of all; with --pictures [NAME=]PATH of a picture or "
            "a folder of pictures; default: seeded noise (functional, native, rtl)",
        ),
    ] = None,
    pictures: Pictures = None,
    layout: Layout = ArrayLayout.AUTO,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="write the outputs as .npy (functional, native, rtl)"),
    ] = None,
    draw: Draw = None,
    labels: Labels = None,
    min_score: MinScore = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="compare rtl and native with functional, functional with ONNX Runtime, bit by bit",
        ),
    ] = False,
    groups: Annotated[
        bool,
        typer.Option(
            "--groups", help="print the table of groups; cycle and rtl do without --check"
        ),
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.onnx",
            help="compiled model, for --check; default: the file with the right hash next to the "
            "program or in the current folder",
        ),
    ] = None,
    dump_tensors: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="write the quantised tensors as .npy (functional, native, rtl)"
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="T.json", help="write a trace for https://ui.perfetto.dev (cycle, rtl)"
        ),
    ] = None,
    waves: Waves = None,
    latency: Latency = None,
    bytes_per_cycle: BytesPerCycle = None,
    memory: Memory = None,
    shuffle: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="SEED",
            help="run in a random order that the dependency counters allow (functional)",
        ),
    ] = None,
    hw: Annotated[
        str | None,
        typer.Option(
            "--hw", metavar="SPEC", help="refuse a program that was compiled for another machine"
        ),
    ] = None,
    wide: Wide = False,
    as_json: AsJson = False,
) -> None:
    """Run a program on the functional, native, cycle or RTL engine."""
    from opu_fuse.report import json_trees as report_json
    from opu_fuse.report.trace import trace_json
    from opu_fuse.sim.cycle.run import MemoryOptions
    from opu_fuse.sim.runner import RtlOptions, require_waves

    _check_options(
        engine,
        [
            ("--trace", trace, TIMED),
            ("--latency", latency, TIMED),
            ("--bytes-per-cycle", bytes_per_cycle, TIMED),
            ("--memory", memory, TIMED),
            ("--waves", waves, (Engine.RTL,)),
            ("--shuffle", shuffle, (Engine.FUNCTIONAL,)),
            ("--input", inputs, WITH_DATA),
            ("--output", output, WITH_DATA),
            ("--draw", draw, WITH_DATA),
            ("--labels without --draw", None if draw else labels, ()),
            ("--min-score without --draw", None if draw else min_score, ()),
            ("--dump-tensors", dump_tensors, WITH_DATA),
            ("--check", check or None, WITH_DATA),
            ("--model without --check", None if check else model, ()),
        ],
    )
    port = memory_port(latency, bytes_per_cycle, memory)
    require_targets(trace, waves, draw)
    require_folders(output, dump_tensors)
    if waves is not None:
        require_waves(waves)
    loaded = _loaded(program, hw)
    users = _model(loaded, program, model) if check else None
    drawing = drawing_of(draw, labels, min_score, inputs, pictures)
    if drawing is not None:
        drawing.require(loaded.bundle)
    arrays = _arrays(loaded, inputs, pictures, layout)
    random = not arrays
    if random and engine in WITH_DATA:
        from opu_fuse.sim.ports import noise

        logging.getLogger("opu_fuse").warning("no --input: running on seeded noise")
        arrays = noise(loaded.bundle)
    capture = check or dump_tensors is not None
    options: dict[str, Any] = {"capture": capture, "shuffle": shuffle}
    if engine is Engine.CYCLE:
        options = {"memory": MemoryOptions(**port)}
    elif engine is Engine.RTL:
        options["rtl"] = RtlOptions(waves=waves, **port)
    with progress() as show:
        show(f"run on the {engine} engine", 0.0)
        result = loaded.run(arrays or None, engine=engine, **options)
        checked = _check(loaded, arrays, result, engine, users, random=random) if check else None
    if output is not None:
        write_arrays(output, result.outputs)
    if dump_tensors is not None:
        write_arrays(dump_tensors, {_qdq_name(loaded, n): a for n, a in result.tensors.items()})
    drawn = drawing.write(result.outputs) if drawing is not None else []
    if trace is not None:
        write_text(trace, trace_json(loaded.bundle, result))
    if as_json:
        print_json(report_json.run_json(loaded.bundle, loaded.hw, result, checked))
    else:
        _print_result(loaded, result, groups=groups, checked=check, wide=wide)
        for line in drawn:
            out.print(line)
    if checked is not None:
        _report_check(checked, quiet=as_json)


def _check_options(engine: Engine, options: list[tuple[str, object, tuple[Engine, ...]]]) -> None:
    """options: name, value (None: absent), engines that have it."""
    wrong = [name for name, value, has in options if value is not None and engine not in has]
    if wrong:
        why = "; it has no data" if engine is Engine.CYCLE else ""
        raise typer.BadParameter(f"{', '.join(wrong)}: not an option of the {engine} engine{why}")


def _loaded(program: Path, hw: str | None) -> Any:
    """The program; ProgramError where it was compiled for another machine than `hw`."""
    from opu_fuse.hw.spec.load_spec import load_hw
    from opu_fuse.pipeline import Program
    from opu_fuse.sim.engine import require_machine

    loaded = Program.load(program)
    if hw is None:
        return loaded
    loaded = Program(bundle=loaded.bundle, hw=load_hw(hw))
    require_machine(loaded.bundle, loaded.hw)
    return loaded


def _print_result(program: Any, result: Any, *, groups: bool, checked: bool, wide: bool) -> None:
    """The table of groups where it is asked for, or was measured and nothing else is; the cycles of
    engines that have them; the outputs.
    """
    from opu_fuse.report.group_rows import has_cycles
    from opu_fuse.report.tables import groups_table, total_line

    timed = has_cycles(result)
    if groups or (timed and not checked):
        out.print(groups_table(program.bundle, result, wide=wide))
    if timed:
        out.print(total_line(program.bundle, result))
    for name, array in result.outputs.items():
        out.print(f"{name}: {array.dtype}{list(array.shape)}")


def _arrays(
    program: Any, inputs: list[str] | None, pictures: Path | None, layout: ArrayLayout
) -> Mapping[str, np.ndarray]:
    """Inputs by name; none without `inputs`."""
    pairs = [_named(program, text) for text in inputs or ()]
    require_pictures(pictures, *(Path(pair.partition("=")[2]) for pair in pairs))

    def read(path: Path) -> np.ndarray:
        given = with_pictures(path, pictures)
        return given if isinstance(given, np.ndarray) else read_array(path)

    return _channels_first(program, read_inputs(pairs, read) or {}, layout)


def _named(program: Any, text: str) -> str:
    """A picture or a folder of pictures as NAME=PATH of the only input; other texts unchanged."""
    from opu_fuse.pictures import is_pictures  # few calls have any

    if "=" in text or not is_pictures(Path(text)):
        return text
    names = [port.name for port in program.bundle.inputs]
    if len(names) != 1:
        what = f"does not say which of the inputs {', '.join(names)} it is"
        raise RunError(f"--input {text}", what, f"give NAME={text}")
    return f"{names[0]}={text}"


def _channels_first(
    program: Any, arrays: Mapping[str, np.ndarray], layout: ArrayLayout
) -> dict[str, np.ndarray]:
    """The arrays with the axes of the model's inputs."""
    shapes = {port.name: port.shape for port in program.bundle.inputs}
    return {
        name: channels_first(f"input {name}", array, shapes[name], layout)
        if layout is ArrayLayout.NHWC and name in shapes
        else array
        for name, array in arrays.items()
    }


def _model(program: Any, file: Path, named: Path | None) -> Path | None:
    from opu_fuse.sim.compare.users_model import find_model

    return find_model(program.bundle, file, named)


def _check(
    program: Any,
    arrays: Mapping[str, np.ndarray],
    result: Any,
    engine: Engine,
    users: Path | None,
    *,
    random: bool,
) -> Any:
    """RTL and native against functional, functional against ONNX Runtime, all against the user's
    model.
    """
    from opu_fuse.sim.compare.runs import check, compare
    from opu_fuse.sim.compare.users_model import of_model

    if engine in (Engine.RTL, Engine.NATIVE):
        outcome = compare(program.bundle, program.run(arrays, capture=True), result)
    else:
        outcome = check(program.bundle, arrays, result)
    against_model = replace(of_model(program.bundle, arrays, result, users), noise=random)
    return replace(outcome, of_model=against_model)


def _report_check(checked: Any, *, quiet: bool) -> None:
    from opu_fuse.report.tables import check_lines

    if not quiet:
        for line in check_lines(checked):
            out.print(line)
    if not checked.compared:
        raise RunError(
            "check",
            "nothing was compared: the run shows none of the quantised tensors",
            "compile with --keep-tensors",
        )
    if not checked.passed:
        raise RunError("check", str(checked.first or checked.beyond), "see --dump-tensors")


def _qdq_name(program: Any, name: str) -> str:
    stored = {t.name: t.qdq_name for t in program.bundle.tensors}
    inside = {s.name: s.qdq_name for g in program.bundle.groups for s in g.stages}
    return stored.get(name) or inside.get(name) or name
