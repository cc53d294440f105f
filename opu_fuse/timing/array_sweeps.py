"""Cycles of the array's sweeps over a tile."""

from opu_fuse.hw import unit_rates
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.shape import Shape
from opu_fuse.tile_schedule.sink import ComputeStep
from opu_fuse.tiling.depthwise import depthwise_cycles


def compute_timing(
    shape: Shape, step: ComputeStep, size: tuple[int, int], hw: HwSpec
) -> tuple[int, int, int, int]:
    """(instructions, setup cycles, cycles of all sweeps, overlap) of the compute instructions of a
    step for an image; the cycles are of one.

    size: rows and columns of partial sums; overlap: cycles before the end at which the next
    instruction may start.
    """
    part, mode = step.part, hw.array.modes[step.out.mode]
    count = shape.sweeps(mode)
    size = size[0], size[1] // count
    if shape.depthwise:
        kernel = part.ky[1], part.kx[1]
        length = depthwise_cycles(shape, hw, size, part.segments, kernel, part.at_once)
        return count, max(hw.row_words, unit_rates.SWEEP_SETUP_CYCLES), length, hw.array.window_side
    pixels, px = size[0] * size[1], mode.px
    setup = unit_rates.conv_setup_cycles(hw, px=px, pre=shape.pre, gate=shape.gated)
    rows = part.segments * part.ky[1] * part.kx[1] * part.groups
    last = pixels // px
    return count, setup, (rows - 1) * unit_rates.row_cycles(hw, pixels, px) + last, last - 1
