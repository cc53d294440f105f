"""The error for a program at which the machine stops."""

from opu_fuse.errors import RunError
from opu_fuse.hw.isa.instruction import Instruction

_HELP = "compile the model again for this machine"


def stop_error(instruction: Instruction, number: int, what: str) -> RunError:
    """what: follows the name of the instruction; number: its in its segment."""
    name = f"{instruction.engine.name.lower()}.{instruction.opcode}"
    return RunError(where=f"instruction {number} ({name})", what=what, help=_HELP)
