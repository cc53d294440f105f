"""The page of a sweep or an exploration: points over two figures of choice, and those that no
other point beats.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import permutations
from typing import Any

from bokeh.embed import components
from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter
from bokeh.plotting import figure
from msgspec import Struct

from opu_fuse.number_text import counted, rounded, whole
from opu_fuse.report.page.colours import LINES, SERIES_MARKERS
from opu_fuse.report.page.document import html, origin

Point = Mapping[str, Any]
"""A row; None where it has no such figure."""


_LEGEND_COLUMNS = 3


class Figure(Struct, frozen=True, kw_only=True):
    """A number of every point. form: how it is written; scale: factor to the unit of the title."""

    title: str
    form: Callable[[float], str] = rounded
    scale: float = 1.0
    more_is_better: bool = False


class Layout(Struct, frozen=True, kw_only=True):
    """What a page shows. figures: by column; texts: columns that identify a point, with headings;
    series: the column by which points are coloured; common_front: one line through points that no
    point of any series beats, not a line for each series; x, y: the figures shown first.
    """

    figures: Mapping[str, Figure]
    texts: Mapping[str, str]
    series: str
    x: str
    y: str
    common_front: bool = False

    def value(self, point: Point, name: str) -> float | None:
        """A figure in the unit of its title."""
        return None if point[name] is None else point[name] * self.figures[name].scale

    def text(self, point: Point, name: str) -> str:
        """The same as people read it."""
        value = self.value(point, name)
        return "" if value is None else self.figures[name].form(value)

    def worth(self, point: Point, name: str) -> float:
        """Smaller is better."""
        return point[name] * (-1 if self.figures[name].more_is_better else 1)


SWEEP = Layout(
    figures={
        "milliseconds": Figure(title="time, ms"),
        "images_per_second": Figure(title="images per second", more_is_better=True),
        "cycles": Figure(title="cycles", form=whole),
        "on_chip_bytes": Figure(title="on-chip memory, bytes", form=whole),
        "mac_units": Figure(title="MAC units", form=whole),
        "dram_bytes": Figure(title="DRAM traffic, bytes", form=whole),
        "bytes_per_cycle": Figure(title="memory bandwidth, bytes per cycle"),
        "latency": Figure(title="memory latency, cycles", form=whole),
        "mac_efficiency": Figure(title="MAC efficiency, %", scale=100.0, more_is_better=True),
        "host_operators": Figure(title="operators on the host CPU", form=whole),
        "xc7_lut": Figure(title="LUTs, Xilinx 7 series", form=whole),
        "ecp5_lut": Figure(title="LUTs, Lattice ECP5", form=whole),
    },
    texts={
        "model": "model",
        "image": "image size",
        "spec": "machine",
        "strategy": "strategy",
        "scales": "scales",
        "batch": "images per run",
    },
    series="model",
    x="on_chip_bytes",
    y="milliseconds",
)


def pareto(points: Sequence[Point], layout: Layout, x: str, y: str) -> list[int]:
    """Indices of the points that no other one beats in x and y, from the best x to the best y; of
    equal ones the first.
    """
    known = [i for i, p in enumerate(points) if p[x] is not None and p[y] is not None]
    front: list[int] = []
    for index in sorted(known, key=lambda i: [layout.worth(points[i], n) for n in (x, y)]):
        if not front or layout.worth(points[index], y) < layout.worth(points[front[-1]], y):
            front.append(index)
    return front


def page(rows: Sequence[Point], title: str, layout: Layout = SWEEP, command: str = "") -> str:
    """HTML of the points that have no error; those that have are counted."""
    points = [row for row in rows if row["error"] is None]
    errors = Counter(row["error"] for row in rows if row["error"] is not None)
    body = [origin(command), f"<p>{counted(len(points), 'point')}, {errors.total():,} failed.</p>"]
    script = ""
    if points:
        script, (chart,) = components((_chart(points, layout),))
        body += [_same(points, layout), _choice(layout), _framed(chart), _table(points, layout)]
    if errors:
        lines = (f"<li>{whole(n)}: {escape(text)}</li>" for text, n in errors.most_common())
        body.append(f"<h2>Failed points</h2><ul>{''.join(lines)}</ul>")
    return html(title, "\n".join(body), script)


def _varying(points: Sequence[Point], layout: Layout) -> dict[str, str]:
    """Columns of text in which points differ, with their headings; settings of a sweep included."""
    settings = {n: n.removeprefix("set.") for p in points for n in p if n.startswith("set.")}
    texts = {**layout.texts, **settings}
    return {n: head for n, head in texts.items() if len({p.get(n) for p in points}) > 1}


def _same(points: Sequence[Point], layout: Layout) -> str:
    """What all points have in common."""
    varying = _varying(points, layout)
    facts = {
        head: points[0].get(n)
        for n, head in layout.texts.items()
        if n not in varying and points[0].get(n) not in (None, "")
    }
    items = (f"<div><dt>{escape(k)}</dt><dd>{escape(str(v))}</dd></div>" for k, v in facts.items())
    return f'<dl class="facts">{"".join(items)}</dl>'


def _choice(layout: Layout) -> str:
    def select(axis: str, chosen: str) -> str:
        options = "".join(
            f'<option value="{n}"{" selected" if n == chosen else ""}>{escape(f.title)}</option>'
            for n, f in layout.figures.items()
        )
        return (
            f'<div><label for="axis-{axis}">{axis} axis</label> '
            f'<select id="axis-{axis}">{options}</select></div>'
        )

    return f'<div class="chooser">{select("x", layout.x)}{select("y", layout.y)}</div>'


def _framed(chart: str) -> str:
    return (
        '<div class="wide chart" tabindex="0" role="group" aria-label="Chart of all points">'
        f"{chart}</div>"
    )


def _table(points: Sequence[Point], layout: Layout) -> str:
    """All points as a table, of which the page shows those that no other point beats, and the data
    for choosing other axes.
    """
    texts = _varying(points, layout)
    heads = [
        *((head, "") for head in texts.values()),
        *((f.title, ' class="number"') for f in layout.figures.values()),
    ]
    head = "".join(
        f'<th scope="col"{kind}><button type="button">{escape(title)}</button></th>'
        for title, kind in heads
    )
    rows = []
    for point in points:
        cells = [f"<td>{escape(_text(point.get(name)))}</td>" for name in texts]
        cells += [
            f'<td class="number" data-value="{_text(point[name])}">{layout.text(point, name)}</td>'
            for name in layout.figures
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    fronts = {f"{x} {y}": _front(points, layout, x, y) for x, y in permutations(layout.figures, 2)}
    values = {name: [layout.value(p, name) for p in points] for name in layout.figures}
    titles = {name: f.title for name, f in layout.figures.items()}
    same = "" if layout.common_front else f" of the same {layout.texts[layout.series]}"
    data = json.dumps({"values": values, "titles": titles, "fronts": fronts}, separators=(",", ":"))
    return (
        f"<h2>Pareto-optimal points</h2><p>The points of the lines: no other point{same} is better "
        'in both figures.</p><p><label><input type="checkbox" id="all-points"> '
        'show all points</label></p><div class="wide tall" tabindex="0" role="group" '
        'aria-label="Table of points"><table class="points"><thead><tr>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        f'<script type="application/json" id="points">{data}</script>'
    )


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _chart(points: Sequence[Point], layout: Layout) -> Any:
    """Points with their facts on hover, and a line for each series; the page changes the axes."""
    x, y, texts = layout.x, layout.y, _varying(points, layout)
    series = list(dict.fromkeys(p[layout.series] for p in points))
    number = [series.index(p[layout.series]) for p in points]
    facts = {head: [_text(p.get(name)) for p in points] for name, head in texts.items()}
    facts |= {f.title: [layout.text(p, n) for p in points] for n, f in layout.figures.items()}
    columns: dict[str, Any] = {f"fact{n}": fact for n, fact in enumerate(facts.values())}
    columns |= {
        "x": [layout.value(p, x) for p in points],
        "y": [layout.value(p, y) for p in points],
        "series": [str(series[n]) for n in number],
        "colour": [LINES[n % len(LINES)] for n in number],
        "marker": [SERIES_MARKERS[n % len(SERIES_MARKERS)] for n in number],
    }
    front = _front(points, layout, x, y)
    lines: dict[str, Any] = {key: front[key] for key in ("xs", "ys", "colour")}
    plot = figure(
        name="scatter", height=460, min_width=320, sizing_mode="stretch_width",
        x_axis_label=layout.figures[x].title, y_axis_label=layout.figures[y].title,
        tools="pan,wheel_zoom,box_zoom,reset", active_scroll="wheel_zoom",
    )  # fmt: skip
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0.[000000]")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[000000]")
    dots = plot.scatter(
        "x", "y", size=10, fill_color="colour", line_color="#7a7f88", fill_alpha=0.7,
        marker="marker", legend_group="series", source=ColumnDataSource(columns, name="points"),
    )  # fmt: skip
    plot.multi_line(
        "xs", "ys", line_color="colour", line_width=2, source=ColumnDataSource(lines, name="lines")
    )
    plot.add_layout(plot.legend[0], "above")
    plot.legend.ncols = min(len(series), _LEGEND_COLUMNS)
    tips = [(head, f"@fact{n}") for n, head in enumerate(facts)]
    plot.add_tools(HoverTool(renderers=[dots], tooltips=tips))
    return plot


def _front(points: Sequence[Point], layout: Layout, x: str, y: str) -> dict[str, list[Any]]:
    """Pareto-optimal points of every series, or of all: their numbers, and a line through them."""
    series_of = ["" if layout.common_front else p[layout.series] for p in points]
    columns: dict[str, list[Any]] = {"indices": [], "xs": [], "ys": [], "colour": []}
    for number, name in enumerate(dict.fromkeys(series_of)):
        mine = [i for i, series in enumerate(series_of) if series == name]
        indices = [mine[i] for i in pareto([points[i] for i in mine], layout, x, y)]
        columns["indices"] += indices
        columns["xs"].append([layout.value(points[i], x) for i in indices])
        columns["ys"].append([layout.value(points[i], y) for i in indices])
        columns["colour"].append(LINES[number % len(LINES)])
    return columns
