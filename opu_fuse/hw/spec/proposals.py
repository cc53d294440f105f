"""Buffers to propose in messages about specs that lack them."""

from opu_fuse.hw.spec.hw_spec import Buffer, HwSpec
from opu_fuse.units.array import PARAM_WORDS
from opu_fuse.units.norm_pass import EXPONENTIALS
from opu_fuse.units.table import TABLE_WORDS


def pre_buffer(spec: HwSpec) -> Buffer:
    """For modules before the array: as many channel blocks as the param buffer has."""
    param = spec.buffers.param
    return Buffer(words=max(param.words, PARAM_WORDS * param.banks), banks=param.banks)


def table_buffer(spec: HwSpec) -> Buffer:  # noqa: ARG001  one signature for all buffers
    """For tables: a function in each of two banks."""
    return Buffer(words=2 * TABLE_WORDS, banks=2)


def norm_buffer(spec: HwSpec) -> Buffer:  # noqa: ARG001  one signature for all buffers
    """For softmax: the exponentials of one in each of two banks."""
    return Buffer(words=2 * EXPONENTIALS, banks=2)


PROPOSED = {"pre": pre_buffer, "table": table_buffer, "norm": norm_buffer}
"""Buffers that only some machines have."""
