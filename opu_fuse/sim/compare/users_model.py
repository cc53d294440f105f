"""A run compared with the model that the user compiled, as ONNX Runtime computes it.

`compare.check` compares a program with the quantised model inside it. That shows neither the loss
from quantisation nor mistakes of the front end. The program file holds only the hash of the user's
model. The model is searched for next to the program and in the current folder.

For a model in floats the ratio of signal to noise is information. One that came quantised has
bounds: what `bounds` allows each tensor, and each rounding that the compiler added, propagated to
the outputs. With scales that are powers of two that is nothing.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from opu_fuse.bundle.program import Bundle
from opu_fuse.bundle.result import CheckResult, OfModel, OutputMatch, RunResult
from opu_fuse.choices import option
from opu_fuse.errors import RunError
from opu_fuse.host.run.segment import session
from opu_fuse.process.sandbox import first_line
from opu_fuse.sim import ports
from opu_fuse.sim.compare.bounds import FLOAT_TOLERANCE, allowed_differences, allowed_of_outputs
from opu_fuse.sim.compare.ort_reference import Reference
from opu_fuse.sim.compare.runs import check, norms_of

SUFFIXES = (".onnx", ".tflite")
LOOKED_AT_BYTES = 1 << 30
"""Most bytes to hash, in total, of files whose name differs from the program's."""
_KERNELS = ("QLinear", "QGemm", "ConvInteger", "MatMulInteger", "DynamicQuantize")


def check_run(
    bundle: Bundle, inputs: Mapping[str, np.ndarray], result: RunResult, model_path: Path | None
) -> CheckResult:
    """`compare.check`, and a comparison with the file that was compiled, where `model_path` names
    it. Raises RunError for another model, and what `check` raises.
    """
    path = None if model_path is None else find_model(bundle, model_path, model_path)
    outcome = check(bundle, inputs, result)
    return (
        outcome
        if path is None
        else replace(outcome, of_model=of_model(bundle, inputs, result, path))
    )


def find_model(bundle: Bundle, program: Path, model_path: Path | None = None) -> Path | None:
    """The model file that a program was compiled from, None where no file matches.

    model_path: the file to use; without it, files next to the program and in the current folder are
    matched by hash. Raises RunError where `model_path` is no file or another model.
    """
    if model_path is None:
        return next(filter(lambda path: _has_hash_of(path, bundle), _candidates(program)), None)
    if not model_path.is_file():
        raise RunError(str(model_path), "there is no such file", "name the model that was compiled")
    if not _has_hash_of(model_path, bundle):
        what = f"is not the model of this program (sha256 {bundle.model_hash[:12]}…)"
        raise RunError(
            str(model_path), what, "name the file that was compiled, or compile this one"
        )
    return model_path


def _candidates(program: Path) -> Iterator[Path]:
    """Model files, those that are called like the program first."""
    folders = dict.fromkeys((program.resolve().parent, Path.cwd()))
    named = [p for f in folders for p in sorted(f.iterdir()) if p.suffix.lower() in SUFFIXES]
    files = [p for p in named if p.is_file()]
    files.sort(key=lambda path: path.stem != program.stem)
    seen = 0
    for path in files:
        seen += 0 if path.stem == program.stem else path.stat().st_size
        if seen <= LOOKED_AT_BYTES:
            yield path


def _has_hash_of(path: Path, bundle: Bundle) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == bundle.model_hash
    except OSError:
        return False


def of_model(
    bundle: Bundle, inputs: Mapping[str, np.ndarray] | None, result: RunResult, path: Path | None
) -> OfModel:
    """Compare the outputs of a run with those of the user's model, for the inputs of `run`. path:
    of the file, None where nobody knows it. What cannot be compared is reported, not raised.
    """
    if path is None:
        why = f"its file (sha256 {bundle.model_hash[:12]}…) is neither next to the program nor here"
        return OfModel(why=f"{why}: name it with {option('model')}")
    try:
        model = onnx.load(path, load_external_data=False)
        running = session(str(path))
    except Exception as error:  # noqa: BLE001  protobuf and ONNX Runtime have classes of their own
        return OfModel(model=path.name, why=f"ONNX Runtime cannot load it ({first_line(error)})")
    samples, count = ports.samples_of(bundle, inputs)
    feeds = [{name: array[n, ...] for name, array in samples.items()} for n in range(count)]
    names = [port.name for port in bundle.outputs]
    try:
        outputs = [_run(running, names, feed) for feed in feeds]
    except Exception as error:  # noqa: BLE001  ONNX Runtime raises classes of its own
        return OfModel(model=path.name, why=f"ONNX Runtime cannot run it ({first_line(error)})")
    limits = _limits(bundle, model, feeds[0])
    matches: list[OutputMatch] = []
    for index, name in enumerate(names):
        got = result.outputs[name]
        right = [np.asarray(sample[index]) for sample in outputs]
        if sum(array.size for array in right) != got.size:
            shape = list(right[0].shape)
            why = f"output {name!r} has shape {list(got.shape)}, the model gives {shape}"
            return OfModel(model=path.name, why=why)
        whole = np.concatenate([array.reshape(-1) for array in right])
        matches.append(_match(name, whole, got.reshape(-1), limits.get(name)))
    return OfModel(model=path.name, outputs=tuple(matches))


def _run(running: Any, names: list[str], feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """One sample. A model of a fixed batch gets it as every image, and shows the first."""
    batch = 1
    for declared in running.get_inputs():
        first, array = (declared.shape or [None])[0], feed[declared.name]
        if isinstance(first, int) and array.ndim and array.shape[0] == 1 < first:
            batch = first
    fed = {n: np.repeat(a, batch, 0) if a.ndim else a for n, a in feed.items()}
    result = running.run(names, fed if batch > 1 else dict(feed))
    return [a[: len(a) // batch] for a in map(np.asarray, result)] if batch > 1 else result


def _match(name: str, right: np.ndarray, got: np.ndarray, limit: float | None) -> OutputMatch:
    """right, got: one-dimensional."""
    if right.dtype.kind not in "fiub":  # types that numpy has not
        right, got = (a.astype(np.float32) for a in (right, got))
    a, b = (array.astype(np.float64) for array in (right, got))
    same = (right == got) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.where(same, 0.0, b - a)
        noise, signal = (float(np.square(x[np.isfinite(x)]).sum()) for x in (difference, a))
    allowed = None
    if limit is not None:
        largest = float(np.abs(a).max(initial=0.0, where=np.isfinite(a)))
        allowed = limit + (FLOAT_TOLERANCE * largest if right.dtype.kind == "f" else 0.0)
    finite = bool(np.isfinite(difference).all())
    return OutputMatch(
        name=name,
        snr_db=None if noise == 0.0 or right.dtype.kind != "f" else _decibels(signal, noise),
        differing=int(np.count_nonzero(~same)),
        elements=same.size,
        max_abs_diff=float(np.abs(difference).max(initial=0.0)) if finite else math.inf,
        limit=allowed,
    )


def _decibels(signal: float, noise: float) -> float:
    return 10.0 * math.log10(max(signal / noise, 1e-20))


def _limits(
    bundle: Bundle, model: onnx.ModelProto, feed: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """By how much outputs may differ from those of a model that came quantised, in their own
    numbers; none for a model in floats, and for one whose integers ONNX Runtime computes with
    kernels of its own, since these may saturate (on CPUs without VNNI).
    """
    known = {name for node in model.graph.node for name in node.output}
    kernels = any(n.op_type.startswith(_KERNELS) for n in model.graph.node)
    if not bundle.qdq or kernels:
        return {}
    reference = Reference(bundle)
    added = {name for name in reference.names if name not in known}
    if len(added) == len(reference.names):
        return {}
    shapes = {name: array.shape for name, array in reference.run(feed).tensors.items()}
    allowed = allowed_differences(reference.model, shapes, (), added=added, norms=norms_of(bundle))
    errors = allowed_of_outputs(reference.model, allowed, ())
    limits: dict[str, float] = {}
    for port in bundle.outputs:
        if port.name in allowed:
            limits[port.name] = allowed[port.name].steps
        elif port.dtype.startswith("float") or not errors[port.name]:
            limits[port.name] = errors[port.name]
    return limits
