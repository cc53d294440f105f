"""Converts TFLite files to ONNX with tf2onnx (extra `tflite`).

tf2onnx imports TensorFlow, which takes seconds to start, prints to the terminal and may abort.
Therefore it runs in a separate process (`tflite_process.py`).
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from opu_fuse.errors import ModelError
from opu_fuse.frontend.importing.validate import TARGET_OPSET

SECONDS = 600.0
"""Time limit of a conversion, the import of TensorFlow included."""
_MAGIC = slice(4, 8), b"TFL3"
_PREFIX = "TFL_"
_PACKAGES = ("tf2onnx", "tensorflow")


def is_tflite(data: bytes) -> bool:
    """Whether these are the bytes of a TFLite file."""
    where, magic = _MAGIC
    return data[where] == magic


def to_onnx(data: bytes, where: str) -> bytes:
    """Convert the bytes of a TFLite file to those of an ONNX file with the same scales.

    Raises ModelError if the extra is not installed, or tf2onnx cannot convert the file.
    """
    if not all(importlib.util.find_spec(name) for name in _PACKAGES):
        what = "TFLite files are read through tf2onnx and TensorFlow, which are not installed"
        raise ModelError(where, what, "pip install 'opu-fuse[tflite]'")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "source.tflite", Path(folder) / "converted.onnx"
        source.write_bytes(data)
        files = (source, source.with_name("rewritten.tflite"), target)
        process = [sys.executable, "-m", "opu_fuse.frontend.importing.tflite_process"]
        command = [*process, *map(str, files), str(TARGET_OPSET)]
        try:
            completed = subprocess.run(
                command, capture_output=True, check=False, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise _refused(where, f"no end within {SECONDS:.0f} s") from None
        if completed.returncode or not target.exists():
            lines = completed.stderr.strip().splitlines()
            raise _refused(where, lines[-1] if lines else f"exit status {completed.returncode}")
        converted = target.read_bytes()
    if unknown := _unconverted(converted):
        what = f"tf2onnx knows nothing in ONNX for some of its operators ({', '.join(unknown)})"
        help_ = "leave the part with these out of the export, or export the network to ONNX"
        raise ModelError(where, what, help_)
    return converted


def _unconverted(converted: bytes) -> list[str]:
    """TFLite operators that tf2onnx could not convert and left in its result."""
    nodes = onnx.ModelProto.FromString(converted).graph.node
    unconverted = {n.op_type for n in nodes if n.op_type.startswith(_PREFIX)}
    return sorted(name.removeprefix(_PREFIX) for name in unconverted)


def _refused(where: str, why: str) -> ModelError:
    help_ = "convert it to ONNX by other means, or export the network from its framework"
    return ModelError(where, f"tf2onnx cannot convert it ({why})", help_)
