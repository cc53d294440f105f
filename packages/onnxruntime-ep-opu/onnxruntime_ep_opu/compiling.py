"""Compiling for the provider in a Python process; needs the package opu-fuse.

path = compiled("model.onnx", "opu-1024", calibration="images.npz")
session = onnxruntime.InferenceSession(path, options)  # options with the provider's devices
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import opu_fuse
from opu_fuse.errors import ModelError
from opu_fuse.resources import cache_dir

_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul")
_DIGITS = 24

log = logging.getLogger(__name__)


def compiled(model: str | Path, machine: str | Path | opu_fuse.HwSpec, **options: Any) -> str:
    """Path of the model as `opu-fuse compile -o OUT.onnx` writes it, compiled at the first call and
    then taken from opu-fuse's cache folder. A file there that was changed is written again.

    options: as of `opu_fuse.compile`. Raises opu_fuse.UserError as that does, and for a model in
    floats without calibration data: noise would give an accuracy that nobody expects.
    """
    hw = opu_fuse.load_hw(machine)
    loaded = _load(Path(model))
    operators = {node.op_type for node in loaded.graph.node}
    if options.get("calibration") is None and operators.isdisjoint(_QUANTISED):
        what = "is in floats, and there are no calibration data"
        raise ModelError(str(model), what, "give calibration=…, or a quantised model")
    facts = (opu_fuse.__version__, f"{hw.spec_hash:011x}", Path(model).name)
    key = hashlib.sha256(repr(facts).encode())
    key.update(loaded.SerializeToString(deterministic=True))
    _update(key, options)
    stem = f"context-{key.hexdigest()[:_DIGITS]}"
    for found in sorted(cache_dir().glob(f"{stem}-*.onnx")):
        if found.stem == f"{stem}-{_digest(found.read_bytes())}":
            return str(found)
        log.warning("%s was changed: compiling the model again", found)
        found.unlink(missing_ok=True)
    result = opu_fuse.compile_context(model, hw, **options)
    path = cache_dir() / f"{stem}-{_digest(result.data())}.onnx"
    result.save(path)
    return str(path)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def _load(path: Path) -> onnx.ModelProto:
    try:
        return onnx.load(path)
    except FileNotFoundError:
        raise ModelError(str(path), "there is no such file", "check the path") from None
    except Exception as error:  # protobuf has its own error class
        raise ModelError(str(path), "is no ONNX model", "give an ONNX model") from error


def _update(digest: Any, value: object) -> None:
    """Add an option, or data of the user, to a digest."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            _update(digest, key)
            _update(digest, value[key])
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, str | Path) and Path(value).exists():
        files = sorted(Path(value).iterdir()) if Path(value).is_dir() else [Path(value)]
        for file in filter(Path.is_file, files):
            digest.update(file.name.encode() + file.read_bytes())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for element in value:
            _update(digest, element)
        digest.update(f"{len(value)} elements".encode())
    else:
        digest.update(repr(value).encode())
