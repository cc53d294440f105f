"""TFLite files: tf2onnx makes ONNX of them (extra `tflite`).

It reads them with TensorFlow, which takes seconds to start, writes to the screen and may abort: it
gets a process of its own (`tflite_process.py`).
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
_MAGIC = slice(4, 8), b"TFL3"
_PREFIX = "TFL_"
_PACKAGES = ("tf2onnx", "tensorflow")


def is_tflite(data: bytes) -> bool:
    """Whether these are the bytes of a TFLite file."""
    where, magic = _MAGIC
    return data[where] == magic


def to_onnx(data: bytes, where: str) -> bytes:
    """An ONNX file of the same network, its int8 values with the file's scales. Raises ModelError
    where the extra is missing, and for what tf2onnx does not convert.
    """
    if not all(importlib.util.find_spec(name) for name in _PACKAGES):
        what = "TFLite files are read through tf2onnx and TensorFlow, which are not installed"
        raise ModelError(where, what, "pip install 'opu-fuse[tflite]'")
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.tflite", Path(folder) / "made.onnx"
        given.write_bytes(data)
        files = (given, given.with_name("rewritten.tflite"), made)
        process = [sys.executable, "-m", "opu_fuse.frontend.importing.tflite_process"]
        command = [*process, *map(str, files), str(TARGET_OPSET)]
        try:
            done = subprocess.run(
                command, capture_output=True, check=False, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise _refused(where, f"no end within {SECONDS:.0f} s") from None
        if done.returncode or not made.exists():
            lines = done.stderr.strip().splitlines()
            raise _refused(where, lines[-1] if lines else f"exit status {done.returncode}")
        converted = made.read_bytes()
    if foreign := _left_over(converted):
        what = f"tf2onnx knows nothing in ONNX for some of its operators ({', '.join(foreign)})"
        help_ = "leave the part with these out of the export, or export the network to ONNX"
        raise ModelError(where, what, help_)
    return converted


def _left_over(converted: bytes) -> list[str]:
    """Operators of the file for which tf2onnx has none of ONNX; it lets them stand."""
    nodes = onnx.ModelProto.FromString(converted).graph.node
    found = {n.op_type for n in nodes if n.op_type.startswith(_PREFIX)}
    return sorted(name.removeprefix(_PREFIX) for name in found)


def _refused(where: str, why: str) -> ModelError:
    help_ = "convert it to ONNX by other means, or export the network from its framework"
    return ModelError(where, f"tf2onnx cannot convert it ({why})", help_)
