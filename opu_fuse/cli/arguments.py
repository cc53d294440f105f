"""Arguments that several verbs have."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.fuse.names import StrategyName


class Scales(StrEnum):
    """Scales of a quantised float model."""

    POW2 = "pow2"
    FREE = "free"


Model = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="float or QDQ ONNX model")]
ProgramFile = Annotated[Path, typer.Argument(metavar="OUT.opu", help="compiled program")]
Hw = Annotated[
    str, typer.Option("--hw", metavar="SPEC", help="name of a spec, or path of a YAML file")
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
KeepFloat = Annotated[
    list[str] | None,
    typer.Option("--keep-float", metavar="NODE", help="leave an operator unrounded, to the host"),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object instead of tables")]
