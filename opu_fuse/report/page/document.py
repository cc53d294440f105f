"""One HTML file about one or more programs; it opens from disk and asks for nothing else.

Everything drawn is taken from the trees of `overview`, which are stored next to the page as JSON.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bokeh.embed import components
from bokeh.model import Model
from bokeh.resources import Resources

from opu_fuse.hw.spec.load_spec import load_hw_text
from opu_fuse.report.page import charts
from opu_fuse.report.page.network import network
from opu_fuse.report.page.tables import (
    differences_table,
    groups_table,
    strategies_table,
    summary_table,
)
from opu_fuse.report.pipeline_drawing import pipeline_svg

Tree = Mapping[str, Any]

_LIBRARY = Resources(mode="inline", components=["bokeh", "bokeh-widgets", "bokeh-tables"])


def document(programs: Sequence[Tree]) -> str:
    """The page, for at least one program."""
    drawn: dict[str, Model] = {}
    for number, program in enumerate(programs):
        drawn |= _drawn(program, number)
    script, places = components(drawn)
    titles = [f"{p['model']} on {p['machine']}" for p in programs]
    heads = [f"<h2>{escape(title)}</h2>" if len(programs) > 1 else "" for title in titles]
    body = "".join(heads[i] + _section(p, i, places) for i, p in enumerate(programs))
    figures, compared = summary_table(programs), ""
    if len(programs) > 1:
        compared = f"{figures}<h3>Where they differ most</h3>{differences_table(programs)}"
        figures = ""
    rest = figures and f"<h3>All figures</h3>{figures}"
    return html(", ".join(titles), f"{compared}\n{body}\n{rest}", script)


def html(title: str, body: str, script: str) -> str:
    """A whole file, the library inside. body, script: HTML."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>{_beside("page.css")}</style>
{_LIBRARY.render_js()}
</head>
<body>
<h1>{escape(title)}</h1>
{body}
{script}
</body>
</html>
"""


def _beside(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _drawn(program: Tree, number: int) -> dict[str, Model]:
    """Name in the page -> what is drawn there."""
    groups = charts.group_source(program, number)
    time = charts.timeline(program, number)
    return {
        f"network-{number}": network(program, groups, number)[0],
        f"table-{number}": groups_table(groups, number),
        f"roofline-{number}": charts.roofline(program, groups, number),
        f"timeline-{number}": time,
        f"traffic-{number}": charts.traffic(program, time.x_range, number),
        f"on_chip-{number}": charts.on_chip(program, time.x_range, number),
        f"alive-{number}": charts.alive(program, time.x_range, number),
    }


def _section(program: Tree, number: int, places: Mapping[str, str]) -> str:
    def place(name: str) -> str:
        return f'<div class="wide" id="{name}-{number}">{places[f"{name}-{number}"]}</div>'

    pipeline = pipeline_svg(load_hw_text(program["spec"]), program["modules"])
    waits = (
        "A click on <i>waits</i> hides them."
        if program["timeline"]["whole"]
        else "The program has too many instructions to show each: those of a group are one bar."
    )
    return f"""
{_numbers(program)}
<h3>Network</h3>
<p>Operators that one group runs have one colour, those of the host are dark. Click one.</p>
{place("network")}
<div class="detail" id="detail-{number}">Nothing chosen yet.</div>
<h3>Groups</h3>
<p>Groups overlap: a cycle counts for the group that the array works for, while it waits for those
that other engines work for. A click on a heading sorts, one on a row shows the group.</p>
{place("table")}
<div class="beside">
<div><h3>Roofline</h3><p>A point a group, larger the longer it takes; green: bound by the array,
violet: by the post chain, red: by memory.</p>{place("roofline")}</div>
<div><h3>Pipeline</h3><p>How much of the time each module's engine works for groups that use it;
red: the module that bounds.</p>{pipeline}</div>
</div>
<h3>Engines over time</h3>
<p>The wheel zooms, dragging moves. {waits}</p>
{place("timeline")}
<h3>Memory over time</h3>
{place("traffic")}
{place("on_chip")}
{place("alive")}
<h3>Strategies</h3>
<p>What each strategy makes of this network, as the closed form predicts it group by group; in bold:
the grouping of this program.</p>
{strategies_table(program)}
"""


def _numbers(program: Tree) -> str:
    summary = program["summary"]
    moved, bound = (
        summary["dram_bytes_read"] + summary["dram_bytes_written"],
        summary["dram_bound_bytes"],
    )
    numbers = {
        "time": f"{summary['milliseconds']:,.3f} ms",
        "images per second": f"{summary['images_per_second']:,.1f}",
        "MAC efficiency": f"{100 * summary['mac_efficiency']:.1f} %",
        "DRAM traffic": f"{moved / 1e6:,.2f} MB",
        "of the bound": f"× {moved / bound:.2f}" if bound else "unknown",
        "operators on host": f"{100 * summary['host_share']:.0f} %",
        "clock": summary["clock"],
    }
    cells = (f"<div>{what}<b>{value}</b></div>" for what, value in numbers.items())
    return f'<div class="numbers">{"".join(cells)}</div>'
