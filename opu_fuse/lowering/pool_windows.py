"""Windows of pools: which are too large for a pool module, and which averages the array sums up
faster.
"""

from opu_fuse.dfg.graph import Node
from opu_fuse.hw import unit_rates
from opu_fuse.hw.spec.check import largest
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Window
from opu_fuse.units.base import ModuleKind
from opu_fuse.units.pool import PoolKind


def exceeds_pools(hw: HwSpec, node: Node) -> bool:
    """Whether the window of a pool, or its stride, is too large for every pool module. An average
    then begins its group, and the array sums it up.
    """
    kernel, strides = max(node.attrs["kernel"]), max(node.attrs["strides"])
    pools = [m.limits for m in hw.dataflow.modules.values() if m.kind is ModuleKind.POOL]
    return all(
        kernel > (limits.window or largest("window"))
        or strides > (limits.stride or largest("stride"))
        for limits in pools
    )


def largest_window(hw: HwSpec) -> int:
    """Positions of the largest window that a tile can hold."""
    return min(hw.buffers.psum.bank_words, hw.buffers.feature.bank_words)


def is_summed_faster(hw: HwSpec, window: Window, size: tuple[int, int]) -> bool:
    """Whether one depthwise window holds an average without padding, and takes fewer cycles.

    size: rows and columns of the result. The divisor must be one that the array's requantiser has.
    """
    rows, cols = window.kernel
    whole = max(rows, cols) <= hw.array.window_side and not any(window.pads)
    divides = hw.numeric.multiplier_bits > 0 or rows * cols & (rows * cols - 1) == 0
    if not (hw.array.depthwise and whole and divides):
        return False
    visits = unit_rates.post_iterations(
        out_rows=size[0],
        out_cols=size[1],
        window=window.kernel,
        stride_x=window.strides[1],
        kind=PoolKind.AVERAGE,
    )
    steps = unit_rates.depthwise_cycles(
        hw,
        size=size,
        parts=hw.word_parts,
        kernel=window.kernel,
        stride_x=window.strides[1],
        dilation_x=1,
    )
    return max(steps, size[0] * size[1] * hw.cycles_per_word) < visits * hw.cycles_per_word
