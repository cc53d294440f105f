"""Arguments that several verbs have."""

from pathlib import Path
from typing import Annotated

import typer

from opu_fuse.fuse.names import StrategyName

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
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object instead of tables")]
