"""What the output of a classifier or a YOLO detector says.

| shape | of | a box |
|---|---|---|
| (1, classes) and sizes of 1 | classifiers | – |
| (1, 4 + classes, n) | YOLOv8, YOLO11 | centre x and y, width, height, a score for each class |
| (1, n, 5 + classes) | YOLOv5 | the same, with the score of any object before those of classes |
| (1, 300, 6) | YOLOv10, YOLO26 | left, top, right, bottom, score, class; suppressed already |

Coordinates are pixels of the network's input.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from opu_fuse.errors import RunError

BEST = 5
"""Classes of a classifier that are shown."""
MOST_BOXES = 300
SAME_OBJECT = 0.45
"""Intersection over union from which two boxes of one class are the same object."""
_END_TO_END = (300, 6)
_KNOWN = "(1, classes), (1, 4 + classes, n), (1, n, 5 + classes) or (1, 300, 6)"


class Scored(NamedTuple):
    """A class and its score."""

    label: int
    score: float


class Boxes(NamedTuple):
    """Objects, best first. corners: (n, 4), left, top, right, bottom in pixels of the input;
    scores, labels: (n,).
    """

    corners: np.ndarray
    scores: np.ndarray
    labels: np.ndarray


class Predictions(NamedTuple):
    """What one image shows: classes or boxes, of how many classes (None: the output has no such
    number).
    """

    found: tuple[Scored, ...] | Boxes
    classes: int | None


def predictions(outputs: Mapping[str, np.ndarray], min_score: float) -> Predictions:
    """Of the outputs for one image. min_score: of boxes. Raises RunError for outputs of other
    shapes, or more than one.
    """
    if len(outputs) != 1:
        what = f"the network has {len(outputs)} outputs ({', '.join(outputs)})"
        raise RunError("--draw", what, f"draw networks with one output of shape {_KNOWN}")
    ((name, array),) = outputs.items()
    values = array[0].astype(np.float32) if array.ndim > 1 and array.shape[0] == 1 else None
    if values is not None and values.size == max(values.shape) > 1:
        return Predictions(best_classes(values.ravel()), values.size)
    found = None if values is None or values.ndim != 2 else _candidates(values)
    if found is None:
        what = f"shape {list(array.shape)} is neither that of a classifier nor of a YOLO detector"
        raise RunError(f"--draw: output {name}", what, f"draw outputs of shape {_KNOWN}")
    boxes, classes = found
    clear = _only(boxes, boxes.scores >= min_score)
    return Predictions(_best_first(clear) if classes is None else suppressed(clear), classes)


def best_classes(values: np.ndarray) -> tuple[Scored, ...]:
    """The best classes. Values from 0 to 1 are scores, others become scores by Softmax."""
    if values.min() < 0 or values.max() > 1:
        powers = np.exp(values - values.max())
        values = powers / powers.sum()
    best = np.argsort(-values, kind="stable")[:BEST]
    return tuple(Scored(int(label), float(values[label])) for label in best)


def suppressed(boxes: Boxes) -> Boxes:
    """Non-maximum suppression within each class; at most MOST_BOXES of all, best first."""
    boxes = _best_first(boxes)
    kept: list[int] = []
    for i, (corners, label) in enumerate(zip(boxes.corners, boxes.labels, strict=True)):
        same = [k for k in kept if boxes.labels[k] == label]
        if (overlaps(corners, boxes.corners[same]) < SAME_OBJECT).all():
            kept.append(i)
        if len(kept) == MOST_BOXES:
            break
    return _only(boxes, np.array(kept, np.intp))


def overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Intersection over union of a box (4,) with others (n, 4)."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    return common / np.maximum(np.prod(box[2:] - box[:2]) + areas - common, 1e-9)


def _candidates(values: np.ndarray) -> tuple[Boxes, int | None] | None:
    """All boxes of an output, and the classes that it has scores of; None for another output."""
    if values.shape == _END_TO_END:
        return Boxes(values[:, :4], values[:, 4], values[:, 5].astype(int)), None
    first, second = values.shape
    if 5 <= first < second:
        return _centred(values[:4].T, values[4:].T), first - 4
    if 6 <= second < first:
        return _centred(values[:, :4], values[:, 4:5] * values[:, 5:]), second - 5
    return None


def _centred(boxes: np.ndarray, scores: np.ndarray) -> Boxes:
    """boxes: (n, 4) centres and sizes; scores: (n, classes)."""
    half = boxes[:, 2:] / 2
    corners = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    return Boxes(corners, scores.max(axis=1), scores.argmax(axis=1))


def _best_first(boxes: Boxes) -> Boxes:
    return _only(boxes, np.argsort(-boxes.scores, kind="stable"))


def _only(boxes: Boxes, which: np.ndarray) -> Boxes:
    return Boxes(*(part[which] for part in boxes))
