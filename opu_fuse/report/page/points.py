"""The page of a sweep: points over two figures of choice, and those that no other one beats."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from itertools import permutations
from typing import Any

from bokeh.embed import components
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, CustomJS, DataTable, HoverTool, Select, TableColumn
from bokeh.plotting import figure

from opu_fuse.report.page.colours import LINES
from opu_fuse.report.page.document import html

Point = Mapping[str, Any]
"""A row of a sweep; None where it has no such figure."""

FIGURES = {
    "milliseconds": "time, ms",
    "images_per_second": "images per second",
    "on_chip_bytes": "on-chip memory, bytes",
    "mac_units": "MAC units",
    "dram_bytes": "DRAM traffic, bytes",
    "bytes_per_cycle": "memory, bytes a cycle",
    "mac_efficiency": "MAC efficiency",
    "xc7_lut": "LUTs of a 7-series device",
    "ecp5_lut": "LUTs of an ECP5",
}
MORE_IS_BETTER = frozenset({"mac_efficiency", "images_per_second"})
"""Of all others less."""
_SHOWN = ("model", "spec", "set", "strategy", "scales", "batch", "bytes_per_cycle", "latency")


def pareto(points: Sequence[Point], x: str, y: str) -> list[int]:
    """Indices of the points that no other one beats in x and y, from the best x to the best y; of
    equal ones the first.
    """

    def worth(place: int, name: str) -> float:
        return points[place][name] * (-1 if name in MORE_IS_BETTER else 1)

    known = [i for i, p in enumerate(points) if p[x] is not None and p[y] is not None]
    front: list[int] = []
    for index in sorted(known, key=lambda i: (worth(i, x), worth(i, y))):
        if not front or worth(index, y) < worth(front[-1], y):
            front.append(index)
    return front


def page(rows: Sequence[Point], title: str) -> str:
    """HTML of the points that have no error; those that have are counted."""
    points = [row for row in rows if row["error"] is None]
    errors = Counter(row["error"] for row in rows if row["error"] is not None)
    script, (place,) = components((_chart(points),))
    body = (
        f"<p>{len(points)} points, {errors.total()} that failed. Lines join, model by model, the "
        "points that no other one beats in both figures; below they stand as a table.</p>\n"
        f'<div class="wide">{place}</div>\n'
    )
    if errors:
        lines = (f"<li>{count}: {escape(text)}</li>" for text, count in errors.most_common())
        body += f"<h3>What failed</h3><ul>{''.join(lines)}</ul>"
    return html(title, body, script)


def _chart(points: Sequence[Point]) -> Any:
    """Choosing a figure puts other columns into x and y; the fronts are computed before."""
    models = list(dict.fromkeys(p["model"] for p in points))
    fronts = {f"{x} {y}": _front(points, models, x, y) for x, y in permutations(FIGURES, 2)}
    x, y = "on_chip_bytes", "milliseconds"
    names = list(dict.fromkeys((*_SHOWN, *FIGURES)))
    columns = {name: [p[name] for p in points] for name in names}
    colours = [LINES[models.index(p["model"]) % len(LINES)] for p in points]
    every = ColumnDataSource(
        {**columns, "x": columns[x], "y": columns[y], "colour": colours}, name="points"
    )
    best = ColumnDataSource(
        {name: [points[i][name] for i in fronts[f"{x} {y}"]["places"]] for name in names},
        name="front",
    )
    lines = ColumnDataSource(
        {key: fronts[f"{x} {y}"][key] for key in ("xs", "ys", "colour")}, name="lines"
    )
    plot = figure(
        name="scatter", height=460, min_width=320, sizing_mode="stretch_width",
        x_axis_label=FIGURES[x], y_axis_label=FIGURES[y],
        tools="pan,wheel_zoom,box_zoom,reset", active_scroll="wheel_zoom",
    )  # fmt: skip
    dots = plot.scatter(
        "x", "y", size=8, fill_color="colour", line_color=None, fill_alpha=0.6,
        legend_group="model", source=every,
    )  # fmt: skip
    if points:
        plot.add_layout(plot.legend[0], "right")
    plot.multi_line("xs", "ys", line_color="colour", line_width=2, source=lines)
    plot.add_tools(HoverTool(renderers=[dots], tooltips=[(n, f"@{n}") for n in names]))
    options: list[str | tuple[Any, str]] = [*FIGURES.items()]
    choose_x = Select(title="across", value=x, options=options, name="across", width=220)
    choose_y = Select(title="up", value=y, options=options, name="up", width=220)
    change = CustomJS(
        args={
            "every": every, "best": best, "lines": lines, "fronts": fronts, "names": names,
            "x": choose_x, "y": choose_y, "xAxis": plot.xaxis[0], "yAxis": plot.yaxis[0],
            "titles": FIGURES,
        },
        code="""
        every.data = {...every.data, x: every.data[x.value], y: every.data[y.value]}
        xAxis.axis_label = titles[x.value]
        yAxis.axis_label = titles[y.value]
        const front = fronts[`${x.value} ${y.value}`] ?? {places: [], xs: [], ys: [], colour: []}
        lines.data = {xs: front.xs, ys: front.ys, colour: front.colour}
        const column = (name) => front.places.map((i) => every.data[name][i])
        best.data = Object.fromEntries(names.map((name) => [name, column(name)]))
        """,
    )  # fmt: skip
    for choice in (choose_x, choose_y):
        choice.js_on_change("value", change)
    table = DataTable(
        source=best, name="front-table", height=300, min_width=900, sizing_mode="stretch_width",
        columns=[TableColumn(field=n, title=n) for n in names], index_position=None,
        reorderable=False,
    )  # fmt: skip
    return column(row(choose_x, choose_y), plot, table, sizing_mode="stretch_width")


def _front(points: Sequence[Point], models: list[str], x: str, y: str) -> dict[str, list[Any]]:
    """A line for each model that has points."""
    columns: dict[str, list[Any]] = {"places": [], "xs": [], "ys": [], "colour": []}
    for number, model in enumerate(models):
        mine = [i for i, p in enumerate(points) if p["model"] == model]
        places = [mine[i] for i in pareto([points[i] for i in mine], x, y)]
        columns["places"] += places
        columns["xs"].append([points[i][x] for i in places])
        columns["ys"].append([points[i][y] for i in places])
        columns["colour"].append(LINES[number % len(LINES)])
    return columns
