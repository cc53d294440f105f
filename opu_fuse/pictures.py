"""JPEG and PNG files as inputs of a network, by the preprocessing that it was trained with.

The preprocessing is a YAML file::

    resize: 256                   # shorter side; [rows, columns]: exactly
    crop: 224                     # the middle; [rows, columns]
    letterbox: 640                # instead of both: the whole picture in this size, its proportions
    fill: 114                     # kept, in the middle of pixels of this value
    mean: [0.485, 0.456, 0.406]   # of each channel, subtracted
    std: [0.229, 0.224, 0.225]    # then divided by
    range: 1                      # of pixels before that: 0 to 1, or to 255 as in the file
    channels: rgb                 # bgr, grey
    layout: nchw                  # nhwc
    dtype: float32                # uint8: pixels as they are
"""

import json
import warnings
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from opu_fuse.errors import ModelError, UserError
from opu_fuse.extras import library
from opu_fuse.hw.spec.yaml_tree import parse_tree
from opu_fuse.input_arrays import ARRAY_SUFFIXES
from opu_fuse.process.sandbox import ForeignError, complaints
from opu_fuse.sim.array_files import read_text

SUFFIXES = (".jpg", ".jpeg", ".png")
_MOST_PIXELS = 1 << 26
"""Pixels of a picture: more do not belong to a network's input."""
_FEWER = f"give at most {_MOST_PIXELS:,} pixels"
_BYTE = 255


class Channels(StrEnum):
    """Order of the channels."""

    RGB = "rgb"
    BGR = "bgr"
    GREY = "grey"


Side = Annotated[int, Field(ge=1, le=1 << 14)]
Size = Side | tuple[Side, Side]


class Origin(NamedTuple):
    """Where a sample's pixels are in the picture: its first row and column (negative where the
    sample has a margin), and the rows and columns of the picture for one of the sample.
    """

    top: float
    left: float
    rows: float
    cols: float


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Preprocessing:
    """What a network's input needs; see the file for the keys."""

    resize: Size | None = None
    crop: Size | None = None
    letterbox: Size | None = None
    fill: Annotated[int, Field(ge=0, le=_BYTE)] = 114
    mean: tuple[float, ...] = (0.0,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (1.0,)
    range: Literal[1, 255] = 1
    channels: Channels = Channels.RGB
    layout: Literal["nchw", "nhwc"] = "nchw"
    dtype: Literal["float32", "uint8"] = "float32"

    def __post_init__(self) -> None:
        """Raises ValueError for numbers that do not fit each other."""
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.planes):
                raise ValueError(f"{name} has {len(values)} numbers for {self.planes} channels")
        if self.dtype == "uint8" and (set(self.mean), set(self.std)) != ({0.0}, {1.0}):
            raise ValueError("pixels of uint8 are taken as they are: leave out mean and std")
        if self.letterbox is not None and (self.resize, self.crop) != (None, None):
            raise ValueError("a letterbox has a size of its own: leave out resize and crop")

    @property
    def planes(self) -> int:
        """Channels of a sample."""
        return 1 if self.channels is Channels.GREY else 3

    def prepared(self, picture: Any, where: str) -> np.ndarray:
        """A picture of Pillow as one sample, (1, …) in layout and dtype. Raises ModelError, naming
        `where`, for one that is too small or too long.
        """
        picture = picture.convert("L" if self.channels is Channels.GREY else "RGB")
        rows, cols = self._resized(picture.height, picture.width)
        if rows * cols > _MOST_PIXELS:
            raise ModelError(where, f"has {rows} x {cols} pixels after `resize`", _FEWER)
        if (rows, cols) != (picture.height, picture.width):
            picture = picture.resize((cols, rows), resample=_bilinear())
        pixels = np.asarray(picture).reshape(picture.height, picture.width, self.planes)
        if self.crop is not None:
            pixels = _middle(pixels, self.crop, where)
        if self.letterbox is not None:
            pixels = _padded(pixels, self.letterbox, self.fill)
        if self.channels is Channels.BGR:
            pixels = pixels[..., ::-1]
        if self.dtype == "float32":
            scaled = pixels * np.float32(self.range / _BYTE)
            pixels = (scaled - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        if self.layout == "nchw":
            pixels = pixels.transpose(2, 0, 1)
        return np.ascontiguousarray(pixels[np.newaxis], self.dtype)

    def origin(self, rows: int, cols: int) -> Origin:
        """Of the sample that a picture of such sizes becomes."""
        high, wide = self._resized(rows, cols)
        top, left = 0, 0
        if self.crop is not None:
            top, left = _offsets(high, wide, *_both(self.crop))
        elif self.letterbox is not None:
            top, left = (-n for n in _margins(high, wide, *_both(self.letterbox)))
        down, right = rows / high, cols / wide
        return Origin(top=top * down, left=left * right, rows=down, cols=right)

    def _resized(self, rows: int, cols: int) -> tuple[int, int]:
        """Sizes of a picture of such sizes when it has been resized."""
        if self.letterbox is not None:
            return _inside(self.letterbox, rows, cols)
        return (rows, cols) if self.resize is None else _target(self.resize, rows, cols)


_adapter = TypeAdapter(Preprocessing)


def load_preprocessing(path: str | Path) -> Preprocessing:
    """Read the YAML file. Raises UserError naming the key."""
    tree = parse_tree(read_text(Path(path)), str(path)).value
    try:
        return _adapter.validate_json(json.dumps(tree))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else "the file"
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] == "unexpected_keyword_argument":
            what = "there is no such key"
        help_ = f"keys are {', '.join(f.name for f in fields(Preprocessing))}"
        raise UserError(str(path), f"{key}: {what}", help_) from None


def is_pictures(path: Path) -> bool:
    """Whether a path is a picture, or a folder of pictures. One that has arrays is a folder of
    arrays.
    """
    has_arrays = path.is_dir() and any(p.suffix in ARRAY_SUFFIXES for p in path.iterdir())
    return bool(_files(path)) and not has_arrays


def load_pictures(path: str | Path, preprocessing: Preprocessing | str | Path) -> np.ndarray:
    """Samples (N, …) of a picture, or of all pictures in a folder, by name.

    preprocessing: or the path of its YAML file. Raises ModelError for files that are no pictures
    and where their sizes differ after preprocessing.
    """
    path = Path(path)
    if not isinstance(preprocessing, Preprocessing):
        preprocessing = load_preprocessing(preprocessing)
    files = _files(path)
    if not files:
        what = "holds no pictures" if path.is_dir() else "is no picture or folder of pictures"
        raise ModelError(str(path), what, f"give {', '.join(SUFFIXES)} files")
    samples = [_sample(file, preprocessing) for file in files]
    for file, sample in zip(files, samples, strict=True):
        if sample.shape != samples[0].shape:
            what = f"is {list(sample.shape)}, {files[0].name} is {list(samples[0].shape)}"
            raise ModelError(str(file), what, "give `resize` two sizes, or a `crop`")
    return np.concatenate(samples)


def _files(path: Path) -> list[Path]:
    candidates = sorted(path.iterdir()) if path.is_dir() else [path]
    return [p for p in candidates if p.suffix.lower() in SUFFIXES and p.is_file()]


def pillow(module: str) -> Any:
    """A module of Pillow. Raises RunError where it is not installed."""
    return library(module, where="pictures", purpose="they are read by", extra="pictures")


def _bilinear() -> Any:
    return pillow("PIL.Image").Resampling.BILINEAR


def _sample(file: Path, preprocessing: Preprocessing) -> np.ndarray:
    return preprocessing.prepared(upright(file), str(file))


def upright(file: Path) -> Any:
    """A picture of Pillow with its pixels, turned as viewers do. Raises ModelError for a file that
    is none or too large.
    """
    where, image = str(file), pillow("PIL.Image")
    try:
        with complaints(), _opened(image, file) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                raise ModelError(where, f"has {picture.height} x {picture.width} pixels", _FEWER)
            if picture.mode.startswith("I"):  # Pillow would cut off what exceeds a byte
                raise ModelError(where, "has 16 bits for each pixel", "save it with 8 bits")
            return pillow("PIL.ImageOps").exif_transpose(picture)
    except ForeignError as error:
        raise ModelError(where, f"is no picture ({error})", "give JPEG or PNG files") from None


def _opened(image: Any, file: Path) -> Any:
    """A picture, its pixels not read. Pillow's own limits of them are higher ones."""
    try:
        with warnings.catch_warnings(action="ignore", category=image.DecompressionBombWarning):
            return image.open(file, formats=("JPEG", "PNG"))
    except image.DecompressionBombError:
        raise ModelError(str(file), "has too many pixels", _FEWER) from None


def _target(resize: Size, rows: int, cols: int) -> tuple[int, int]:
    """Sizes after `resize`; of one number the shorter side, the longer one in proportion."""
    if isinstance(resize, tuple):
        return resize
    short = min(rows, cols)
    return resize * rows // short, resize * cols // short


def _inside(box: Size, rows: int, cols: int) -> tuple[int, int]:
    """The largest sizes of the same proportions inside the letterbox."""
    high, wide = _both(box)
    scale = min(high / rows, wide / cols)
    return max(round(rows * scale), 1), max(round(cols * scale), 1)


def _padded(pixels: np.ndarray, box: Size, fill: int) -> np.ndarray:
    rows, cols = _both(box)
    height, width, planes = pixels.shape
    top, left = _margins(height, width, rows, cols)
    whole = np.full((rows, cols, planes), fill, np.uint8)
    whole[top : top + height, left : left + width] = pixels
    return whole


def _margins(height: int, width: int, rows: int, cols: int) -> tuple[int, int]:
    """Above and on the left; an odd row or column more is below or on the right, as Ultralytics has
    it.
    """
    return (rows - height) // 2, (cols - width) // 2


def _middle(pixels: np.ndarray, crop: Size, where: str) -> np.ndarray:
    rows, cols = _both(crop)
    height, width, _ = pixels.shape
    if rows > height or cols > width:
        what = f"has {height} x {width} pixels, `crop` takes {rows} x {cols}"
        raise ModelError(where, what, "give larger pictures, or `resize`")
    top, left = _offsets(height, width, rows, cols)
    return pixels[top : top + rows, left : left + cols]


def _both(size: Size) -> tuple[int, int]:
    return size if isinstance(size, tuple) else (size, size)


def _offsets(height: int, width: int, rows: int, cols: int) -> tuple[int, int]:
    """First row and column of the middle."""
    return round((height - rows) / 2), round((width - cols) / 2)
