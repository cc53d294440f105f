"""Every deliberate error of opu-fuse.

Two families. `UserError`: the input cannot be handled (exit code 1); its constructor forces a
message that says where, what, and what would help. `InternalError`: a broken promise of ours
(exit code 3), worded for a bug report.
"""

from dataclasses import dataclass


class OpuFuseError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 3


@dataclass(eq=False)
class UserError(OpuFuseError):
    """The user's input cannot be handled.

    where: file, `file:line` or node name; what: what is wrong, with numbers and limits; help:
    the nearest change that would make it work.
    """

    where: str
    what: str
    help: str

    exit_code = 1

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.help}"


class SpecError(UserError):
    """A hardware spec is missing, malformed or inconsistent."""


class ModelError(UserError):
    """An ONNX model (or its calibration data) cannot be read or handled."""


class PartitionError(UserError):
    """A partition is illegal, or no module can run what was asked for."""


class DoesNotFit(UserError):
    """Something exceeds a size of the machine even at its smallest tile."""


class ProgramError(UserError):
    """A program file is damaged, of another version, or compiled for another machine."""


class AsmError(UserError):
    """Assembly text cannot be encoded."""


class RunError(UserError):
    """A run cannot be started or was stopped by the machine (bad input tensor, error code,
    missing tool).
    """


@dataclass(eq=False)
class InternalError(OpuFuseError):
    """A bug of ours. stage: where it was noticed; what: the broken promise."""

    stage: str
    what: str

    exit_code = 3

    def __str__(self) -> str:
        return f"internal error in {self.stage}: {self.what} (please report this)"
