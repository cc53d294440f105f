"""A chart of the report on its own, for notebooks."""

from html import escape
from typing import Any

from bokeh.embed import file_html
from bokeh.resources import Resources
from msgspec import Struct

_LIBRARY = Resources(mode="inline")  # of which `file_html` takes what the figure needs


class Chart(Struct, frozen=True, kw_only=True):
    """figure: a Bokeh figure, for `bokeh.io.show` and to be changed. A notebook shows the chart by
    itself, in a frame with its library inside, so that no network is needed.
    """

    title: str
    figure: Any

    def __repr__(self) -> str:
        return f"<Chart {self.title}: shown by notebooks, or by bokeh.io.show(chart.figure)>"

    def _repr_html_(self) -> str:
        page = escape(file_html(self.figure, _LIBRARY, self.title), quote=True)
        height = self.figure.height + 20
        style = f"width: 100%; height: {height}px; border: 0"
        return f'<iframe title="{escape(self.title)}" style="{style}" srcdoc="{page}"></iframe>'
