"""A group as a pass through the machine: geometry, post chain and integer parameters.

`lower` adds the parameters to the geometry. All numbers come from `dfg.integer`, the functions that
the golden model uses too.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from opu_fuse.lowering.pass_geometry import Geometry
from opu_fuse.lowering.polyphase import Phase
from opu_fuse.units.base import Stage


class Interior(Struct, frozen=True, kw_only=True):
    """A quantised value inside the chain: after stage number `stage`; node: DFG index."""

    stage: int
    node: int
    pooled: bool


class Layer(Geometry, frozen=True, kw_only=True, eq=False):
    """A pass of a group, ready for tiling: its geometry and what its registers hold.

    phase: which of the geometry's phases (`shape` is that one's; MACs count with the first). order:
    names of the post chain's stages (`hw.chain`), post: their constant registers, by_count: those
    that depend on how many rows and columns of a window lie inside (average, padding uncounted),
    per_channel: records of stages behind the requantiser; pad_value: int8 outside the input.
    residual_units, table_units: banks of the units that read residuals and tables. All in the order
    of the stages.
    """

    group: int
    name: str
    phase: Phase
    order: tuple[str, ...]
    post: Mapping[str, int]
    pad_value: int
    pre_registers: Mapping[str, int] = field(default_factory=dict)
    residual_units: tuple[int, ...] = ()
    table_units: tuple[int, ...] = ()
    by_count: Mapping[tuple[int, int], Mapping[str, int]] = field(default_factory=dict)
    per_channel: tuple[np.ndarray, ...] = ()
    interiors: tuple[Interior, ...] = ()

    @property
    def tables(self) -> tuple[int, ...]:
        """DFG indices of the operators that look up."""
        return tuple(s.node for s in self.stages if s.stage is Stage.TABLE)
