"""The opu-fuse execution provider for ONNX Runtime.

    import onnxruntime, onnxruntime_ep_opu as ep

    onnxruntime.register_execution_provider_library(ep.get_ep_name(), ep.get_library_path())
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == ep.get_ep_name()]
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices, {})
    session = onnxruntime.InferenceSession("model_ctx.onnx", options)

The package neither contains nor needs ONNX Runtime; it works with 1.23 and newer. Its models are
written by `opu-fuse compile MODEL.onnx --hw SPEC -o model_ctx.onnx`.
"""

from pathlib import Path

__all__ = ["get_ep_name", "get_ep_names", "get_library_path"]

_LIBRARY = "libonnxruntime_ep_opu.so"


def get_ep_name() -> str:
    """Name of the provider in ONNX Runtime."""
    return "OpuFuseExecutionProvider"


def get_ep_names() -> list[str]:
    """Names of all providers of the library."""
    return [get_ep_name()]


def get_library_path() -> str:
    """The shared library, for `register_execution_provider_library`. Raises FileNotFoundError in a
    source folder that was not built.
    """
    path = Path(__file__).resolve().parent / _LIBRARY
    if not path.is_file():
        raise FileNotFoundError(f"{path}: is not built; install the package with pip")
    return str(path)
