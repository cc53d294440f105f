"""The opu-fuse execution provider for ONNX Runtime.

    import onnxruntime, onnxruntime_ep_opu as ep

    onnxruntime.register_execution_provider_library(ep.get_ep_name(), ep.get_library_path())
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == ep.get_ep_name()]
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(devices, {})
    session = onnxruntime.InferenceSession("model_ctx.onnx", options)

Or, in one call: `session = ep.session("model_ctx.onnx")`.

The package neither contains nor needs ONNX Runtime; it works with 1.23 and newer. Its models are
written by `opu-fuse compile MODEL.onnx --hw SPEC -o model_ctx.onnx`, or by `session` itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["get_ep_name", "get_ep_names", "get_library_path", "session"]

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


def session(
    model: str | Path,
    machine: Any = None,
    *,
    provider_options: Mapping[str, str] | None = None,
    session_options: Any = None,
    **options: Any,
) -> Any:
    """An onnxruntime.InferenceSession whose machine segments the provider runs.

    machine: a name, a path or an opu_fuse.HwSpec, for which the model is compiled as
    `compiling.compiled` does with the options; that needs the package opu-fuse. None: the model was
    compiled before. provider_options: such as {"device": "native"}. session_options: an
    onnxruntime.SessionOptions, to which the provider is added.

    Raises what compiling and ONNX Runtime raise; TypeError for options without a machine.
    """
    import onnxruntime as ort  # any of its packages

    if machine is not None:
        from onnxruntime_ep_opu.compiling import compiled

        model = compiled(model, machine, **options)
    elif options:
        raise TypeError(f"{', '.join(options)}: options of compiling need a machine")
    if all(device.ep_name != get_ep_name() for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(get_ep_name(), get_library_path())
    devices = [device for device in ort.get_ep_devices() if device.ep_name == get_ep_name()]
    settings = ort.SessionOptions() if session_options is None else session_options
    settings.add_provider_for_devices(devices, dict(provider_options or {}))
    return ort.InferenceSession(str(model), settings)
