"""opu-fuse: the open toolchain for OPU-style CNN overlays on FPGAs.

Public API (loaded on first use, so that importing the package is cheap)::

    hw = opu_fuse.load_hw("opu-1024")                       # name or path of a YAML spec
    program = opu_fuse.compile("model.onnx", hw)            # -> Program
    program.save("model.opu"); opu_fuse.Program.load("model.opu")
    result = program.run({"input": x}, engine="functional")  # -> ProgramRun
    opu_fuse.compile_context("model.onnx", hw).save("model_ctx.onnx")  # for ONNX Runtime
    program = opu_fuse.from_torch(module, (x,), hw)         # -> Program, from PyTorch
    partition = opu_fuse.partition("model.onnx", hw)        # -> PartitionedModel
    rows = opu_fuse.sweep("sweep.yaml", "out/sweep")        # -> pandas.DataFrame
    result = opu_fuse.explore(["resnet18"], "xc7k325t")      # -> Exploration
    result = opu_fuse.open_device("uio:0").run(program, {"input": x})  # -> ProgramRun
    losses = opu_fuse.accuracy("model.onnx", hw, data="images")  # -> Accuracy
"""

import os

# Official builds of ONNX Runtime send telemetry unless this is set before they are imported. Models
# that are compiled here are nobody else's business.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

TYPE_CHECKING = False  # that of `typing`, without importing it: see `__main__.py`
if TYPE_CHECKING:
    from opu_fuse.bundle.accuracy import Accuracy
    from opu_fuse.bundle.program import Bundle
    from opu_fuse.bundle.result import CheckResult
    from opu_fuse.devices.opening import open_device
    from opu_fuse.errors import UserError
    from opu_fuse.exploring.run import Exploration, explore
    from opu_fuse.hw.spec.hw_spec import HwSpec
    from opu_fuse.hw.spec.load_spec import load_hw
    from opu_fuse.loss import accuracy
    from opu_fuse.partitioned_model import PartitionedModel
    from opu_fuse.passes import PassOptions
    from opu_fuse.pictures import load_pictures
    from opu_fuse.pipeline import (
        compile,  # noqa: A004  public name
        compile_context,
        partition,
    )
    from opu_fuse.program import Program
    from opu_fuse.program_run import ProgramRun
    from opu_fuse.sim.cycle.run import MemoryOptions
    from opu_fuse.sim.runner import RtlOptions
    from opu_fuse.sweeping.run import sweep
    from opu_fuse.torch_export import from_torch

__version__ = "0.2.0"
__all__ = [
    "Accuracy",
    "Bundle",
    "CheckResult",
    "Exploration",
    "HwSpec",
    "MemoryOptions",
    "PartitionedModel",
    "PassOptions",
    "Program",
    "ProgramRun",
    "RtlOptions",
    "UserError",
    "__version__",
    "accuracy",
    "compile",
    "compile_context",
    "explore",
    "from_torch",
    "load_hw",
    "load_pictures",
    "open_device",
    "partition",
    "sweep",
]

_MODULE_OF = {
    "Accuracy": "bundle.accuracy",
    "Bundle": "bundle.program",
    "CheckResult": "bundle.result",
    "Exploration": "exploring.run",
    "HwSpec": "hw.spec.hw_spec",
    "MemoryOptions": "sim.cycle.run",
    "PartitionedModel": "partitioned_model",
    "PassOptions": "passes",
    "Program": "program",
    "ProgramRun": "program_run",
    "RtlOptions": "sim.runner",
    "UserError": "errors",
    "accuracy": "loss",
    "compile": "pipeline",
    "compile_context": "pipeline",
    "explore": "exploring.run",
    "from_torch": "torch_export",
    "load_hw": "hw.spec.load_spec",
    "load_pictures": "pictures",
    "open_device": "devices.opening",
    "partition": "pipeline",
    "sweep": "sweeping.run",
}
"""Public name -> module below `opu_fuse`; `TYPE_CHECKING` imports the same."""


def __getattr__(name: str) -> object:
    import importlib

    if name not in _MODULE_OF:
        raise AttributeError(f"module 'opu_fuse' has no attribute {name!r}")
    return getattr(importlib.import_module(f"opu_fuse.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """The public names alone, loaded or not: what completion shows."""
    return [*__all__]
