"""Names of the engines and of the memories behind them, importable without them."""

from enum import StrEnum
from typing import Literal


class EngineName(StrEnum):
    """Engines that execute programs; the cycle engine has no data. native: the functional engine
    in C.
    """

    FUNCTIONAL = "functional"
    NATIVE = "native"
    CYCLE = "cycle"
    RTL = "rtl"


class MemoryName(StrEnum):
    """Memories whose timing `sim/ddr.py` knows."""

    DDR3_1600_X64 = "ddr3-1600x64"
    DDR3_1600_X16 = "ddr3-1600x16"


EngineLike = EngineName | Literal["functional", "native", "cycle", "rtl"]
"""As an argument; the names are those above (`tests/api/test_public_api.py`)."""
