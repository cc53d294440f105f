"""One instruction: a C-type with every parameter its engine latches when it starts."""

from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from opu_fuse.hw.isa.table import Engine
from opu_fuse.units.params import ComputeParams, FetchParams, LoadParams, PostParams, StoreParams


class Instruction(Struct, frozen=True, kw_only=True):
    """A started engine.

    params: value of every register of the engine (names of `isa.REGISTERS`; all present, unused
    ones 0), and under `name@bank` those of further units that are not 0; what reads them of one
    engine takes the property of its name. waits / signals: engines whose token is popped before the
    start / that get a token at retirement. Equality is by value; the order of a program is the
    order of fetching.
    """

    engine: Engine
    opcode: str
    params: Mapping[str, int]
    waits: tuple[Engine, ...] = ()
    signals: tuple[Engine, ...] = ()

    @property
    def fetch(self) -> FetchParams:
        return cast("FetchParams", self.params)

    @property
    def load(self) -> LoadParams:
        return cast("LoadParams", self.params)

    @property
    def compute(self) -> ComputeParams:
        return cast("ComputeParams", self.params)

    @property
    def post(self) -> PostParams:
        return cast("PostParams", self.params)

    @property
    def store(self) -> StoreParams:
        return cast("StoreParams", self.params)

    @property
    def transfer(self) -> LoadParams | StoreParams:
        """Params of a load or store, typed for the registers that both have."""
        return cast("LoadParams | StoreParams", self.params)

    @property
    def dram(self) -> int:
        """Byte offset in the memory window (load and store only)."""
        p = self.transfer
        return p["dram_lo"] | p["dram_hi"] << 22


def split_address(offset: int) -> dict[str, int]:
    """Byte offset -> the two registers that hold it."""
    return {"dram_lo": offset & 0x3FFFFF, "dram_hi": offset >> 22}
