"""Post-compile verification: a new program must pass the checks of its readers and engines."""

from collections.abc import Iterator, Sequence
from itertools import chain

from opu_fuse.bundle.check import mistakes
from opu_fuse.bundle.listing import group_title
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.errors import InternalError
from opu_fuse.hw.isa.faults import Faults
from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.spec.hw_spec import HwSpec

STAGE = "self-check of the program"


def self_check(bundle: Bundle, hw: HwSpec, programs: Sequence[Sequence[Instruction]]) -> None:
    """Check a new bundle.

    programs: for each machine segment, its instructions as decoded from the words.

    Raises InternalError for a bundle that would be refused when it is read, or an instruction that
    would stop the machine, with its group and operators.
    """
    for what in chain(mistakes(bundle, hw), _faulting_instructions(bundle, hw, programs)):
        raise InternalError(STAGE, what)  # the first mistake only


def _faulting_instructions(
    bundle: Bundle, hw: HwSpec, programs: Sequence[Sequence[Instruction]]
) -> Iterator[str]:
    """Every instruction that would stop the machine, as text."""
    faults = Faults(hw, bundle.window_bytes)
    segments = [s for s in bundle.segments if isinstance(s, MachineSegment)]
    for segment, program in zip(segments, programs, strict=True):
        for number, (x, group) in enumerate(zip(program, segment.groups, strict=True)):
            why = faults.reason(x)
            if why is not None:
                title = "no group" if group < 0 else group_title(bundle.groups[group])
                yield f"{title}: instruction {number} ({x.engine.name.lower()}.{x.opcode}) {why}"
