"""opu-fuse: the open toolchain for OPU-style CNN overlays on FPGAs.

Public API (loaded on first use, so that importing the package is cheap)::

    hw = opu_fuse.load_hw("opu-1024")                       # name or path of a YAML spec
    program = opu_fuse.compile("model.onnx", hw)            # -> Program
    program.save("model.opu"); opu_fuse.Program.load("model.opu")
    result = program.run({"input": x}, engine="functional")  # -> RunResult
    partition = opu_fuse.partition("model.onnx", hw)        # -> Partition
    rows = opu_fuse.sweep("sweep.yaml", "out/sweep")        # -> pandas.DataFrame
    result = opu_fuse.explore(["resnet18"], "xc7k325t")      # -> Exploration
    losses = opu_fuse.accuracy("model.onnx", hw, data="images")  # -> Accuracy
"""

import os

# Official builds of ONNX Runtime report to their maker what they run, unless this is set before
# they are imported; whose models are compiled here is nobody's affair.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

TYPE_CHECKING = False  # that of `typing`, without importing it: see `__main__.py`
if TYPE_CHECKING:
    from opu_fuse.exploring.run import explore
    from opu_fuse.hw.spec.load_spec import load_hw
    from opu_fuse.loss import accuracy
    from opu_fuse.pipeline import Program, compile, partition  # noqa: A004  public name
    from opu_fuse.sweeping.run import sweep

__version__ = "0.2.0"
__all__ = [
    "Program",
    "__version__",
    "accuracy",
    "compile",
    "explore",
    "load_hw",
    "partition",
    "sweep",
]

_HOMES = {
    "Program": "opu_fuse.pipeline",
    "accuracy": "opu_fuse.loss",
    "compile": "opu_fuse.pipeline",
    "explore": "opu_fuse.exploring.run",
    "partition": "opu_fuse.pipeline",
    "load_hw": "opu_fuse.hw.spec.load_spec",
    "sweep": "opu_fuse.sweeping.run",
}


def __getattr__(name: str) -> object:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'opu_fuse' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
