"""A picture with what a network says of it: the best classes, or boxes around objects."""

import colorsys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from opu_fuse.errors import RunError
from opu_fuse.pictures import Preprocessing, pillow, upright
from opu_fuse.predictions import Boxes, Predictions, Scored
from opu_fuse.sim.array_files import read_text, write_bytes

_LINES = 32
"""Lines of text that a picture's shorter side would hold."""
_GOLDEN = 0.618034
"""Part of the circle of hues between two classes: neighbours differ, and no two are the same."""


def read_labels(file: Path) -> tuple[str, ...]:
    """Names of classes, one a line."""
    return tuple(line.strip() for line in read_text(file).splitlines())


def require_labels(labels: tuple[str, ...], classes: int | None, file: Path) -> None:
    """RunError where a network has another number of classes."""
    if classes is not None and len(labels) != classes:
        what = f"has {len(labels)} lines, the network {classes} classes"
        raise RunError(f"--labels {file}", what, "give a name for each class, one a line")


def in_picture(boxes: Boxes, preprocessing: Preprocessing, rows: int, cols: int) -> Boxes:
    """Boxes of a network's input as those of the picture that it was made of, cut at its borders.
    rows, cols: of the picture.
    """
    origin = preprocessing.origin(rows, cols)
    scale, first = np.array([origin.cols, origin.rows]), np.array([origin.left, origin.top])
    corners = boxes.corners.reshape(-1, 2, 2) * scale + first
    return boxes._replace(corners=np.clip(corners, 0, (cols - 1, rows - 1)).reshape(-1, 4))


def texts(found: tuple[Scored, ...] | Boxes, labels: tuple[str, ...]) -> list[str]:
    """A line for each class or box: its name and score."""
    if isinstance(found, Boxes):
        found = tuple(map(Scored, found.labels.tolist(), found.scores.tolist()))
    return [f"{_name(label, labels)} {score:.1%}" for label, score in found]


def draw(
    said: Predictions,
    file: Path,
    preprocessing: Preprocessing,
    labels: tuple[str, ...] = (),
) -> tuple[Any, list[str]]:
    """A picture of Pillow, and the lines on it. file: the picture that the network was given."""
    picture = upright(file).convert("RGB")
    canvas = pillow("PIL.ImageDraw").Draw(picture)
    size = max(min(picture.size) // _LINES, 10)
    font = pillow("PIL.ImageFont").load_default(size)
    lines = texts(said.found, labels)
    if not isinstance(said.found, Boxes):
        for i, line in enumerate(lines):
            _text(canvas, (size / 2, (0.5 + 1.5 * i) * size), line, (0, 0, 0), font)
        return picture, lines
    boxes = in_picture(said.found, preprocessing, picture.height, picture.width)
    marked = [*zip(boxes.corners.tolist(), boxes.labels.tolist(), lines, strict=True)]
    for corners, label, line in reversed(marked):  # the best on top
        canvas.rectangle(corners, outline=_colour(label), width=max(size // 5, 2))
        _text(canvas, (corners[0], max(corners[1] - 1.4 * size, 0)), line, _colour(label), font)
    return picture, lines


def save(picture: Any, target: Path) -> None:
    """Write a picture of Pillow as PNG or JPEG, by the suffix."""
    data = BytesIO()
    picture.save(data, format="PNG" if target.suffix == ".png" else "JPEG", quality=95)
    write_bytes(target, data.getvalue())


def _text(canvas: Any, at: tuple[float, float], text: str, back: Any, font: Any) -> None:
    """A text on a background, white or black, whichever is easier to read."""
    left, top, right, bottom = canvas.textbbox(at, text, font=font)
    left, right = left - 3, right + 3
    canvas.rectangle((left, top - 3, right, bottom + 3), fill=back)
    light = np.dot(back, (0.299, 0.587, 0.114)) > 140
    canvas.text(at, text, fill=(0, 0, 0) if light else (255, 255, 255), font=font)


def _name(label: int, labels: tuple[str, ...]) -> str:
    return labels[label] if 0 <= label < len(labels) and labels[label] else f"class {label}"


def _colour(label: int) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in colorsys.hsv_to_rgb(label * _GOLDEN % 1, 0.8, 0.95))
