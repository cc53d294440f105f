"""Names of the engines, importable without them."""

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


EngineLike = EngineName | Literal["functional", "native", "cycle", "rtl"]
"""As an argument; the names are those above (`tests/api/test_public_api.py`)."""
