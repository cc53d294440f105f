"""Facts derived from a bundle alone: its machine, its instructions, MACs and efficiency."""

from opu_fuse.bundle.memory_image import segment_words
from opu_fuse.bundle.program import Bundle, MachineSegment
from opu_fuse.hw.isa.assembly import format_instruction
from opu_fuse.hw.isa.encoding import decode
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.hw.spec.load_spec import load_hw_text


def machine_of(bundle: Bundle) -> HwSpec:
    """The spec inside a bundle. Raises SpecError if it is invalid."""
    return load_hw_text(bundle.spec_yaml, f"{bundle.model}: spec.yaml")


def total_macs(bundle: Bundle) -> int:
    """MACs of the model's Conv and Gemm that run on the machine, for all images of the batch."""
    return sum(group.macs for group in bundle.groups)


def mac_efficiency(units: int, macs: int, cycles: int) -> float:
    """Share of the array's work used: macs / (MAC units * cycles); 0 without cycles."""
    return macs / (units * cycles) if cycles else 0.0


def images_per_second(bundle: Bundle, clock_mhz: float, cycles: int) -> float:
    """Images per second with back-to-back runs of the program; 0 without cycles."""
    return bundle.batch * clock_mhz * 1e6 / cycles if cycles else 0.0


def instruction_texts(bundle: Bundle, segment: MachineSegment) -> tuple[str, ...]:
    """Assembly text of every instruction of a machine segment, in program order."""
    hw = machine_of(bundle)
    return tuple(format_instruction(x, hw) for x in decode(segment_words(bundle, segment)))
