"""The data layout of a partition: one record, computed in two steps.

`lay_out` assigns lanes first, because a pass geometry counts channels in lanes. `pack` then assigns
slots (bytes per pixel), because these depend on the array modes that a geometry can use. The
layout is independent of tiles and addresses.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from opu_fuse.dfg.graph import Dfg
from opu_fuse.dfg.views import feature_shape
from opu_fuse.hw.dram_layout import Layout, extent, is_plain
from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.layout.lane_sharing import choose_shifts
from opu_fuse.layout.lanes import LAYOUT, LaneMap, Shifts, map_lanes
from opu_fuse.layout.pixel_packing import Pass, choose_slots
from opu_fuse.layout.zero_copy_joins import Join, find_joins


class Storage(Struct, frozen=True, kw_only=True):
    """The storage of a value in DRAM.

    layout: its words and lanes;
    alias_root: its base allocation (a joined concatenation, else the value itself);
    block: its first channel block in the base allocation;
    skips: bytes of its first and of its last channel block that belong to neighbouring values.
    """

    layout: Layout
    alias_root: int
    block: int
    skips: tuple[int, int] = (0, 0)

    @property
    def channel_blocks(self) -> range:
        """Its channel blocks in the base allocation."""
        return range(self.block, self.block + self.layout.blocks)

    def overlaps(self, other: "Storage") -> bool:
        """Whether two values have channel blocks in common."""
        ours, theirs = self.channel_blocks, other.channel_blocks
        disjoint = ours.stop <= theirs.start or theirs.stop <= ours.start
        return self.alias_root == other.alias_root and not disjoint

    @property
    def offset(self) -> int:
        """Bytes from the start of the base allocation."""
        return self.layout.word_at(self.block) * self.layout.word


class DataLayout(Struct, frozen=True, kw_only=True):
    """The data layout of all values of a partition.

    joined: zero-copy concatenations and splits;
    shifts: first lanes of values that share words (`choose_shifts`);
    lanes: by DFG index;
    joins: aliased values, by DFG index;
    slots: bytes per pixel of values that pack several pixels into a word;
    images: images of a batch, stacked along the rows of every map.
    """

    joined: frozenset[int]
    shifts: Shifts
    lanes: LaneMap
    joins: Mapping[int, Join]
    slots: Mapping[int, int] = field(default_factory=dict)
    images: int = 1

    def join(self, node: int) -> Join:
        """The base allocation of a stored value: itself if it is not aliased."""
        return self.joins.get(node, Join(alias_root=node, block=0))

    @property
    def sharers(self) -> frozenset[int]:
        """Values that share an allocation: aliased values and their alias roots."""
        return frozenset((*self.joins, *(join.alias_root for join in self.joins.values())))

    def storage(self, dfg: Dfg, hw: HwSpec, node: int) -> Storage:
        """The storage of a value, by DFG index (never that of a view)."""
        channels, rows, cols = feature_shape(dfg[node].shape)
        pieces, join = self.lanes[node].pieces, self.join(node)
        layout = Layout(
            channels=channels,
            rows=rows * self.images,
            cols=cols,
            word=hw.word_bytes,
            lanes=hw.word_channels,
            slot=self.slots.get(node, hw.word_bytes),
            pieces=() if is_plain(pieces) else pieces,
        )
        edge_bytes = pieces[0][0], -extent(pieces) % hw.word_channels
        skips = edge_bytes if node in self.shifts else (0, 0)
        return Storage(layout=layout, alias_root=join.alias_root, block=join.block, skips=skips)


def unit_storage(channels: int, cols: int, hw: HwSpec) -> Storage:
    """The unit matrix as a map of one row, for all images; it is a constant and no value. Its
    columns are the last ones of the channels.
    """
    layout = Layout(
        channels=channels,
        rows=1,
        cols=cols,
        word=hw.word_bytes,
        lanes=hw.word_channels,
        slot=hw.word_bytes,
    )
    return Storage(layout=layout, alias_root=-1, block=0)


def layouts(dfg: Dfg, groups: Iterable[Iterable[int]]) -> frozenset[int]:
    """Concatenations and splits in groups; each group is the indices of its nodes."""
    return frozenset(i for group in groups for i in group if dfg[i].op in LAYOUT)


def lay_out(
    dfg: Dfg, groups: Sequence[Sequence[int]], on_host: Collection[int], hw: HwSpec
) -> DataLayout:
    """The layout of groups with one pixel per word.

    groups: their nodes in pipeline order; on_host: the other operators. Raises CannotJoin.
    """
    joined = layouts(dfg, groups)
    shifts = choose_shifts(dfg, groups, on_host, joined, hw)
    lanes = map_lanes(dfg, hw, joined, shifts)
    joins = find_joins(dfg, joined, lanes, hw.word_channels, shifts)
    return DataLayout(joined=joined, shifts=shifts, lanes=lanes, joins=joins)


def pack(dfg: Dfg, layout: DataLayout, passes: Iterable[Pass], hw: HwSpec) -> DataLayout:
    """The layout with neighbouring pixels packed into a word, where all producers and readers of a
    map support it.

    passes: those of all groups, in execution order.
    """
    return replace(layout, slots=choose_slots(dfg, passes, layout.sharers, hw))
