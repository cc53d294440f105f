"""Names for passes, pipelines and the command line; importing this registers the passes."""

from opu_fuse.passes import (
    dead_code_elimination,
    eliminate_common_subexpr,
    fold_constant,
    infer_type,
)
from opu_fuse.passes.base import (
    SKIP_KEY,
    FunctionPass,
    ModulePass,
    Pass,
    RunStep,
    Step,
    from_library,
    is_skipped,
)
from opu_fuse.passes.context import LOWEST_LEVEL, PassContext, PassInfo
from opu_fuse.passes.options import PassOptions, pass_context, require_ran
from opu_fuse.passes.printing import EVERY, PrintIR, model_text
from opu_fuse.passes.registry import (
    PassClass,
    function_pass,
    lookup,
    module_pass,
    register,
    registered,
)
from opu_fuse.passes.sequential import FixedPoint, Sequential
from opu_fuse.passes.timing import PassTiming
from opu_fuse.passes.verification import VerifyIR

TRANSFORMS = (dead_code_elimination, eliminate_common_subexpr, fold_constant, infer_type)
"""The modules of the transforms that register themselves."""

__all__ = [
    "EVERY",
    "LOWEST_LEVEL",
    "SKIP_KEY",
    "TRANSFORMS",
    "FixedPoint",
    "FunctionPass",
    "ModulePass",
    "Pass",
    "PassClass",
    "PassContext",
    "PassInfo",
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
    "lookup",
    "model_text",
    "module_pass",
    "pass_context",
    "register",
    "registered",
    "require_ran",
]
