"""The network as data for the page's drawing (`page.js`): operators as boxes, edges with shapes."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

from opu_fuse.number_text import counted, percent, whole
from opu_fuse.report.page.colours import HOST, HOST_INK, INK, of_group
from opu_fuse.report.page.layered_graph import layered_graph, skipping
from opu_fuse.report.terminal_tables import short

Tree = Mapping[str, Any]

NAME_LENGTH = 30
"""Characters of a name in a box."""
_LABELLED = 2
"""Readers of a value up to which all edges to them have its shape."""
_LETTER, _PADDING, _HEIGHT = 6.6, 20, 40
"""Pixels of a letter at 11 px, of both sides of a box, of its height."""
_JOIN = {"join": True, "group": -1, "size": {"width": 10, "height": 10}}
"""Maps that are next to each other in memory and read as one."""


def network_data(program: Tree) -> str:
    """JSON with `nodes` in topological order and `edges` as [from, to, shape, whether it skips], by
    their number. Of a value with many readers only the first edge has the shape.
    """
    operators = {o["name"]: o for o in program["operators"]}
    edges = [(a, b) for a, b in program["edges"] if a in operators and b in operators]
    graph = layered_graph([*operators], edges)
    by_group = {g["index"]: g for g in program["groups"]}
    nodes = [
        _JOIN if n in graph.joins else _node(operators[n], by_group.get(operators[n]["group"]))
        for n in graph.names
    ]
    skips, readers = skipping(graph), graph.readers

    def label(source: int, target: int) -> str:
        name = graph.names[source]
        if name in graph.joins or (
            len(readers[source]) > _LABELLED and target != readers[source][0]
        ):
            return ""
        return shape_text(operators[name]["shape"])

    lines = [[*edge, label(*edge), edge in skips] for edge in graph.edges]
    text = json.dumps({"nodes": nodes, "edges": lines}, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # nothing may end the script element


def _node(operator: Tree, group: Tree | None) -> dict[str, Any]:
    label, location = short(operator["name"], NAME_LENGTH), _location(operator)
    host = operator["group"] is None
    letters = max(len(label), len(location))
    return {
        "label": label,
        "location": location,
        "title": f"{operator['name']}, {_where(operator)}",
        "group": -1 if host else operator["group"],
        "fill": HOST if host else of_group(operator["group"]),
        "ink": HOST_INK if host else INK,
        "size": {"width": round(_LETTER * letters + _PADDING), "height": _HEIGHT},
        "detail": detail(operator, group),
    }


def shape_text(shape: list[int] | None) -> str:
    """`16×32×32`; a leading 1 is the batch's and is left out."""
    sizes = shape or []
    if len(sizes) > 1 and sizes[0] == 1:
        sizes = sizes[1:]
    return "×".join(map(str, sizes))


def _kind(operator: Tree) -> str:
    return operator["op"].removeprefix("host:")


def _location(operator: Tree) -> str:
    """The second line of a box."""
    location = "host CPU" if operator["group"] is None else f"group {operator['group']}"
    return f"{_kind(operator)} · {location}"


def _where(operator: Tree) -> str:
    if operator["group"] is None:
        return f"{_kind(operator)} on the host CPU"
    module = operator["module"]
    unit = f"module {module}" if module else "a view without computation"
    return f"{_kind(operator)}, group {operator['group']}, {unit}"


def detail(operator: Tree, group: Tree | None) -> str:
    """HTML about one operator: where it runs, what its group costs, the reason of every boundary
    and what would change it.
    """
    parts = [f"<h4>{escape(operator['name'])} <small>{escape(_kind(operator))}</small></h4>"]
    if operator["shape"]:
        parts.append(f"<p>output shape {'×'.join(map(str, operator['shape']))}</p>")
    if group is None:
        parts.append(f"<p><b>On the host CPU</b>: {_reason(operator['host'] or '')}</p>")
    else:
        tile = group["tile"]
        blocks = tile["channel_blocks"]
        channels = "all channels" if blocks == 1 else f"channels in {blocks} blocks"
        parts.append(
            f"<p><b>Group {group['index']}</b>, module <b>{escape(operator['module'] or 'none')}"
            f"</b>: {escape(group['name'])}</p><p>{counted(group['cycles'], 'cycle')} "
            f"({whole(group['predicted_cycles'])} predicted), bound by {group['bound_by']}, "
            f"{percent(group['mac_efficiency'])} of the MAC units, "
            f"{counted(group['dram_bytes'], 'byte')} of DRAM traffic</p>"
            f"<p>{counted(tile['count'], 'tile')} of at most "
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
