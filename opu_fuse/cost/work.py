"""A tiled pass as what runs one after the other: what it reads and writes, and where that lies.

No addresses and no integers: cost times it, the schedule emits it.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from opu_fuse.cost.chunks import OutputRange, output_ranges
from opu_fuse.cost.tiles import Tile, unfold
from opu_fuse.hw.spec import HwSpec
from opu_fuse.layout.decided import Place
from opu_fuse.layout.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """source, residuals, gate: DFG indices of the maps read; output: of the one made. reads,
    writes: where source and output lie. readers: how often the map in which the output lies is read
    (`keeping.count_reads`). unfold: kernel columns that a visit covers; apart: rows and columns
    between those that this phase makes.
    """

    shape: Shape
    source: int
    residuals: tuple[int, ...]
    output: int
    tile: Tile
    ranges: tuple[OutputRange, ...]
    unfold: int
    reads: Place
    writes: Place
    readers: int
    apart: tuple[int, int] = (1, 1)
    gate: int | None = None

    @property
    def held(self) -> Hashable:
        """What a bank holds that has the whole input: its unfolded rows are not the map."""
        return self.source if self.shape.unfolded is None else (self.source, self.shape.unfolded)

    @property
    def row_words(self) -> int:
        """Words of a whole row of the input, those of the image where it is unfolded."""
        unfolded = self.shape.unfolded
        return self.reads.layout.row_words if unfolded is None else unfolded.words

    def with_tile(self, tile: Tile, hw: HwSpec) -> "Work":
        """The same with another tile."""
        across = unfold(self.shape, hw.array.modes[tile.mode], hw)
        return replace(self, tile=tile, ranges=output_ranges(self.shape, tile, hw), unfold=across)


@dataclass(slots=True)
class Banks:
    """One on-chip buffer in equal banks. Invariant: a bank's contents are those of the last load,
    or of the last map kept, that was put into it.
    """

    words: int
    banks: int
    held: list[Hashable] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [None] * self.banks
        self.order = list(range(self.banks))

    @property
    def bank_words(self) -> int:
        return self.words // self.banks

    def find(self, key: Hashable) -> int | None:
        """First word of the bank that holds `key`, which counts as used; None: none does."""
        return self.take(key)[0] if key in self.held else None

    def take(self, key: Hashable) -> tuple[int, bool]:
        """(first word of the bank, whether it holds `key` already); the bank used longest ago is
        given away.
        """
        held = key is not None and key in self.held
        bank = self.held.index(key) if held else self.order[0]
        self.order.remove(bank)
        self.order.append(bank)
        self.held[bank] = key
        return bank * self.bank_words, held


class Shelf(Banks):
    """A buffer in which everything has a place of its own, the first who takes it brings it."""

    def __init__(self, sizes: Mapping[Hashable, int]) -> None:
        super().__init__(words=sum(sizes.values()), banks=1)
        ends = accumulate(sizes.values())
        self._places = {key: end - sizes[key] for key, end in zip(sizes, ends, strict=True)}
        self._there: set[Hashable] = set()

    def take(self, key: Hashable) -> tuple[int, bool]:
        """(first word, whether it is there already)."""
        held = key in self._there
        self._there.add(key)
        return self._places[key], held
