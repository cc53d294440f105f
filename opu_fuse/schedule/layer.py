"""A group as a pass through the machine: geometry, post chain and integer parameters.

`lower_group` adds the parameters to the geometry. All numbers come from `dfg.integer`, as those of
the golden model do.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, field

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.lowering.pass_geometry import Geometry
from opu_fuse.lowering.polyphase import Phase


class Interior(Struct, frozen=True, kw_only=True):
    """A quantised value inside the chain.

    stage: index of the stage that computes it (-1: the array);
    node: DFG index;
    pooled: whether it comes after the pool.
    """

    stage: int
    node: int
    pooled: bool


class NormPasses(Struct, frozen=True, kw_only=True):
    """The norm of a pass.

    unit: bank of its unit;
    idle: lanes of the last channel block that hold no channel;
    statistics: registers of the passes before the one with results;
    looks_up: arguments of `units.norm.table_words`, if it looks up exponentials.
    """

    unit: int
    idle: int
    statistics: tuple[Mapping[str, int], ...]
    looks_up: tuple[str, float, float] | None


class Layer(Geometry, frozen=True, kw_only=True, eq=False):
    """A pass of a group, ready for tiling: its geometry and the values of its registers.

    group, name: index of the group, and names of its operators;
    phase: one of the geometry's phases, whose shape is `shape` (MACs count with the first);
    order: names of the post chain's stages (`hw/spec/chain.py`);
    post: constant registers of the stages;
    pad_value: int8 outside the input;
    pre_registers: registers of the pre chain;
    residual_units, table_units: banks of the units that read residuals and tables, in stage order;
    functions: the 256 entries of each table;
    norm: passes before the one with results, if any;
    by_count: registers that depend on the (rows, columns) of a window inside the map, for averages
    that do not count padding;
    per_channel: parameter records of stages after the requantiser, in stage order;
    interiors: quantised values inside the chain;
    further: it is the second result of another group's passes: it has no compute instructions and
        no weights, only the interiors of its own operators (`schedule/two_results.py`).
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
    functions: tuple[bytes, ...] = ()
    norm: NormPasses | None = None
    by_count: Mapping[tuple[int, int], Mapping[str, int]] = field(default_factory=dict)
    per_channel: tuple[np.ndarray, ...] = ()
    interiors: tuple[Interior, ...] = ()
    further: bool = False

    def zero_bytes(self, word: int, hw: HwSpec) -> tuple[int, int]:
        """Bytes at the low and at the high end of a pixel's word of the second map that are loaded
        as zeros. word: counted from the first one that holds channels of the map.
        """
        if not self.zeroes:
            return 0, 0
        ((lane, channels),) = self.in_pieces
        first = lane - word * hw.word_channels
        return max(0, first), max(0, hw.word_bytes - first - channels)
