"""Calibration data: images that show the quantiser which values occur.

Accepted: a folder of .npy files (models with one input) or .npz files (arrays named like the
inputs), one such file, a mapping of arrays, or nothing (seeded noise, with a warning). An array is
one sample of the input's shape, or many stacked along the first axis.
"""

import logging
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx_ir as ir

from opu_fuse.errors import ModelError

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
    or types, values that are not finite, and inputs that noise cannot stand for.
    """
    if calibration is None:
        _log.warning(NOISE_WARNING)
        return _noise(model), (NOISE_WARNING,)
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


def _noise(model: ir.Model) -> list[Sample]:
    for value in model.graph.inputs:
        if value.dtype != ir.DataType.FLOAT:
            raise ModelError(
                f"input {value.name!r}",
                f"is {_type_name(value)}, noise can only stand for float32",
                "pass calibration data",
            )
    rng = np.random.default_rng(NOISE_SEED)
    return [
        {v.name or "": rng.standard_normal(_shape(v), np.float32) for v in model.graph.inputs}
        for _ in range(NOISE_SAMPLES)
    ]


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
    try:
        data = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(
            str(file), "is no numpy file (.npy or .npz)", "write it with numpy.save or numpy.savez"
        ) from error
    if isinstance(data, np.ndarray):
        if len(model.graph.inputs) != 1:
            names = ", ".join(repr(v.name) for v in model.graph.inputs)
            raise ModelError(
                str(file),
                f"one array cannot feed {len(model.graph.inputs)} inputs",
                f"write a .npz file with arrays {names}",
            )
        return {model.graph.inputs[0].name or "": data}
    with data:
        try:
            return {name: data[name] for name in data.files}
        except (ValueError, zipfile.BadZipFile, OSError) as error:
            raise ModelError(str(file), "is damaged", "write it again with numpy.savez") from error


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
    return [{name: stack[i] for name, stack in stacks.items()} for i in range(counts.pop())]


def _stack(value: ir.Value, where: str, array: np.ndarray) -> np.ndarray:
    """[samples, *input shape] in the input's type."""
    shape = _shape(value)
    wanted = value.dtype.numpy() if value.dtype is not None else np.dtype(np.float32)
    if array.dtype.kind not in "fiub" or (wanted.kind != "f" and array.dtype != wanted):
        raise ModelError(
            where,
            f"input {value.name!r} expects {wanted}, got {array.dtype}",
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
    array = np.ascontiguousarray(array, wanted)
    if wanted.kind == "f" and not np.all(np.isfinite(array)):
        raise ModelError(where, f"input {value.name!r} holds NaN or infinity", "clean the data")
    return array


def _shape(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]  # dimensions were fixed by `load`


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)


def _type_name(value: ir.Value) -> str:
    return value.dtype.name.lower() if value.dtype is not None else "of unknown type"
