"""The layout of a partition: one record, in two steps.

Lanes come first, since geometry counts channels in lanes; slots follow, since they depend on which
array modes a geometry can use. Nothing here knows tiles or addresses.
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


class Place(Struct, frozen=True, kw_only=True):
    """Where a stored value lies. home: the stored value in whose bytes (a joined concatenation,
    else itself), block: its first channel block there. skips: bytes of its first and of its last
    channel block that belong to its neighbours.
    """

    layout: Layout
    home: int
    block: int
    skips: tuple[int, int] = (0, 0)

    @property
    def offset(self) -> int:
        """Bytes from the start of its home."""
        return self.layout.word_at(self.block) * self.layout.word


class DataLayout(Struct, frozen=True, kw_only=True):
    """joined: concatenations and splits that are a matter of layout; shifts: `choose_shifts`;
    lanes: by DFG index; joins: values inside others; slots: bytes of a pixel, of values that do not
    take whole words; images: of a batch, below each other in every map.
    """

    joined: frozenset[int]
    shifts: Shifts
    lanes: LaneMap
    joins: Mapping[int, Join]
    slots: Mapping[int, int] = field(default_factory=dict)
    images: int = 1

    def join(self, node: int) -> Join:
        """In which stored value a stored value lies, itself if in no other."""
        return self.joins.get(node, Join(home=node, block=0))

    @property
    def sharers(self) -> frozenset[int]:
        """Values that lie in others, and those in which they lie."""
        return frozenset((*self.joins, *(join.home for join in self.joins.values())))

    def place(self, dfg: Dfg, hw: HwSpec, node: int) -> Place:
        """Of a stored value, by DFG index (never a change of view)."""
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
        shared = pieces[0][0], -extent(pieces) % hw.word_channels
        skips = shared if node in self.shifts else (0, 0)
        return Place(layout=layout, home=join.home, block=join.block, skips=skips)


def layouts(dfg: Dfg, groups: Iterable[Iterable[int]]) -> frozenset[int]:
    """Concatenations and splits that groups, given by their nodes, do."""
    return frozenset(i for group in groups for i in group if dfg[i].op in LAYOUT)


def lay_out(
    dfg: Dfg, groups: Sequence[Sequence[int]], on_host: Collection[int], hw: HwSpec
) -> DataLayout:
    """The layout of groups, given by their nodes in pipeline order, every pixel in a word of its
    own. Raises CannotJoin.
    """
    joined = layouts(dfg, groups)
    shifts = choose_shifts(dfg, groups, on_host, joined, hw)
    lanes = map_lanes(dfg, hw, joined, shifts)
    joins = find_joins(dfg, joined, lanes, hw.word_channels, shifts)
    return DataLayout(joined=joined, shifts=shifts, lanes=lanes, joins=joins)


def pack(dfg: Dfg, found: DataLayout, passes: Iterable[Pass], hw: HwSpec) -> DataLayout:
    """With neighbouring pixels in a word, where all who make and read them can. passes: of all
    groups, in execution order.
    """
    return replace(found, slots=choose_slots(dfg, passes, found.sharers, hw))
