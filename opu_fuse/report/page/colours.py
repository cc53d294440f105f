"""Colours that mean the same in all charts of a page, readable on white and on black."""

from bokeh.palettes import Set3_12

INK = "#1d2733"
"""Text on the colour of a group."""
HOST, HOST_INK = "#4a4f57", "#ffffff"
"""Operators of the host CPU and the text on them; no group has a colour as dark."""
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8f7a00", "#3aa0d8", "#7a7f88", "#a04000")
"""Okabe and Ito's palette, distinguishable for people with colour blindness; yellow is darker."""
DASHES = ("solid", "dashed", "dotted", "dotdash", "dashdot", "solid", "dashed", "dotted")
"""Next to a colour of `LINES`: no two lines of a chart have both in common."""
LIMITS = {"array": "#009e73", "post": "#cc79a7", "memory": "#d55e00"}
"""By what bounds a group."""
SERIES_MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex")
MARKERS = {"array": "circle", "post": "square", "memory": "triangle"}

_GROUPS = tuple(colour for colour in Set3_12 if colour != "#d9d9d9")  # grey is for waits


def of_group(index: int) -> str:
    """Neighbours differ."""
    return _GROUPS[index % len(_GROUPS)]
