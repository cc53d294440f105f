"""Names of choices that the scheduler leaves to the user."""

from enum import StrEnum


class FusedStackChoice(StrEnum):
    """Which groups are computed together, strip by strip: those for which that is better, as many
    as possible, none.
    """

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"
