"""What passes, pipelines of them and the command line need; importing this registers the passes."""

from opu_fuse.passes import (
    dead_code_elimination,
    eliminate_common_subexpr,
    fold_constant,
    infer_type,
)
from opu_fuse.passes.base import SKIP_KEY, FunctionPass, ModulePass, Pass, is_skipped
from opu_fuse.passes.config import ConfigKey, known_keys, register_config
from opu_fuse.passes.context import PassContext
from opu_fuse.passes.decorators import PassClass, function_pass, module_pass
from opu_fuse.passes.info import PassInfo
from opu_fuse.passes.instrument import PassInstrument
from opu_fuse.passes.library import from_library
from opu_fuse.passes.options import PassOptions, pass_context, require_ran
from opu_fuse.passes.print_ir import EVERY, PrintIR, model_text
from opu_fuse.passes.registry import lookup, register, registered
from opu_fuse.passes.sequential import FixedPoint, Sequential
from opu_fuse.passes.step import RunStep, Step
from opu_fuse.passes.timing import PassTiming
from opu_fuse.passes.verify_ir import VerifyIR

TRANSFORMS = (dead_code_elimination, eliminate_common_subexpr, fold_constant, infer_type)
"""The modules of the transforms that register themselves."""

__all__ = [
    "EVERY",
    "SKIP_KEY",
    "TRANSFORMS",
    "ConfigKey",
    "FixedPoint",
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassClass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "PassOptions",
    "PassTiming",
    "PrintIR",
    "RunStep",
    "Sequential",
    "Step",
    "VerifyIR",
    "from_library",
    "function_pass",
    "is_skipped",
    "known_keys",
    "lookup",
    "model_text",
    "module_pass",
    "pass_context",
    "register",
    "register_config",
    "registered",
    "require_ran",
]
