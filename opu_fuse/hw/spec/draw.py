"""Pictures of a machine's HDFG: text, Graphviz dot and SVG."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from opu_fuse.hw.spec.hdfg import build_hdfg, module_of
from opu_fuse.hw.spec.hw_spec import HwSpec, Module

if TYPE_CHECKING:
    import networkx as nx

_SVG_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"
 font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12" text-anchor="middle">
<title>{title}</title>
<rect x="0" y="0" width="{width}" height="{height}" fill="white"/>"""
_BOX_WIDTH, _BOX_HEIGHT, _GAP, _LANE, _MARGIN = 150, 42, 24, 14, 16
_COLOURS = ("#0b5fa5", "#c0392b", "#1e7d34", "#7d3c98", "#b9770e", "#117a8b", "#555555")

_LEGEND = (
    "dashed: data may pass it unused",
    "double frame: a group may end",
    "shaded: computes on accumulators",
    "line of one colour: from one module",
)
_LEGEND_LINE, _LEGEND_WIDTH = 16, 230
"""Pixels."""

Line = tuple[int, int]  # (source, target): indices of the modules in the column
Point = tuple[float, float]


def draw_text(spec: HwSpec) -> str:
    """One line per module along the pipeline: name, kind, domains, marks, successors."""
    graph = build_hdfg(spec)
    names = max(len(name) for name in graph)
    kinds = max(len(module_of(graph, name).kind) for name in graph)
    marks = max(len(_marks(module_of(graph, name))) for name in graph)
    lines = [f"{spec.name}: root {graph.graph['root']}"]
    for name in _ordered(graph):
        module = module_of(graph, name)
        successors = ", ".join(graph.successors(name))
        arrow = f" -> {successors}" if successors else ""
        lines.append(
            f"  {name:{names}}  {module.kind:{kinds}}  {_marks(module):{marks}}{arrow}".rstrip()
        )
    return "\n".join(lines) + "\n"


def draw_dot(spec: HwSpec) -> str:
    """Graphviz source of the HDFG."""
    graph = build_hdfg(spec)
    lines = [
        f'digraph "{spec.name}" {{',
        "  rankdir=LR;",
        "  node [shape=box, fontname=Helvetica];",
    ]
    for name in _ordered(graph):
        module = module_of(graph, name)
        style = ' style="dashed"' if module.bypass else ""
        border = " peripheries=2" if module.exit else ""
        lines.append(f'  "{name}" [label="{name}\\n{module.kind}"{style}{border}];')
    lines += [f'  "{source}" -> "{target}";' for source, target in graph.edges]
    return "\n".join([*lines, "}"]) + "\n"


def draw_svg(
    spec: HwSpec,
    fills: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    *,
    legend: bool = False,
) -> str:
    """The HDFG as SVG, top down; dashed: may be bypassed, double: a group may end, shaded:
    computes on accumulators. Edges that pass modules run on the right, those of a cycle that lead
    back on the left; edges from one module share a line until they branch off.

    fills: module -> colour instead
    notes: module -> a word after its kind
    legend: say below what the strokes mean
    """
    fills, notes = fills or {}, notes or {}
    graph = build_hdfg(spec)
    names = _ordered(graph)
    lines = sorted((names.index(source), names.index(target)) for source, target in graph.edges)
    forward = [line for line in lines if line[1] > line[0] + 1]
    back = [line for line in lines if line[1] < line[0]]
    right, left = _lanes(forward), _lanes(back)
    x = _MARGIN + _LANE * (1 + max(left.values(), default=-1))
    width = x + _BOX_WIDTH + _LANE * (1 + max(right.values(), default=-1)) + _MARGIN
    height = 2 * _MARGIN + len(names) * (_BOX_HEIGHT + _GAP) - _GAP
    below = height - _MARGIN
    if legend:
        width, height = max(width, _LEGEND_WIDTH), height + _LEGEND_LINE * (len(_LEGEND) + 1)
    parts = [_SVG_HEAD.format(width=width, height=height, title=escape(spec.name))]
    points: list[Point]
    for source, target in lines:
        colour = _COLOURS[source % len(_COLOURS)]
        if target == source + 1:
            middle = x + _BOX_WIDTH / 2
            points = [(middle, _top(source) + _BOX_HEIGHT), (middle, _top(target))]
        elif target > source:
            side = x + _BOX_WIDTH
            points = _around(side, side + _LANE * (1 + right[source]), (source, target), forward)
        else:
            points = _around(x, x - _LANE * (1 + left[source]), (source, target), back)
        parts.append(_svg_line(points, colour))
    for index, name in enumerate(names):
        module = module_of(graph, name)
        parts.append(_svg_box(name, module, x, _top(index), fills.get(name), notes.get(name)))
    for number, text in enumerate(_LEGEND if legend else (), 1):
        y = below + _LEGEND_LINE * (number + 0.5)
        parts.append(
            f'<text x="{_MARGIN}" y="{y}" font-size="11" text-anchor="start">{text}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _marks(module: Module) -> str:
    same = module.domain_in == module.domain_out
    domain = module.domain_in if same else f"{module.domain_in}->{module.domain_out}"
    flags = [flag for flag in ("bypass", "exit", "tap") if getattr(module, flag)]
    operand = [f"operand={module.operand}"] if module.operand else []
    return " ".join([f"[{domain}]", *flags, *operand])


def _ordered(graph: "nx.DiGraph[str]") -> list[str]:
    """Modules so that only edges of a cycle lead back; else the nearest to the root first."""
    import networkx as nx

    distance = nx.single_source_shortest_path_length(graph, graph.graph["root"])
    nearest = sorted(graph, key=lambda name: distance[name])
    cycles = nx.condensation(graph)  # a node of it: modules that lead to each other
    order = nx.lexicographical_topological_sort(
        cycles,
        key=lambda cycle: min(nearest.index(name) for name in cycles.nodes[cycle]["members"]),
    )
    row = {name: i for i, cycle in enumerate(order) for name in cycles.nodes[cycle]["members"]}
    return sorted(nearest, key=lambda name: row[name])


def _top(row: int) -> float:
    return _MARGIN + row * (_BOX_HEIGHT + _GAP)


def _lanes(lines: list[Line]) -> dict[int, int]:
    """For each module the distance at which its line passes the boxes; short ones run inside."""
    spans = {
        source: (min(ends), max(ends))
        for source in {source for source, _ in lines}
        if (ends := [source, *(target for start, target in lines if start == source)])
    }
    lanes: dict[int, int] = {}
    for source, (low, high) in sorted(spans.items(), key=lambda s: (s[1][1] - s[1][0], s)):
        taken = {
            lane
            for other, lane in lanes.items()
            if spans[other][0] < high and low < spans[other][1]
        }
        lanes[source] = next(lane for lane in range(len(spans)) if lane not in taken)
    return lanes


def _around(side: float, lane: float, line: Line, lines: list[Line]) -> list[Point]:
    """Out of a box's side, along a lane, into another box; lines: all on that side.

    On the way down lines enter above where one leaves, the nearest source on top; on the way up it
    is the other way round. So lines that run inside of others do not cross them.
    """
    source, target = line
    down = target > source

    def port(row: int, name: int) -> float:
        others = sorted({s for s, t in lines if t == row and s != row}, reverse=True)
        leaves = any(s == row for s, _ in lines)
        ports = [*others, row] if down else [row, *others]
        if not leaves:
            ports.remove(row)
        return _top(row) + _BOX_HEIGHT * (ports.index(name) + 1) / (len(ports) + 1)

    start, end = port(source, source), port(target, source)
    return [(side, start), (lane, start), (lane, end), (side, end)]


def _svg_line(points: list[Point], colour: str) -> str:
    """A line through points with a head at its end."""
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    (x0, y0), (x, y) = points[-2:]
    dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
    base = (x - 7 * dx, y - 7 * dy)
    head = [(x, y), (base[0] + 3 * dy, base[1] + 3 * dx), (base[0] - 3 * dy, base[1] - 3 * dx)]
    corners = " ".join(f"{u:.1f},{v:.1f}" for u, v in head)
    return (
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>'
        f'<polygon points="{corners}" fill="{colour}"/>'
    )


def _svg_box(
    name: str, module: Module, x: float, y: float, fill: str | None, note: str | None
) -> str:
    fill = fill or ("#f3e9d2" if "acc" in (module.domain_in, module.domain_out) else "white")
    dash = ' stroke-dasharray="5 3"' if module.bypass else ""
    box = f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}"'
    parts = [f'{box} fill="{fill}" stroke="black"{dash}/>']
    if module.exit:
        inner = f'width="{_BOX_WIDTH - 6}" height="{_BOX_HEIGHT - 6}"'
        parts.append(f'<rect x="{x + 3}" y="{y + 3}" {inner} fill="none" stroke="black"/>')
    middle = x + _BOX_WIDTH / 2
    about = ", ".join(filter(None, (module.kind, note or module.operand)))
    parts.append(f'<text x="{middle}" y="{y + 18}" font-weight="bold">{escape(name)}</text>')
    parts.append(f'<text x="{middle}" y="{y + 33}" fill="#444" font-size="11">{about}</text>')
    return "".join(parts)
