"""Calibration data: sample inputs from which the quantiser observes activation ranges.

Accepted: a folder of .npy files (models with one input) or .npz files (arrays named like the
inputs), one such file, arrays (`input_arrays.py`), or nothing (seeded noise, with a warning). An
array is one sample of the input's shape, or many stacked along the first axis. NHWC images are
transposed to NCHW, with a warning, if their shape is unambiguous, and without
one if the user says so (`DataInLayout`).
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opu_fuse.array_layout import ArrayLayout, channels_first
from opu_fuse.choices import option
from opu_fuse.errors import ModelError
from opu_fuse.input_arrays import ARRAY_SUFFIXES, Arrays, by_name
from opu_fuse.process.sandbox import ForeignError, complaints


@dataclass(frozen=True, slots=True)
class DataInLayout:
    """Calibration data whose four-dimensional arrays have their axes in a known order."""

    arrays: str | Path | Arrays
    layout: ArrayLayout


Calibration = str | Path | Arrays | DataInLayout | None
Sample = dict[str, np.ndarray]

NOISE_SAMPLES = 4
"""Samples for a model without calibration data."""
NOISE_SEED = 2024
NOISE_WARNING = (
    "no calibration data: scales are chosen from seeded standard normal noise; "
    "pass real inputs for real accuracy ({calibration})"
)
BRIGHTEST = 255
"""Largest value of an image."""
IMAGE_CHANNELS = (1, 3, 4)

_log = logging.getLogger(__name__)


def samples(
    model: ir.Model, calibration: Calibration, argument: str = "calibration"
) -> tuple[list[Sample], tuple[str, ...]]:
    """One mapping of input name -> array per sample, and the warnings that were logged. argument:
    what the caller calls the data.

    Raises ModelError, naming expected and got, for missing or unreadable files, wrong names, shapes
    or types, and values that are not finite.
    """
    if calibration is None:
        warning = NOISE_WARNING.format(calibration=option("calibration"))
        _log.warning(warning)
        return noise_samples(model), (warning,)
    known = isinstance(calibration, DataInLayout)
    given = calibration if known else DataInLayout(calibration, ArrayLayout.AUTO)
    warned: dict[str, None] = {}
    dataset = [
        sample
        for where, arrays in _sources(model, given.arrays, argument)
        for sample in _split(model, where, arrays, given.layout, warned)
    ]
    if not dataset:
        raise ModelError(
            str(given.arrays), "holds no .npy or .npz files", "put one file per input in"
        )
    for text in warned:
        _log.warning(text)
    return dataset, tuple(warned)


def noise_samples(model: ir.Model) -> list[Sample]:
    """NOISE_SAMPLES seeded samples for a model without calibration data."""
    rng = np.random.default_rng(NOISE_SEED)
    return [
        {v.name or "": _random(rng, _shape(v), _dtype(v)) for v in model.graph.inputs}
        for _ in range(NOISE_SAMPLES)
    ]


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Random values that are plausible for an input of this type.

    8-bit: the bytes of an image. Other integers and bool: 0 or 1, valid as counts, indices or
    flags. Floats: standard normal, as a normalised image.
    """
    if dtype in (np.int8, np.uint8):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape, np.float32).astype(dtype, copy=False)


def _sources(
    model: ir.Model, calibration: str | Path | Arrays, argument: str
) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """Yield (name for messages, arrays by input name) per file."""
    if not isinstance(calibration, str | Path):
        shapes = {v.name or "": _shape(v) for v in model.graph.inputs}
        yield argument, by_name(argument, calibration, shapes, ModelError)
        return
    path = Path(calibration)
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in ARRAY_SUFFIXES)
    elif path.exists():
        files = [path]
    else:
        raise ModelError(str(path), "there is no such file or folder", "check the path")
    for file in files:
        yield str(file), _read(model, file)


def _read(model: ir.Model, file: Path) -> Mapping[str, np.ndarray]:
    """Arrays of a file by input name."""
    loaded = _load(file)
    return _only(model, str(file), loaded) if isinstance(loaded, np.ndarray) else loaded


def _only(model: ir.Model, where: str, array: np.ndarray) -> Mapping[str, np.ndarray]:
    """Map an unnamed array to the only input. Raises ModelError if there are several inputs."""
    if len(model.graph.inputs) != 1:
        names = ", ".join(repr(v.name) for v in model.graph.inputs)
        raise ModelError(
            where,
            f"one array cannot feed {len(model.graph.inputs)} inputs",
            f"give arrays by name, in a .npz file or a dictionary: {names}",
        )
    return {model.graph.inputs[0].name or "": array}


def _load(file: Path) -> np.ndarray | dict[str, np.ndarray]:
    """Read a .npy or .npz file. Raises ModelError if it is truncated, encrypted or damaged."""
    what, advice = "is no numpy file (.npy or .npz)", "write it with numpy.save or numpy.savez"
    try:
        with complaints(), warnings.catch_warnings(action="ignore"), file.open("rb") as stream:
            data = np.load(stream, allow_pickle=False)
            what, advice = "is damaged", "write it again with numpy.savez"
            return data if isinstance(data, np.ndarray) else {n: data[n] for n in data.files}
    except ForeignError as error:
        raise ModelError(str(file), what, advice) from error


def _split(
    model: ir.Model,
    where: str,
    arrays: Mapping[str, np.ndarray],
    layout: ArrayLayout,
    doubts: dict[str, None],
) -> list[Sample]:
    """Split arrays by name into samples. doubts: the warnings so far (keys), which this extends."""
    expected = [value.name or "" for value in model.graph.inputs]
    if sorted(arrays) != sorted(expected):
        raise ModelError(
            where,
            f"expected arrays named {expected}, got {sorted(arrays)}",
            "name the arrays like the model's inputs",
        )
    inputs = {v.name or "": v for v in model.graph.inputs}
    stacks = {name: _stack(v, where, arrays[name], layout, doubts) for name, v in inputs.items()}
    counts = {len(stack) for stack in stacks.values()}
    if len(counts) > 1:
        raise ModelError(
            where,
            f"its arrays hold different numbers of samples {sorted(counts)}",
            "stack the same samples for every input",
        )
    return [{name: stack[i, ...] for name, stack in stacks.items()} for i in range(counts.pop())]


def _stack(
    value: ir.Value,
    where: str,
    array: np.ndarray,
    layout: ArrayLayout,
    doubts: dict[str, None],
) -> np.ndarray:
    """The samples of one input, [samples, *input shape] in the input's dtype.

    doubts: the warnings so far (keys), which this extends. Raises ModelError for a wrong dtype
    or shape, and for values that are not finite.
    """
    shape = _shape(value)
    wanted, got = _dtype(value), getattr(array, "dtype", type(array).__name__)
    fits = wanted.kind == "f" and isinstance(got, np.dtype) and got.kind in "fiub"
    if got != wanted and not fits:
        raise ModelError(
            where,
            f"input {value.name!r} expects {wanted}, got {got}",
            "convert the data",
        )
    array, before = channels_first(where, np.asarray(array), shape, layout), array
    if layout is ArrayLayout.AUTO and array.shape != before.shape:
        warning = f"{where}: input {value.name!r} has channels last, {_text(before.shape)}"
        doubts[f"{warning}: taken as {_text(array.shape)}, the last axis moved"] = None
    if tuple(array.shape) == shape:
        array = array[None]
    elif shape[:1] == (1,) and array.ndim == len(shape) and array.shape[1:] == shape[1:]:
        array = array[:, None]
    if array.ndim != len(shape) + 1 or tuple(array.shape[1:]) != shape or len(array) == 0:
        raise ModelError(
            where,
            f"input {value.name!r} expects shape {_text(shape)} "
            f"(or samples stacked along the first axis), got {_text(array.shape)}",
            _advice(shape),
        )
    with np.errstate(over="ignore"):  # overflow gives infinity, which is reported below
        array = np.ascontiguousarray(array, wanted)
    if wanted.kind == "f" and not np.all(np.isfinite(array)):
        raise ModelError(where, f"input {value.name!r} holds NaN or infinity", "clean the data")
    if isinstance(got, np.dtype):
        doubts.update(dict.fromkeys(_doubts(value.name or "", where, array, got)))
    return array


def _advice(shape: tuple[int, ...]) -> str:
    if len(shape) != 4:
        return "pass samples of that shape"
    axes = "samples, channels, height, width"
    return f"its axes are ({axes}); pass channels-last data with {option('layout', 'nhwc')}"


def _doubts(name: str, where: str, array: np.ndarray, got: np.dtype) -> Iterator[str]:
    """Yield warnings about implausible samples of a float input. got: dtype in the file."""
    if array.dtype.kind != "f" or not array.size:
        return
    if got.kind in "iub":
        yield f"{where}: input {name!r} is {array.dtype}, the data are {got}: taken as they are"
    low, high = float(array.min()), float(array.max())
    if low == high and array.size > 1:
        yield f"{where}: input {name!r} is {low:g} everywhere: no range to choose a scale for"
    elif array.ndim == 5 and array.shape[2] in IMAGE_CHANNELS and max(-low, high) > BRIGHTEST:
        summary = f"{where}: input {name!r} goes from {low:g} to {high:g}"
        yield f"{summary}, images reach {BRIGHTEST} at most: check how it is normalised"


def _shape(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]  # dimensions were fixed by `load`


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)


def _dtype(value: ir.Value) -> np.dtype:
    return np.dtype(np.float32) if value.dtype is None else value.dtype.numpy()
