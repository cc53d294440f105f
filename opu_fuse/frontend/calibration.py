"""Calibration data: images that show the quantiser which values occur.

Accepted: a folder of .npy files (models with one input) or .npz files (arrays named like the
inputs), one such file, a mapping of arrays, or nothing (seeded noise, with a warning). An array is
one sample of the input's shape, or many stacked along the first axis.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opu_fuse.errors import ModelError
from opu_fuse.process.foreign import ForeignError, complaints

Calibration = str | Path | Mapping[str, np.ndarray] | None
Sample = dict[str, np.ndarray]

NOISE_SAMPLES = 4
NOISE_SEED = 2024
NOISE_WARNING = (
    "no calibration data: scales are chosen from seeded standard normal noise; "
    "pass real inputs with --calibration for real accuracy"
)

_log = logging.getLogger(__name__)


def samples(model: ir.Model, calibration: Calibration) -> tuple[list[Sample], tuple[str, ...]]:
    """One mapping of input name -> array per sample, and the warnings that were given.

    Raises ModelError, naming expected and got, for missing or unreadable files, wrong names, shapes
    or types, and values that are not finite.
    """
    if calibration is None:
        _log.warning(NOISE_WARNING)
        return noise_samples(model), (NOISE_WARNING,)
    found = [
        sample
        for where, arrays in _sources(model, calibration)
        for sample in _split(model, where, arrays)
    ]
    if not found:
        raise ModelError(
            str(calibration), "holds no .npy or .npz files", "put one file per input in"
        )
    return found, ()


def noise_samples(model: ir.Model) -> list[Sample]:
    """Seeded inputs for a model of which nobody has shown any."""
    rng = np.random.default_rng(NOISE_SEED)
    return [
        {v.name or "": _random(rng, _shape(v), _dtype(v)) for v in model.graph.inputs}
        for _ in range(NOISE_SAMPLES)
    ]


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """What an input of this type may hold: a normalised image, bytes of one, else small numbers
    that can be counts, places or switches.
    """
    if dtype in (np.int8, np.uint8):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape, np.float32).astype(dtype, copy=False)


def _sources(
    model: ir.Model, calibration: str | Path | Mapping[str, np.ndarray]
) -> Iterator[tuple[str, Mapping[str, np.ndarray]]]:
    """(how to call it, arrays by input name), one per file."""
    if isinstance(calibration, Mapping):
        yield "calibration data", calibration
        return
    path = Path(calibration)
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in {".npy", ".npz"})
    elif path.exists():
        files = [path]
    else:
        raise ModelError(str(path), "there is no such file or folder", "check --calibration")
    for file in files:
        yield str(file), _read(model, file)


def _read(model: ir.Model, file: Path) -> Mapping[str, np.ndarray]:
    found = _load(file)
    if not isinstance(found, np.ndarray):
        return found
    if len(model.graph.inputs) != 1:
        names = ", ".join(repr(v.name) for v in model.graph.inputs)
        raise ModelError(
            str(file),
            f"one array cannot feed {len(model.graph.inputs)} inputs",
            f"write a .npz file with arrays {names}",
        )
    return {model.graph.inputs[0].name or "": found}


def _load(file: Path) -> np.ndarray | dict[str, np.ndarray]:
    """What a .npy or .npz file holds: it may be cut, encrypted, smaller than it says, anything."""
    what, advice = "is no numpy file (.npy or .npz)", "write it with numpy.save or numpy.savez"
    try:
        with complaints(), warnings.catch_warnings(action="ignore"), file.open("rb") as stream:
            data = np.load(stream, allow_pickle=False)
            what, advice = "is damaged", "write it again with numpy.savez"
            return data if isinstance(data, np.ndarray) else {n: data[n] for n in data.files}
    except ForeignError as error:
        raise ModelError(str(file), what, advice) from error


def _split(model: ir.Model, where: str, arrays: Mapping[str, np.ndarray]) -> list[Sample]:
    expected = [value.name or "" for value in model.graph.inputs]
    if sorted(arrays) != sorted(expected):
        raise ModelError(
            where,
            f"expected arrays named {expected}, got {sorted(arrays)}",
            "name the arrays like the model's inputs",
        )
    stacks = {v.name or "": _stack(v, where, arrays[v.name or ""]) for v in model.graph.inputs}
    counts = {len(stack) for stack in stacks.values()}
    if len(counts) > 1:
        raise ModelError(
            where,
            f"its arrays hold different numbers of samples {sorted(counts)}",
            "stack the same samples for every input",
        )
    return [{name: stack[i, ...] for name, stack in stacks.items()} for i in range(counts.pop())]


def _stack(value: ir.Value, where: str, array: np.ndarray) -> np.ndarray:
    """[samples, *input shape] in the input's type."""
    shape = _shape(value)
    wanted, got = _dtype(value), getattr(array, "dtype", type(array).__name__)
    fits = wanted.kind == "f" and isinstance(got, np.dtype) and got.kind in "fiub"
    if got != wanted and not fits:
        raise ModelError(
            where,
            f"input {value.name!r} expects {wanted}, got {got}",
            "convert the data",
        )
    if tuple(array.shape) == shape:
        array = array[None]
    elif shape[:1] == (1,) and array.ndim == len(shape) and array.shape[1:] == shape[1:]:
        array = array[:, None]
    if array.ndim != len(shape) + 1 or tuple(array.shape[1:]) != shape or len(array) == 0:
        raise ModelError(
            where,
            f"input {value.name!r} expects shape {_text(shape)} "
            f"(or samples stacked along the first axis), got {_text(array.shape)}",
            "reshape the calibration data",
        )
    with np.errstate(over="ignore"):  # infinite then, which is told below
        array = np.ascontiguousarray(array, wanted)
    if wanted.kind == "f" and not np.all(np.isfinite(array)):
        raise ModelError(where, f"input {value.name!r} holds NaN or infinity", "clean the data")
    return array


def _shape(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]  # dimensions were fixed by `load`


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)


def _dtype(value: ir.Value) -> np.dtype:
    return np.dtype(np.float32) if value.dtype is None else value.dtype.numpy()
