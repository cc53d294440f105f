"""`opu-fuse run --draw`: a picture with what the network says of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from opu_fuse.cli.arguments import number, require_suffix
from opu_fuse.pictures import Preprocessing

SUFFIXES = (".png", ".jpg", ".jpeg")
MIN_SCORE = 0.25

Draw = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT.png",
        help="draw on the picture of --input: the five best classes of a classifier, the boxes of "
        "a YOLO detector (docs/your-model.md) (functional, native, rtl)",
    ),
]
Labels = Annotated[
    Path | None, typer.Option(metavar="NAMES.txt", help="names of classes, one a line, for --draw")
]
MinScore = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        callback=number,
        metavar="X",
        help=f"least score of a box, for --draw; default: {MIN_SCORE}",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What to draw on, and how."""

    picture: Path
    target: Path
    preprocessing: Preprocessing
    labels: Path | None
    names: tuple[str, ...]
    min_score: float

    def require(self, bundle: Any) -> None:
        """RunError before a run whose outputs could not be drawn."""
        self._said({port.name: np.zeros(port.shape, np.float32) for port in bundle.outputs})

    def write(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        """The file; what it shows, as lines."""
        from opu_fuse.drawing import draw, save

        said = self._said(outputs)
        picture, lines = draw(said, self.picture, self.preprocessing, self.names)
        save(picture, self.target)
        return [*lines, f"drawn: {self.target}"] if lines else [self._nothing()]

    def _nothing(self) -> str:
        return f"drawn: {self.target}; no box has a score of {self.min_score:.0%} or more"

    def _said(self, outputs: Mapping[str, np.ndarray]) -> Any:
        from opu_fuse.drawing import require_labels
        from opu_fuse.predictions import predictions

        said = predictions(outputs, self.min_score)
        if self.labels is not None:
            require_labels(self.names, said.classes, self.labels)
        return said


def drawing_of(
    target: Path | None,
    labels: Path | None,
    min_score: float | None,
    inputs: list[str] | None,
    pictures: Path | None,
) -> Drawing | None:
    """The options together; None without --draw. A usage error for inputs that are not one
    picture.
    """
    if target is None:
        return None
    from opu_fuse.drawing import read_labels
    from opu_fuse.pictures import is_pictures, load_preprocessing

    require_suffix(target, SUFFIXES)
    given = [Path(text.rpartition("=")[2]) for text in inputs or ()]
    if len(given) != 1 or given[0].is_dir() or not is_pictures(given[0]) or pictures is None:
        raise typer.BadParameter("--draw takes one picture: --input X.jpg --pictures P.yaml")
    return Drawing(
        picture=given[0],
        target=target,
        preprocessing=load_preprocessing(pictures),
        labels=labels,
        names=() if labels is None else read_labels(labels),
        min_score=MIN_SCORE if min_score is None else min_score,
    )
