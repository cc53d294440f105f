"""On-chip buffers: their contents and their allocation."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Iterable
from copy import copy

from msgspec import Struct, field

from opu_fuse.hw.spec.hw_spec import HwSpec
from opu_fuse.tile_schedule.forking import Forking
from opu_fuse.units.base import Space

CONSTANTS = (Space.WEIGHT, Space.PARAM, Space.PRE, Space.TABLE, Space.NORM)
"""Buffers that are allocated as a `Scratchpad`."""


class Banks(Struct):
    """One on-chip buffer in equal banks, allocated LRU. first: word of the first bank.

    Invariant: a bank holds the last load, or the last resident map, that was written to it.
    """

    words: int
    banks: int
    bank_words: int = 0
    first: int = 0
    held: list[Hashable] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held = [None] * self.banks
        self.order = list(range(self.banks))
        self.bank_words = self.words // self.banks

    def fork(self) -> "Banks":
        """A copy that goes its own way."""
        result = copy(self)
        result.held, result.order = self.held.copy(), self.order.copy()
        return result

    def find(self, key: Hashable) -> int | None:
        """First word of the bank that holds `key`, marked as used; None if no bank does."""
        return self.take(key)[0] if key in self.held else None

    def take_oldest(self) -> int:
        """Evict the least recently used bank; return its first word."""
        return self.take(None)[0]

    def take(self, key: Hashable, words: int = 0) -> tuple[int, bool]:  # noqa: ARG002  as of `Places`
        """(first word of the bank, whether it held `key`); a miss evicts the LRU bank, which holds
        nothing if the key is None.
        """
        held = key is not None and key in self.held
        bank = self.held.index(key) if held else self.order[0]
        self.order.remove(bank)
        self.order.append(bank)
        self.held[bank] = key
        return self.first + bank * self.bank_words, held


class Scratchpad(Forking):
    """LRU scratchpad allocator: entries of any size inside a bank, so that small ones can be
    prefetched early.

    Invariant: with several banks, an allocation never evicts the one before it, unless others were
    touched since; in one bank, entries are evicted only when space runs out.
    """

    grid = 1
    """New entries begin at multiples of so many words of a bank: with entries of one size, none
    overlaps two places of that size.
    """

    def __init__(self, words: int, banks: int) -> None:
        self._size = size = words // banks
        self._resident: dict[Hashable, int] = {}  # key -> first word
        self._used: dict[int, None] = {}  # first words, least recently used first
        # Of all resident entries, ascending; a zero-size sentinel is at each end of a bank.
        self._firsts = [bank * size for bank in range(banks + 1)]
        self._ends = [*self._firsts]
        self._keys: list[Hashable] = [None] * len(self._firsts)
        self._free = banks * size

    def detach(self) -> None:
        self._resident, self._used = self._resident.copy(), self._used.copy()
        self._firsts, self._ends = self._firsts.copy(), self._ends.copy()
        self._keys = self._keys.copy()

    def take(self, key: Hashable, words: int) -> tuple[int, bool]:
        """Allocate an entry: (first word, whether it was resident)."""
        result = self._resident.get(key)
        first = self._address_for(words) if result is None else result
        if result is None:
            over = self._over(first, words)
            if over.start < over.stop:
                for lost, at in zip(self._keys[over], self._firsts[over], strict=True):
                    del self._resident[lost], self._used[at]
                self._free += sum(self._ends[over]) - sum(self._firsts[over])
            self._free -= words
            self._resident[key] = first
            self._firsts[over], self._ends[over] = [first], [first + words]
            self._keys[over] = [key]
        self._used.pop(first, None)
        self._used[first] = None
        return first, result is not None

    def find(self, key: Hashable) -> int | None:
        """First word of an entry, marked as used; None if there is none."""
        first = self._resident.get(key)
        if first is not None:
            del self._used[first]
            self._used[first] = None
        return first

    def touch(self, keys: Iterable[Hashable]) -> None:
        """Mark the entries of these keys that are resident as used."""
        for first in (self._resident[key] for key in keys if key in self._resident):
            del self._used[first]
            self._used[first] = None

    def fits_without_evicting(self, keys: Collection[Hashable], words: int) -> bool:
        """Whether all keys are resident and `words` more words fit without evicting them."""
        lost = self._keys[self._over(self._address_for(words), words)]
        return all(key in self._resident for key in keys) and not any(key in keys for key in lost)

    def _address_for(self, words: int) -> int:
        """First word, in a bank, of the space whose most recently used entry is least recent."""
        if words <= self._free:
            for end, following in zip(self._ends, self._firsts[1:], strict=False):
                if words <= following - end and words <= following - self._on_grid(end):
                    return self._on_grid(end)
        lost: set[int] = set()
        for first in self._used:  # evict in LRU order until the entry fits
            low = high = bisect_left(self._firsts, first + 1) - 1
            lost.add(low)
            while low - 1 in lost:
                low -= 1
            while high + 1 in lost:
                high += 1
            first = self._on_grid(self._ends[low - 1])
            if words <= self._firsts[high + 1] - first:
                return first
        return 0

    def _on_grid(self, word: int) -> int:
        """The next word from this one on at which an entry may begin."""
        return word + -(word % self._size) % self.grid if self.grid > 1 else word

    def _over(self, first: int, words: int) -> slice:
        """Indices of the entries that overlap these words."""
        return slice(bisect_right(self._ends, first), bisect_left(self._firsts, first + words))


class Places(Forking):
    """Banks of which each holds a whole map or several parts of maps, so that parts that the next
    tiles read again stay, and those of the next tile are loaded early.

    Invariant: a take never evicts the one before it.
    """

    def __init__(self, words: int, banks: int) -> None:
        self.words, self.banks, self.bank_words = words, banks, words // banks
        self._entries, self._evicted = Scratchpad(words, banks), 0

    def detach(self) -> None:
        self._entries = self._entries.fork()

    def find(self, key: Hashable) -> int | None:
        """First word of the entry `key`, marked as used; None if there is none."""
        return self._entries.find(key)

    def take_oldest(self) -> int:
        """Evict the bank that was used least recently; return its first word."""
        self._evicted += 1
        return self.take((None, self._evicted))[0]

    def take(self, key: Hashable, words: int = 0) -> tuple[int, bool]:
        """(first word of an entry, whether it was there). words: of the entry; 0: of a bank."""
        return self._entries.take(key, words or self.bank_words)


AnyBanks = Banks | Places


def map_banks(hw: HwSpec) -> dict[Space, AnyBanks]:
    """Empty banks of every buffer for maps and partial sums of a machine. Features of a slow memory
    have places of their size: to load them again takes longer than to compute with them.
    """
    features = Places if hw.dram.is_slow else Banks
    return {
        space: (features if space is Space.FEATURE else Banks)(buffer.words, buffer.banks)
        for space in Space
        if space not in CONSTANTS and (buffer := getattr(hw.buffers, space.value, None))
    }


def scratchpads(
    hw: HwSpec, spaces: Iterable[Space] = CONSTANTS, *, together: bool = False
) -> dict[Space, Scratchpad]:
    """Empty scratchpads of the constant buffers of a machine.

    together: each buffer is one bank.
    """
    return {
        space: Scratchpad(buffer.words, 1 if together else buffer.banks)
        for space in spaces
        if (buffer := getattr(hw.buffers, space.value, None))
    }
