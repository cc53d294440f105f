"""One instruction: a C-type with every parameter its engine latches when it starts."""

from collections.abc import Mapping
from dataclasses import dataclass

from opu_fuse.hw.isa import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """A started engine.

    params: value of every register of the engine (names of `isa.REGISTERS`; all present, unused
    ones 0), and under `name@bank` those of further units that are not 0. waits / signals: engines
    whose token is popped before the start / that get a token at retirement. Equality is by value;
    the order of a program is the order of fetching.
    """

    engine: Engine
    opcode: str
    params: Mapping[str, int]
    waits: tuple[Engine, ...] = ()
    signals: tuple[Engine, ...] = ()

    @property
    def dram(self) -> int:
        """Byte offset in the memory window (load and store only)."""
        return self.params["dram_lo"] | self.params["dram_hi"] << 22


def split_address(offset: int) -> dict[str, int]:
    """Byte offset -> the two registers that hold it."""
    return {"dram_lo": offset & 0x3FFFFF, "dram_hi": offset >> 22}
