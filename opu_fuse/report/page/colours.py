"""Colours that mean the same in all charts of a page."""

from bokeh.palettes import Set3_12

HOST = "#4a4f57"
"""Operators of the host; no group has a colour as dark."""
LINES = ("#0b5fa5", "#c0392b", "#1e7d34", "#7d3c98", "#b9770e", "#117a8b", "#555555", "#d35400")
LIMITS = {"array": "#1e7d34", "post": "#7d3c98", "memory": "#c0392b"}
"""By what bounds a group."""

_GROUPS = tuple(colour for colour in Set3_12 if colour != "#d9d9d9")  # grey is for waits


def of_group(index: int) -> str:
    """Neighbours differ."""
    return _GROUPS[index % len(_GROUPS)]
