"""The network as data for the page's drawing (`page.js`): operators as boxes, edges with shapes."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

import networkx as nx

from opu_fuse.number_text import counted, percent, whole
from opu_fuse.report.page.colours import HOST, HOST_INK, INK, of_group
from opu_fuse.report.terminal_tables import short

Tree = Mapping[str, Any]

NAME_LENGTH = 30
"""Characters of a name in a box."""
_LETTER, _PADDING, _HEIGHT = 6.6, 20, 40
"""Pixels of a letter at 11 px, of both sides of a box, of its height."""


def network_data(program: Tree) -> str:
    """JSON with `nodes` in topological order and `edges` as [from, to, shape], by their number."""
    operators = {o["name"]: o for o in program["operators"]}
    edges = [(a, b) for a, b in program["edges"] if a in operators and b in operators]
    names = _in_order([*operators], edges)
    number = {name: n for n, name in enumerate(names)}
    by_group = {g["index"]: g for g in program["groups"]}
    nodes = [_node(operators[n], by_group.get(operators[n]["group"])) for n in names]
    lines = [
        [number[a], number[b], shape_text(operators[a]["shape"])]
        for a, b in edges
        if number[a] < number[b]
    ]
    text = json.dumps({"nodes": nodes, "edges": lines}, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # nothing may end the script element


def _in_order(names: list[str], edges: list[tuple[str, str]]) -> list[str]:
    """Operands before their readers, else as listed."""
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(edges)
    rank = {name: n for n, name in enumerate(names)}
    return list(nx.lexicographical_topological_sort(graph, key=rank.__getitem__))


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
