"""The network as a drawing: operators as boxes along their longest path, wrapped like text."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate, count
from typing import Any

from bokeh.models import ColumnDataSource, CustomJS, HoverTool, Range1d, TapTool
from bokeh.plotting import figure

from opu_fuse.report.page.colours import HOST, of_group

Tree = Mapping[str, Any]
Place = tuple[int, int]
Point = tuple[float, float]

COLUMNS = 16
"""Boxes side by side; a label of NAME_LENGTH letters fits into one."""
NAME_LENGTH = 8
_WIDTH, _HEIGHT = 0.88, 0.56
_ROW_PIXELS = 34


def network(program: Tree, groups: ColumnDataSource, number: int) -> tuple[Any, ColumnDataSource]:
    """The figure and its operators. A click shows an operator's facts in the page's element
    `detail-<number>` and selects its group.
    """
    operators = program["operators"]
    places = placed([o["name"] for o in operators], program["edges"])
    page = _on_page(places)
    by_group = {g["index"]: g for g in program["groups"]}
    at = [page[o["name"]] for o in operators]
    source = ColumnDataSource(
        {
            "x": [x for x, _ in at],
            "y": [-y for _, y in at],
            "name": [o["name"] for o in operators],
            "label": [_label(o["op"]) for o in operators],
            "where": [_where(o) for o in operators],
            "group": [-1 if o["group"] is None else o["group"] for o in operators],
            "fill": [HOST if o["group"] is None else of_group(o["group"]) for o in operators],
            "line": [1.0] * len(operators),
            "detail": [detail(o, by_group.get(o["group"])) for o in operators],
        },
        name=f"operators-{number}",
    )
    bottom = max((y for _, y in at), default=0)
    plot = figure(
        name=f"network-{number}",
        height=int(_ROW_PIXELS * (bottom + 1)) + 50,
        min_width=900,
        sizing_mode="stretch_width",
        x_range=Range1d(start=-0.8, end=COLUMNS - 0.2),
        y_range=Range1d(start=-bottom - 0.6, end=0.8),
        tools="pan,wheel_zoom,reset",
        toolbar_location="above",
    )
    plot.axis.visible = False
    plot.grid.visible = False
    lines = [line for edge in program["edges"] for line in _lines(places, page, *edge)]
    plot.multi_line(
        [[x for x, _ in line] for line in lines],
        [[-y for _, y in line] for line in lines],
        color="#8a8f98",
        line_width=1.2,
    )
    boxes = plot.rect(
        "x",
        "y",
        width=_WIDTH,
        height=_HEIGHT,
        fill_color="fill",
        line_color="#1d2733",
        line_width="line",
        source=source,
    )
    boxes.nonselection_glyph = None
    plot.text(
        "x", "y", "label", source=source,
        text_align="center", text_baseline="middle", text_font_size="9px",
    ).nonselection_glyph = None  # fmt: skip
    plot.add_tools(
        HoverTool(renderers=[boxes], tooltips=[("operator", "@name"), ("where", "@where")]),
        TapTool(renderers=[boxes]),
    )
    source.selected.js_on_change(
        "indices",
        CustomJS(
            args={"operators": source, "groups": groups},
            code=f"""
            const [i] = operators.selected.indices
            if (i === undefined) return
            document.getElementById("detail-{number}").innerHTML = operators.data.detail[i]
            const group = operators.data.group[i]
            groups.selected.indices = group < 0 ? [] : [groups.data.index.indexOf(group)]
            """,
        ),
    )
    groups.selected.js_on_change(
        "indices",
        CustomJS(
            args={"operators": source, "groups": groups},
            code=f"""
            const chosen = groups.selected.indices.map((i) => groups.data.index[i])
            const of = operators.data.group
            operators.data.line = Array.from(of, (g) => chosen.includes(g) ? 3 : 1)
            operators.change.emit()
            const [i] = operators.selected.indices
            const first = Array.from(of).indexOf(chosen[0])
            if (first >= 0 && (i === undefined || !chosen.includes(of[i])))
                document.getElementById("detail-{number}").innerHTML = operators.data.detail[first]
            """,
        ),
    )
    return plot, source


def placed(names: Sequence[str], edges: Sequence[Sequence[str]]) -> dict[str, Place]:
    """Operator -> (number of predecessors on the longest path, lane). Without edges one
    after the other. names: operands before their readers.
    """
    operands: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        operands[target].append(source)
    places: dict[str, Place] = {}
    taken: dict[int, set[int]] = defaultdict(set)
    for number, name in enumerate(names):
        before = [places[o] for o in operands[name] if o in places]
        depth = 1 + max((d for d, _ in before), default=-1) if edges else number
        wanted = max(before, default=(0, 0))[1]
        free = (lane for lane in count() if lane not in taken[depth])
        lane = next(free) if wanted in taken[depth] else wanted
        taken[depth].add(lane)
        places[name] = (depth, lane)
    return places


def _on_page(places: Mapping[str, Place]) -> dict[str, Point]:
    """Column and row of every operator, lines of COLUMNS wrapped; a line is as high as its
    lanes.
    """
    heights: dict[int, int] = defaultdict(int)
    for depth, lane in places.values():
        line = depth // COLUMNS
        heights[line] = max(heights[line], lane + 1)
    lines = range(max(heights, default=-1) + 1)
    tops = list(accumulate((heights[line] + 0.35 for line in lines), initial=0.0))
    return {
        name: (depth % COLUMNS, tops[depth // COLUMNS] + lane)
        for name, (depth, lane) in places.items()
    }


def _lines(
    places: Mapping[str, Place], page: Mapping[str, Point], source: str, target: str
) -> Iterator[list[Point]]:
    """From box to box; above the boxes between; out at the right and in at the left where the line
    ends between them.
    """
    if source not in places or target not in places:
        return
    (depth, lane), (to_depth, to_lane) = places[source], places[target]
    (x0, y0), (x1, y1) = page[source], page[target]
    half = _WIDTH / 2
    if depth // COLUMNS != to_depth // COLUMNS:
        yield [(x0 + half, y0), (COLUMNS - 0.3, y0)]
        yield [(-0.7, y1), (x1 - half, y1)]
    elif to_depth - depth == 1 or lane != to_lane:
        yield [(x0 + half, y0), (x0 + 0.5, y0), (x0 + 0.5, y1), (x1 - half, y1)]
    else:
        over = y0 - _HEIGHT / 2 - 0.12
        yield [(x0 + 0.3, y0 - 0.2), (x0 + 0.3, over), (x1 - 0.3, over), (x1 - 0.3, y1 - 0.2)]


def _label(op: str) -> str:
    name = op.removeprefix("host:")
    return name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…"


def _where(operator: Tree) -> str:
    if operator["group"] is None:
        return "host"
    return f"group {operator['group']}, {operator['module'] or 'a view, no work'}"


def detail(operator: Tree, group: Tree | None) -> str:
    """HTML about one operator: where it runs, what its group costs, the reason of every boundary
    and what would change it.
    """
    parts = [f"<h4>{escape(operator['name'])} <small>{escape(operator['op'])}</small></h4>"]
    if operator["shape"]:
        parts.append(f"<p>makes {'×'.join(map(str, operator['shape']))}</p>")
    if group is None:
        parts.append(f"<p><b>On the host</b>: {_reason(operator['host'] or '')}</p>")
    else:
        tile = group["tile"]
        channels = {1: "all channels"}.get(
            tile["channel_blocks"], f"channels in {tile['channel_blocks']} parts"
        )
        parts.append(
            f"<p><b>Group {group['index']}</b>, module <b>{escape(operator['module'] or 'none')}"
            f"</b>: {escape(group['name'])}</p><p>{group['cycles']:,} cycles "
            f"({group['predicted_cycles']:,} predicted), bound by {group['bound_by']}, "
            f"{100 * group['mac_efficiency']:.1f} % of the MAC units, "
            f"{group['dram_bytes']:,} bytes of DRAM</p><p>{tile['count']} tiles of at most "
            f"{tile['rows']} × {tile['cols']} pixels, {channels}</p>"
        )
    if operator["boundaries"]:
        cuts = (
            f"<li>before <b>{escape(cut['to'])}</b>: {_reason(cut['reason'])}</li>"
            for cut in operator["boundaries"]
        )
        parts.append(f"<p>The group ends here</p><ul>{''.join(cuts)}</ul>")
    return "".join(parts)


def _reason(text: str) -> str:
    """A reason, and after its semicolon what would change it."""
    why, _, change = text.partition("; ")
    return escape(why) + (f"<br><i>to change it: {escape(change)}</i>" if change else "")
