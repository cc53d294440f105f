"""What is emitted: a tiled layer with its addresses, its instructions."""

from dataclasses import dataclass

from opu_fuse.cost.work import Work
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.layout import Layout
from opu_fuse.schedule.layer import Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A tensor's place in the memory window. skips: bytes of its first and of its last channel
    block that belong to its neighbours.
    """

    offset: int
    layout: Layout
    skips: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An instruction of a group. tile: for post.run, the first element of its tile (mid row, mid
    col, out row, out col, block).
    """

    instruction: Instruction
    group: int
    tile: tuple[int, int, int, int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A tiled layer (as a piece of work) with the addresses of everything it touches."""

    layer: Layer
    work: Work
    source: Placement
    residuals: tuple[Placement, ...]
    output: Placement
    weights: int
    params: int
    pre: int
    table: int
