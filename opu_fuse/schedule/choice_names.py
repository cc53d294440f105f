"""Names of choices that the scheduler leaves to the user."""

from enum import StrEnum
from typing import Literal


class FusedStackChoice(StrEnum):
    """Which groups are computed together, strip by strip: those for which that is better, as many
    as possible, none.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


FusedStackLike = FusedStackChoice | Literal["auto", "always", "never"]
"""As an argument; the names are those above (`tests/api/test_public_api.py`)."""
