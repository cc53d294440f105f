"""Maps that the array reads as weights."""

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import ModuleKind


def sets_zeros(spec: HwSpec) -> bool:
    """Whether loads can set lanes of weights to zero: machines with norms whose weight word is one
    pixel of a map.
    """
    return spec.has(ModuleKind.NORM) and spec.buffers.weight.width == spec.word_bytes
