"""On-chip buffers: what they hold, and where the next thing goes."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Iterable

from msgspec import Struct, field

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.units.base import Space

CONSTANTS = (Space.WEIGHT, Space.PARAM, Space.PRE, Space.TABLE)
"""What lies in `Scratchpad`."""


class Banks(Struct):
    """One on-chip buffer in equal banks. Invariant: a bank's contents are those of the last load,
    or of the last map kept, that was put into it.
    """

    words: int
    banks: int
    bank_words: int = 0
    held: list[Hashable] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [None] * self.banks
        self.order = list(range(self.banks))
        self.bank_words = self.words // self.banks

    def find(self, key: Hashable) -> int | None:
        """First word of the bank that holds `key`, which counts as used; None: none does."""
        return self.take(key)[0] if key in self.held else None

    def take_oldest(self) -> int:
        """First word of the bank used longest ago, which holds nothing that is asked for again."""
        bank = self.order.pop(0)
        self.order.append(bank)
        self.held[bank] = None
        return bank * self.bank_words

    def take(self, key: Hashable) -> tuple[int, bool]:
        """(first word of the bank, whether it holds `key` already); the bank used longest ago is
        given away.
        """
        held = key in self.held
        bank = self.held.index(key) if held else self.order[0]
        self.order.remove(bank)
        self.order.append(bank)
        self.held[bank] = key
        return bank * self.bank_words, held


class Scratchpad:
    """A buffer in which everything has a place of its size inside a bank, where nothing was used
    for longest: small things can be there long before they are used. Invariant: with several banks,
    what is taken leaves what was taken before it; in one, everything stays as long as it fits.
    """

    def __init__(self, words: int, banks: int) -> None:
        size = words // banks
        self._there: dict[Hashable, int] = {}  # first word
        self._used: dict[int, None] = {}  # first words, those of what was taken last at the end
        # Of all that is there, ascending; an empty entry stands at each end of a bank.
        self._firsts = [bank * size for bank in range(banks + 1)]
        self._ends = [*self._firsts]
        self._keys: list[Hashable] = [None] * len(self._firsts)
        self._free = banks * size

    def take(self, key: Hashable, words: int) -> tuple[int, bool]:
        """(first of so many words, whether it holds `key` already)."""
        found = self._there.get(key)
        first = self._place(words) if found is None else found
        if found is None:
            over = self._over(first, words)
            for lost, at in zip(self._keys[over], self._firsts[over], strict=True):
                del self._there[lost], self._used[at]
            self._free += sum(self._ends[over]) - sum(self._firsts[over]) - words
            self._there[key] = first
            self._firsts[over], self._ends[over] = [first], [first + words]
            self._keys[over] = [key]
        self._used.pop(first, None)
        self._used[first] = None
        return first, found is not None

    def fits_without_evicting(self, keys: Collection[Hashable], words: int) -> bool:
        """Whether these are all there, and so many words more would leave them there."""
        lost = self._keys[self._over(self._place(words), words)]
        return all(key in self._there for key in keys) and not any(key in keys for key in lost)

    def _place(self, words: int) -> int:
        """The first one in a bank where what was used last of all that is lost was used first."""
        if words <= self._free:
            for end, behind in zip(self._ends, self._firsts[1:], strict=False):
                if words <= behind - end:
                    return end
        lost: set[int] = set()
        for first in self._used:  # what was used first is given up first, until there is room
            low = high = bisect_left(self._firsts, first + 1) - 1
            lost.add(low)
            while low - 1 in lost:
                low -= 1
            while high + 1 in lost:
                high += 1
            if words <= self._firsts[high + 1] - self._ends[low - 1]:
                return self._ends[low - 1]
        return 0

    def _over(self, first: int, words: int) -> slice:
        """Numbers of those that lie in these words."""
        return slice(bisect_right(self._ends, first), bisect_left(self._firsts, first + words))


def map_banks(hw: HwSpec) -> dict[Space, Banks]:
    """Of every buffer for maps and partial sums that a machine has, with nothing in it."""
    return {
        space: Banks(words=buffer.words, banks=buffer.banks)
        for space in Space
        if space not in CONSTANTS and (buffer := getattr(hw.buffers, space.value, None))
    }


def scratchpads(
    hw: HwSpec, spaces: Iterable[Space] = CONSTANTS, *, together: bool = False
) -> dict[Space, Scratchpad]:
    """Of buffers for constants that a machine has, with nothing in them. together: as one bank."""
    return {
        space: Scratchpad(buffer.words, 1 if together else buffer.banks)
        for space in spaces
        if (buffer := getattr(hw.buffers, space.value, None))
    }
