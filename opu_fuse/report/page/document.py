"""One HTML file about one or more programs; it opens from disk and loads nothing else.

Everything drawn is taken from the trees of `overview`, which `report` stores as JSON as well.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bokeh.embed import components
from bokeh.model import Model
from bokeh.resources import Resources

from opu_fuse import __version__
from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.number_text import byte_size, counted, percent, rounded, whole
from opu_fuse.report.page import charts
from opu_fuse.report.page.network import network_data
from opu_fuse.report.page.tables import (
    differences_table,
    groups_table,
    strategies_table,
    summary_table,
)
from opu_fuse.report.pipeline_drawing import pipeline_svg

Tree = Mapping[str, Any]

_LIBRARY = Resources(mode="inline", components=["bokeh"])


def document(programs: Sequence[Tree], command: str = "") -> str:
    """The page, for at least one program. command: that wrote it."""
    drawn: dict[str, Model] = {}
    for number, program in enumerate(programs):
        drawn |= _drawn(program, number)
    script, elements = components(drawn)
    titles = [f"{p['model']} on {p['machine']}" for p in programs]
    several = len(programs) > 1
    heads = [f"<h2>{escape(title)}</h2>" if several else "" for title in titles]
    body = "".join(
        heads[i] + _section(p, i, elements, "h3" if several else "h2")
        for i, p in enumerate(programs)
    )
    figures, compared = summary_table(programs), ""
    if several:
        compared = (
            f'<h2>Comparison</h2>{figures}<h3 class="part">Largest differences between groups</h3>'
            f"{differences_table(programs)}"
        )
        figures = ""
    rest = figures and f'<h2 class="part">All figures</h2>{figures}'
    return html(", ".join(titles), f"{origin(command)}{compared}\n{body}\n{rest}", script)


def html(title: str, body: str, script: str) -> str:
    """A whole file that contains its libraries. body, script: HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{_asset("page.css")}</style>
{_LIBRARY.render_js()}
<script>{_asset("vendor/dagre-3.1.3.min.js")}</script>
<script>{_asset("page.js")}</script>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{body}
</main>
{script}
</body>
</html>
"""


def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def origin(command: str) -> str:
    """Which version wrote the page, with which command."""
    written = f" with <code>{escape(command)}</code>" if command else ""
    return f"<p>Written by opu-fuse {__version__}{written}.</p>"


def _drawn(program: Tree, number: int) -> dict[str, Model]:
    """Charts of Bokeh, by the name of their element."""
    groups = charts.group_source(program, number)
    time = charts.timeline(program, number)
    return {
        f"roofline-{number}": charts.roofline(program, groups, number),
        f"timeline-{number}": time,
        f"traffic-{number}": charts.traffic(program, time.x_range, number),
        f"on_chip-{number}": charts.on_chip(program, time.x_range, number),
        f"alive-{number}": charts.alive(program, time.x_range, number),
    }


def _section(program: Tree, number: int, elements: Mapping[str, str], level: str) -> str:
    """level: of the headings, "h2" or "h3"."""

    def head(text: str) -> str:
        return f'<{level} class="part">{text}</{level}>'

    def chart(name: str, label: str) -> str:
        identifier = f"{name}-{number}"
        return (
            f'<div class="wide chart" id="{identifier}" tabindex="0" role="group" '
            f'aria-label="{label}">{elements[identifier]}</div>'
        )

    pipeline = pipeline_svg(load_hw_text(program["spec"]), program["modules"])
    waits = (
        "Click <i>waits</i> to hide them."
        if program["timeline"]["whole"]
        else "The program has too many instructions to show each: those of a group are one bar."
    )
    return f"""
{_machine(program)}
{_numbers(program)}
{head("Network")}
<p>Operators of one group have one colour, those of the host CPU are dark; dashed edges
skip operators of another path. Select an operator to see where it runs and why its group ends.</p>
{_graph(program, number)}
{head("Groups")}
<p>Groups overlap: a cycle counts for the group that the array computes, or waits for. Select a
group to show it in the network.</p>
{groups_table(program, number)}
<div class="columns">
<div>{head("Roofline")}<p>One point per group, larger the longer it runs. Green circle: bound by the
array, violet square: by the post chain, red triangle: by memory.</p>
{chart("roofline", "Roofline of the groups")}</div>
<div>{head("Pipeline")}<p>Share of the time in which the engine of each module is busy; red: the
module that bounds.</p><div class="paper" tabindex="0" role="group" aria-label="Pipeline">
{pipeline}</div></div>
</div>
{head("Engines over time")}
<p>The wheel zooms, dragging pans. {waits}</p>
{chart("timeline", "Engines over time")}
{head("Memory over time")}
{chart("traffic", "DRAM traffic over time")}
{chart("on_chip", "Use of the on-chip buffers over time")}
{chart("alive", "Live feature maps in DRAM over time")}
{head("Strategies")}
<p>The result of each fusion strategy for this network, predicted group by group in closed form. In
bold: the grouping of this program.</p>
{strategies_table(program)}
"""


def _graph(program: Tree, number: int) -> str:
    zooms = {
        "out": '<span aria-hidden="true">−</span><span class="spoken">Zoom out</span>',
        "in": '<span aria-hidden="true">+</span><span class="spoken">Zoom in</span>',
        "full": "100 %",
        "whole": "Fit",
    }
    buttons = "".join(
        f'<button type="button" data-zoom="{what}">{text}</button>' for what, text in zooms.items()
    )
    return f"""<div class="network">
<div class="canvas"><div class="buttons">{buttons}<small>Ctrl + wheel zooms</small></div>
<div class="graph" id="network-{number}" tabindex="0" role="group" aria-label="Network"></div></div>
<div class="detail" id="detail-{number}" role="status" tabindex="0">No operator is selected.</div>
</div>
<script type="application/json" id="data-{number}">{network_data(program)}</script>"""


def _machine(program: Tree) -> str:
    """Which machine with which memory the figures are of."""
    summary, machine = program["summary"], escape(program["machine"])
    memory = (
        f"{rounded(summary['dram_bytes_per_cycle'])} bytes per cycle, latency "
        f"{counted(summary['dram_latency'], 'cycle')}"
    )
    facts = {
        "machine": f"{machine}: {escape(program['description'])}",
        "array": f"{counted(summary['mac_units'], 'MAC')} per cycle",
        "on-chip memory": byte_size(summary["on_chip_bytes"]),
        "clock": escape(summary["clock"]),
        "DRAM": memory,
        "compiled by": f"opu-fuse {escape(program['tool_version'])}",
    }
    items = (f"<div><dt>{name}</dt><dd>{text}</dd></div>" for name, text in facts.items())
    return f'<dl class="facts">{"".join(items)}</dl>'


def _numbers(program: Tree) -> str:
    summary = program["summary"]
    moved = summary["dram_bytes_read"] + summary["dram_bytes_written"]
    least = summary["dram_bound_bytes"]
    numbers = {
        "time": f"{rounded(summary['milliseconds'])} ms",
        "cycles": whole(summary["cycles"]),
        "images per second": rounded(summary["images_per_second"]),
        "MAC efficiency": percent(summary["mac_efficiency"]),
        "DRAM traffic": byte_size(moved),
        "DRAM traffic / least possible": rounded(moved / least, 3) if least else "unknown",
        "operators on the host CPU": f"{whole(summary['host_operators'])} of "
        f"{whole(summary['operators'])}",
    }
    cells = (f"<div>{what}<b>{value}</b></div>" for what, value in numbers.items())
    return f'<div class="numbers">{"".join(cells)}</div>'
