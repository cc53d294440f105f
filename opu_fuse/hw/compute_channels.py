"""Loops of a compute instruction over channels (docs/machine.md, compute)."""

from msgspec import Struct

from opu_fuse.hw.isa.instruction import Instruction
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.params import ComputeParams


class Sweep(Struct, frozen=True, kw_only=True):
    """Channels in steps, in the order of feature words and partial-sum words.

    kernel: its rows and columns
    steps: input segments, parts or blocks, of `ic` lanes each
    groups: output groups, parts or blocks, of `oc` lanes each
    px: output pixels in a partial-sum word
    at_once: output rows computed from the same reads
    lanes: of a word
    weight_rows: weight rows, of row_words weight words each
    """

    kernel: tuple[int, int]
    steps: range
    ic: int
    groups: range
    oc: int
    px: int
    at_once: int
    lanes: int
    weight_rows: int
    row_words: int

    @property
    def blocks(self) -> range:
        """Channel blocks read."""
        return _words(self.steps, self.lanes // self.ic)

    @property
    def used(self) -> range:
        """Lanes read of every block; all, where there are several blocks."""
        if len(self.blocks) > 1:
            return range(self.lanes)
        first = self.steps.start % (self.lanes // self.ic) * self.ic
        return range(first, first + len(self.steps) * self.ic)

    def psum_words(self, p: ComputeParams) -> int:
        """Words of a block of partial sums."""
        return p["out_rows"] * self.at_once * p["out_cols"] // self.px

    @property
    def psum_blocks(self) -> range:
        """Blocks of partial sums written."""
        return _words(self.groups, self.lanes // self.oc)


def sweep(opcode: str, p: ComputeParams, spec: HwSpec) -> Sweep:
    """The loops of a compute instruction; mode and counts must be legal."""
    lanes = spec.word_channels
    kernel = (p["kernel_rows"], p["kernel_cols"])
    steps = range(p["ic_first"], p["ic_first"] + p["ic_steps"])
    match opcode:
        case "conv":
            mode = spec.array.modes[p["mode"]]
            return Sweep(
                kernel=kernel,
                steps=steps,
                ic=mode.ic,
                groups=range(p["oc_first"], p["oc_first"] + p["oc_steps"]),
                oc=mode.oc,
                px=mode.px,
                at_once=1,
                lanes=lanes,
                weight_rows=p["ic_steps"] * kernel[0] * kernel[1] * p["oc_steps"],
                row_words=spec.mode_row_words(mode),
            )
        case "depthwise":
            part, at_once = min(spec.array.units, lanes), p["oc_steps"]
            rows = len(steps) * at_once
        case _:
            part, at_once, rows, kernel, steps = lanes, 1, 0, (1, 1), range(p["ic_steps"])
    return Sweep(
        kernel=kernel,
        steps=steps,
        ic=part,
        groups=steps,
        oc=part,
        px=1,
        at_once=at_once,
        lanes=lanes,
        weight_rows=rows,
        row_words=spec.row_words,
    )


def _words(steps: range, per_word: int) -> range:
    """Words that hold steps, `per_word` in each."""
    return range(steps.start // per_word, (steps.stop - 1) // per_word + 1)


SAME_SUMS = ("psum", "psum_block_pitch", "mode", "pre", "gate")
"""Registers of two convolutions that pass the datapath alike and accumulate in the same words."""


def continues_accumulation(before: Instruction | None, x: Instruction) -> bool:
    """Whether a compute instruction continues the accumulation of the one before it: its sweeps
    follow as those of one instruction do, and need not wait until the array is empty.
    """
    if before is None or not before.opcode == x.opcode == "conv":
        return False
    return all(before.params[name] == x.params[name] for name in SAME_SUMS)
