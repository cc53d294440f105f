"""Arguments that several verbs have."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.frontend.choice_names import Method, Scales
from opu_fuse.fuse.strategies.strategy_names import StrategyName


def machines(incomplete: str) -> list[str]:
    """Specs of the package that begin so, for the shell."""
    from opu_fuse.hw.spec.load_spec import spec_names

    return [name for name in spec_names() if name.startswith(incomplete)]


def networks(incomplete: str) -> list[str]:
    """Networks of the package that begin so, for the shell."""
    from opu_fuse import zoo

    return [name for name in zoo.names() if name.startswith(incomplete)]


def require_suffix(path: Path, known: Collection[str]) -> None:
    """A usage error where a file to write is called as of another kind."""
    if path.suffix not in known:
        raise typer.BadParameter(f"{path}: the suffix must be one of {', '.join(known)}")


Model = Annotated[
    Path, typer.Argument(metavar="MODEL.onnx", help="ONNX or TFLite: float, QDQ or QOperator")
]
FloatModel = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="ONNX or TFLite, in floats")]
ProgramFile = Annotated[Path, typer.Argument(metavar="OUT.opu", help="compiled program")]
Hw = Annotated[
    str,
    typer.Option(
        "--hw",
        metavar="SPEC",
        help="name of a spec, or path of a YAML file",
        autocompletion=machines,
    ),
]
Strategy = Annotated[StrategyName, typer.Option(help="how operators are grouped")]
Budget = Annotated[
    float,
    typer.Option(min=0.001, metavar="TIMES", help="allow networks this many times the usual size"),
]
Calibration = Annotated[
    Path | None, typer.Option(help="directory of .npy/.npz, or .npz, with real inputs")
]
ScalesOf = Annotated[Scales, typer.Option(help="scales of a float model")]
CalibrationMethod = Annotated[
    Method, typer.Option(help="which numbers of a map its scale is to hold")
]
BiasCorrection = Annotated[
    bool,
    typer.Option("--bias-correction", help="take what rounded weights add on average off biases"),
]
Equalisation = Annotated[
    bool,
    typer.Option("--equalisation", help="bring the channels between two layers to one size"),
]
KeepFloat = Annotated[
    list[str] | None,
    typer.Option("--keep-float", metavar="NODE", help="leave an operator unrounded, to the host"),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1,3,320,320", help="shape of an input that is dynamic"),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=320", help="size of a dynamic dimension, by its name"),
]
Batch = Annotated[
    int,
    typer.Option("--batch", min=1, metavar="N", help="images that a program runs together"),
]
Wide = Annotated[bool, typer.Option("--wide", help="whole names and all columns in tables")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object instead of tables")]


def shapes_of(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """`NAME=1,3,320,320` texts -> shapes by name."""
    return {name: _numbers("--shape", name, text) for name, text in _parts("--shape", texts)}


def dims_of(texts: list[str] | None) -> dict[str, int]:
    """`NAME=320` texts -> sizes by name."""
    results = {name: _numbers("--dim", name, text) for name, text in _parts("--dim", texts)}
    for name, numbers in results.items():
        if len(numbers) != 1:
            raise typer.BadParameter(f"--dim {name} takes one number, {len(numbers)} are given")
    return {name: numbers[0] for name, numbers in results.items()}


def _parts(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    parts = [text.rpartition("=") for text in texts or ()]
    names = [name for name, _, _ in parts]
    for name, _, text in parts:
        if not name:
            raise typer.BadParameter(f"{option} {text} has no NAME= in front of its numbers")
        if names.count(name) > 1:
            raise typer.BadParameter(f"{option} {name} stands twice")
    return [(name, text) for name, _, text in parts]


def _numbers(option: str, name: str, text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise typer.BadParameter(f"{option} {name}: {text!r} is no list of numbers as 1,3,320,320")
    return tuple(map(int, numbers))


Cluster = Annotated[
    str | None,
    typer.Option(metavar="tcp://…", help="a Dask scheduler; else processes of this machine"),
]
Jobs = Annotated[int | None, typer.Option(min=1, help="processes of this machine; else one a core")]
