"""What is emitted: a tiled layer with its addresses, its instructions, the banks it uses."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from opu_fuse.cost.tiles import Tile
from opu_fuse.hw.instruction import Instruction
from opu_fuse.hw.layout import Layout
from opu_fuse.schedule.chunks import OutputRange
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
    """A tiled layer with the addresses of everything it touches. unfold: kernel columns that a
    visit covers.
    """

    layer: Layer
    tile: Tile
    ranges: tuple[OutputRange, ...]
    source: Placement
    residual: Placement | None
    output: Placement
    weights: int
    params: int
    pre: int
    table: int
    unfold: int


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
