"""Charts over time, and the roofline."""

from collections.abc import Mapping
from typing import Any

from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
    WheelZoomTool,
)
from bokeh.plotting import figure

from opu_fuse.report.page.colours import DASHES, LIMITS, LINES, MARKERS, of_group

Tree = Mapping[str, Any]

TRACKS = ("groups", "fetch", "load", "compute", "post", "store")
INK_TAG = "ink"
"""Of lines that the page draws in the colour of text."""
WAIT = "#b4b8bf"
_UNITS = (("MB", 10**6), ("kB", 10**3), ("bytes", 1))


def timeline(program: Tree, number: int) -> Any:
    """A bar for every instruction and every wait on the track of its engine; zooms along time."""
    slices = program["timeline"]
    plot = _over_time(
        f"timeline-{number}",
        260,
        Range1d(start=0, end=max(slices["to"], default=1), bounds="auto"),
        y_range=list(reversed(TRACKS)),
    )
    columns = ("track", "name", "from", "to", "group")
    for waits, height in ((True, 0.35), (False, 0.8)):
        rows = [i for i, wait in enumerate(slices["wait"]) if wait is waits]
        data: dict[str, Any] = {key: [slices[key][i] for i in rows] for key in columns}
        data["fill"] = [WAIT if waits else _colour(slices["group"][i]) for i in rows]
        source = ColumnDataSource(data, name=f"{'waits' if waits else 'busy'}-{number}")
        bars = plot.hbar(
            y="track", left="from", right="to", height=height, fill_color="fill",
            line_color=None, source=source,
            legend_label="waits" if waits else "busy",
        )  # fmt: skip
        where = [("what", "@name"), ("group", "@group"), ("cycles", "@from{0,0} to @to{0,0}")]
        plot.add_tools(HoverTool(renderers=[bars], tooltips=where))
    plot.legend.click_policy = "hide"
    plot.legend.orientation = "horizontal"
    plot.add_layout(plot.legend[0], "above")
    return plot


def traffic(program: Tree, x_range: Any, number: int) -> Any:
    """Bytes per cycle between DRAM and the machine, and the limit of the memory."""
    memory, most = program["memory"], program["summary"]["dram_bytes_per_cycle"]
    plot = _over_time(f"traffic-{number}", 240, x_range, y_axis_label="DRAM, bytes per cycle")
    for key, colour in (("read", LINES[0]), ("written", LINES[1])):
        plot.step(
            memory["cycles"][:-1], memory[key], mode="after", color=colour, line_width=1.5,
            legend_label=key,
        )  # fmt: skip
    limit = plot.line(
        [0, memory["cycles"][-1]], [most, most], line_dash="dashed",
        legend_label="limit of the memory",
    )  # fmt: skip
    limit.glyph.tags = [INK_TAG]
    return _with_legend(plot)


def alive(program: Tree, x_range: Any, number: int) -> Any:
    """Feature maps in DRAM that are still going to be read."""
    memory = program["memory"]
    largest = max(memory["alive_bytes"], default=0)
    unit, factor = next((u, f) for u, f in _UNITS if largest >= f or f == 1)
    plot = _over_time(f"alive-{number}", 220, x_range, y_axis_label=f"live maps in DRAM, {unit}")
    shown = [size / factor for size in memory["alive_bytes"]]
    plot.step(memory["cycles"][:-1], shown, mode="after", color=LINES[2], line_width=1.5)
    plot.y_range.start = 0
    return plot


def on_chip(program: Tree, x_range: Any, number: int) -> Any:
    """Share of every on-chip memory that holds words which are still going to be read."""
    memory = program["memory"]
    plot = _over_time(f"on_chip-{number}", 280, x_range, y_axis_label="buffers, % in use")
    for line, (name, buffer) in enumerate(memory["on_chip"].items()):
        share = [100 * words / buffer["words"] for words in buffer["occupied"]]
        plot.step(
            memory["cycles"][:-1], share, mode="after", color=LINES[line % len(LINES)],
            line_dash=DASHES[line % len(DASHES)], line_width=2, legend_label=name,
        )  # fmt: skip
    plot.y_range = Range1d(start=0, end=105)
    return _with_legend(plot)


def roofline(program: Tree, groups: ColumnDataSource, number: int) -> Any:
    """MACs per cycle over MACs per DRAM byte, a point for every group that multiplies."""
    peak, bandwidth = program["summary"]["mac_units"], program["summary"]["dram_bytes_per_cycle"]
    shown = [g for g in program["groups"] if g["macs"] and g["dram_bytes"]]
    reach = [g["macs"] / g["dram_bytes"] for g in shown]
    left, ridge = min([*reach, 1.0]) / 2, peak / bandwidth
    right = max([*reach, ridge]) * 2
    low = min([g["macs"] / g["cycles"] for g in shown if g["cycles"]] + [peak / 10])
    plot = figure(
        name=f"roofline-{number}", height=340, min_width=300, sizing_mode="stretch_width",
        x_axis_type="log", y_axis_type="log",
        x_range=Range1d(start=left, end=right), y_range=Range1d(start=low / 2, end=peak * 1.5),
        x_axis_label="MACs per DRAM byte", y_axis_label="MACs per cycle",
        tools="pan,wheel_zoom,box_zoom,tap,reset",
    )  # fmt: skip
    roof = plot.line([left, ridge, right], [left * bandwidth, peak, peak], line_width=2)
    roof.glyph.tags = [INK_TAG]
    points = plot.scatter(
        "reach", "speed", size="size", fill_color="limit_fill", fill_alpha=0.75,
        line_color="#7a7f88", marker="marker", source=groups,
    )  # fmt: skip
    facts = [
        ("group", "@index @name"),
        ("MACs per cycle", "@speed{0,0.0}"),
        ("MACs per DRAM byte", "@reach{0,0.0}"),
        ("cycles", "@cycles{0,0}"),
        ("bound by", "@bound_by"),
    ]
    plot.add_tools(HoverTool(renderers=[points], tooltips=facts))
    code = f"window.opuFuse?.choose[{number}]?.(groups.selected.indices[0])"
    groups.selected.js_on_change("indices", CustomJS(args={"groups": groups}, code=code))
    return plot


def group_source(program: Tree, number: int) -> ColumnDataSource:
    """A row per group, for the roofline, which selects together with the table and the network."""
    groups = program["groups"]
    longest = max((g["cycles"] for g in groups), default=1) or 1
    return ColumnDataSource(
        {
            "index": [g["index"] for g in groups],
            "name": [g["name"] for g in groups],
            "cycles": [g["cycles"] for g in groups],
            "dram_bytes": [g["dram_bytes"] for g in groups],
            "bound_by": [g["bound_by"] for g in groups],
            "marker": [MARKERS[g["bound_by"]] for g in groups],
            "limit_fill": [LIMITS[g["bound_by"]] for g in groups],
            "reach": [g["macs"] / g["dram_bytes"] if g["dram_bytes"] else None for g in groups],
            "speed": [g["macs"] / g["cycles"] if g["cycles"] else None for g in groups],
            "size": [6 + 20 * (g["cycles"] / longest) ** 0.5 for g in groups],
        },
        name=f"groups-{number}",
    )


def _over_time(name: str, height: int, x_range: Any, **options: Any) -> Any:
    """A chart along the cycles of the run; those with one x_range zoom together."""
    wheel = WheelZoomTool(dimensions="width")
    plot = figure(
        name=name, height=height, min_width=300, sizing_mode="stretch_width", x_range=x_range,
        min_border_left=84, min_border_right=40,
        tools=[wheel, "xpan", "xbox_zoom", "reset"], active_scroll=wheel, **options,
    )  # fmt: skip
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.axis_label = "cycles"
    return plot


_LEGEND_COLUMNS = 4
"""As many names as a narrow screen shows next to each other."""


def _with_legend(plot: Any) -> Any:
    plot.legend.click_policy = "hide"
    plot.legend.orientation = "horizontal"
    plot.legend.label_text_font_size = "11px"
    plot.legend.padding = 2
    plot.legend.ncols = _LEGEND_COLUMNS
    plot.add_layout(plot.legend[0], "above")
    return plot


def _colour(group: int) -> str:
    return "#8a8f98" if group < 0 else of_group(group)
