"""What is emitted: a tiled layer with its addresses, its instructions."""

from msgspec import Struct

from opu_fuse.cost.work import Work
from opu_fuse.errors import InternalError
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.layout import Layout
from opu_fuse.schedule.layer import Layer
from opu_fuse.schedule.tiling import PlannedLayer


class Placement(Struct, frozen=True, kw_only=True):
    """A tensor's place in the memory window. skips: bytes of its first and of its last channel
    block that belong to its neighbours.
    """

    offset: int
    layout: Layout
    skips: tuple[int, int]


class Step(Struct, frozen=True, kw_only=True):
    """An instruction of a group. tile: for post.run, the first element of its tile (mid row, mid
    col, out row, out col, block).
    """

    instruction: Instruction
    group: int
    tile: tuple[int, int, int, int, int] | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A tiled layer, as a piece of work, and where the maps lie that it touches. source, output:
    None of maps that are on chip only; gate: None without one.
    """

    planned: PlannedLayer
    work: Work
    source: Placement | None
    residuals: tuple[Placement, ...]
    output: Placement | None
    gate: Placement | None = None

    @property
    def layer(self) -> Layer:
        return self.planned.layer

    @property
    def loaded(self) -> Placement:
        """Where the input lies. InternalError for one that is on chip only."""
        if self.source is None:
            raise InternalError("schedule", f"{self.layer.name} loads a map that is on chip only")
        return self.source
