"""One decoded instruction: a C-type and all registers as its engine latches them at the start."""

from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from opu_fuse.hw.isa.table import VALUE_BITS, Engine
from opu_fuse.units.params import ComputeParams, FetchParams, LoadParams, PostParams, StoreParams


class Instruction(Struct, frozen=True, kw_only=True):
    """One start of an engine. Equality is by value; a program is a sequence in fetch order.

    params: value of every register of the engine (`isa.REGISTERS`). Registers that the opcode does
        not use are 0. Registers of a second or later unit of the same kind are included under
        `name@bank` where they are not 0.
    waits: engines from which a token is popped before the start.
    signals: engines to which a token is pushed at retirement.

    The properties `fetch`, `load`, `compute`, `post` and `store` are `params` with the static type
    of that engine. They do not check `engine`.
    """

    engine: Engine
    opcode: str
    params: Mapping[str, int]
    waits: tuple[Engine, ...] = ()
    signals: tuple[Engine, ...] = ()

    # Views of `params` with a static type; no conversion takes place.
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
        params = self.transfer
        return params["dram_lo"] | params["dram_hi"] << VALUE_BITS


def split_address(offset: int) -> dict[str, int]:
    """The registers `dram_lo` and `dram_hi` of a byte offset in the memory window.

    It is the inverse of `Instruction.dram`.
    """
    return {"dram_lo": offset & ((1 << VALUE_BITS) - 1), "dram_hi": offset >> VALUE_BITS}
