"""Arguments that several verbs have."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from opu_fuse.array_layout import ArrayLayout
from opu_fuse.errors import UserError
from opu_fuse.frontend.choice_names import Method, Scales
from opu_fuse.fuse.strategies.strategy_names import StrategyName


def machines(incomplete: str) -> list[str]:
    """Specs of the package that begin with a text, for the shell."""
    from opu_fuse.hw.spec.load_spec import spec_names

    return [name for name in spec_names() if name.startswith(incomplete)]


def networks(incomplete: str) -> list[str]:
    """Networks of the package that begin with a text, for the shell."""
    from opu_fuse import zoo

    return [name for name in zoo.names() if name.startswith(incomplete)]


def require_suffix(path: Path, known: Collection[str]) -> None:
    """Raises a usage error for an output file with another suffix."""
    if path.suffix not in known:
        raise typer.BadParameter(f"{path}: the suffix must be one of {', '.join(known)}")


def number(value: float | None) -> float | None:
    """Ranges say nothing about what is no number."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number")
    return value


Model = Annotated[
    Path, typer.Argument(metavar="MODEL.onnx", help="ONNX or TFLite model: float, QDQ or QOperator")
]
FloatModel = Annotated[
    Path, typer.Argument(metavar="MODEL.onnx", help="ONNX or TFLite model in floats")
]
ProgramFile = Annotated[
    Path, typer.Argument(metavar="OUT.opu", help="program that `compile` wrote")
]
Hw = Annotated[
    str,
    typer.Option(
        "--hw",
        metavar="SPEC",
        help="machine: a name from `hw list`, or the path of a YAML file",
        autocompletion=machines,
    ),
]
Strategy = Annotated[
    StrategyName, typer.Option(help="how operators are grouped (docs/fusing-strategies.md)")
]
Budget = Annotated[
    float,
    typer.Option(
        min=0.001,
        metavar="TIMES",
        help="scale the limits on the size of a model (docs/models.md)",
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR|FILE",
        help="representative inputs for a float model: a folder of .npy or .npz files, or one such "
        "file; default: seeded noise, with a warning",
    ),
]
Pictures = Annotated[
    Path | None,
    typer.Option(
        "--pictures",
        metavar="P.yaml",
        help="sizes, mean and std by which JPEG and PNG files become inputs (docs/your-model.md)",
    ),
]
ScalesOf = Annotated[Scales, typer.Option(help="scales of a float model (docs/models.md)")]
CalibrationMethod = Annotated[Method, typer.Option(help="range estimation method for activations")]
BiasCorrection = Annotated[
    bool,
    typer.Option(
        "--bias-correction", help="correct biases for the mean error of quantised weights"
    ),
]
Equalisation = Annotated[
    bool,
    typer.Option("--equalisation", help="equalise channels between layers and in streams"),
]
KeepFloat = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-float",
        metavar="NODE",
        help="leave an operator in float, on the host CPU; NODE.. also all that depend on it",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="INPUT=1,3,320,320", help="shape of an input with dynamic dimensions"
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=320", help="size of every dynamic dimension of that name"),
]
Batch = Annotated[
    int,
    typer.Option(
        "--batch", min=1, metavar="N", help="images that one run of the program processes"
    ),
]
Wide = Annotated[bool, typer.Option("--wide", help="do not wrap or shorten table cells")]
Layout = Annotated[
    ArrayLayout,
    typer.Option(
        "--layout",
        help="axes of four-dimensional arrays; auto: nhwc where the shape fits no other way",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object instead of tables")]


def shapes_of(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """`NAME=1,3,320,320` texts -> shapes by name."""
    return {name: _numbers("--shape", name, text) for name, text in _parts("--shape", texts)}


def dims_of(texts: list[str] | None) -> dict[str, int]:
    """`NAME=320` texts -> sizes by name."""
    results = {name: _numbers("--dim", name, text) for name, text in _parts("--dim", texts)}
    for name, numbers in results.items():
        if len(numbers) != 1:
            raise typer.BadParameter(f"--dim {name} takes one number, got {len(numbers)}")
    return {name: numbers[0] for name, numbers in results.items()}


def _parts(option: str, texts: list[str] | None) -> list[tuple[str, str]]:
    parts = [text.rpartition("=") for text in texts or ()]
    names = [name for name, _, _ in parts]
    for name, _, text in parts:
        if not name:
            raise typer.BadParameter(f"{option} {text} has no NAME= before its numbers")
        if names.count(name) > 1:
            raise typer.BadParameter(f"{option} {name} is repeated")
    return [(name, text) for name, _, text in parts]


def _numbers(option: str, name: str, text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise typer.BadParameter(
            f"{option} {name}: {text!r} is not a list of numbers such as 1,3,320,320"
        )
    return tuple(map(int, numbers))


Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:PORT", help="address of a Dask scheduler; default: local processes"
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="number of local processes; default: one per core"),
]


def with_pictures(data: Path | None, settings: Path | None) -> Any:
    """Calibration or other data: an array where it is pictures, else as it was given. Raises
    UserError for pictures without settings.
    """
    from opu_fuse.pictures import is_pictures, load_pictures  # few calls have any

    if data is None or not is_pictures(data):
        return data
    if settings is None:
        what = "is pictures, and nothing says how they become inputs"
        raise UserError(str(data), what, "give --pictures P.yaml")
    return load_pictures(data, settings)


def require_pictures(settings: Path | None, *data: Path | None) -> None:
    """A usage error for settings without pictures."""
    from opu_fuse.pictures import is_pictures

    if settings is not None and not any(d is not None and is_pictures(d) for d in data):
        raise typer.BadParameter("--pictures: no input is a picture or a folder of pictures alone")
