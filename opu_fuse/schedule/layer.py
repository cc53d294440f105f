"""A group as a pass through the machine: geometry, post chain and integer parameters.

`lower` reads the group's operators in pipeline order and fills a `Layer`. All numbers come from
`dfg.integer`, the functions that the golden model uses too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from opu_fuse.cost.chunks import OutputRange
from opu_fuse.cost.phases import WHOLE, Phase
from opu_fuse.cost.tiles import Tile
from opu_fuse.cost.work import Work
from opu_fuse.hw.layout import Pieces
from opu_fuse.layout.decided import Place
from opu_fuse.layout.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Interior:
    """A quantised value inside the chain: after stage number `stage`; node: DFG index."""

    stage: int
    node: int
    pooled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One group, ready for tiling.

    source, residuals: DFG indices of the tensors read (after following changes of view); output:
    DFG index of the stored value. anchor: DFG index of what runs on the array (conv, dense, an
    average pool too large for a tile), None on the copy path. order: names of the
    post chain's stages (`hw.chain`); post: constant
    post registers; pad_value: int8 outside the input; by_count: post registers that
    depend on how many rows and columns of a window lie inside (average, padding uncounted);
    tables: DFG indices of the operators that look up; residual_units, table_units: banks of the
    units that read residuals and tables; per_channel: records of stages behind the requantiser. All
    in the order of the stages.
    """

    group: int
    name: str
    shape: Shape
    source: int
    residuals: tuple[int, ...]
    output: int
    anchor: int | None
    order: tuple[str, ...]
    post: Mapping[str, int]
    pad_value: int
    macs: int
    phase: Phase
    in_pieces: Pieces
    out_pieces: Pieces
    pre: tuple[int, ...] = ()
    pre_registers: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[int, ...] = ()
    residual_units: tuple[int, ...] = ()
    table_units: tuple[int, ...] = ()
    by_count: Mapping[tuple[int, int], Mapping[str, int]] = field(default_factory=dict)
    per_channel: tuple[np.ndarray, ...] = field(default=(), compare=False)
    interiors: tuple[Interior, ...] = field(default=())

    def work(
        self, tile: Tile, ranges: tuple[OutputRange, ...], unfold: int, reads: Place, writes: Place
    ) -> Work:
        """With its tile, and the places of its source and its output."""
        return Work(
            shape=self.shape,
            source=self.source,
            residuals=self.residuals,
            output=self.output,
            tile=tile,
            ranges=ranges,
            unfold=unfold,
            reads=reads,
            writes=writes,
            apart=self.phase.apart,
        )

    @property
    def in_phases(self) -> bool:
        """Whether it makes a part of its map's rows and columns only."""
        return self.phase != WHOLE
