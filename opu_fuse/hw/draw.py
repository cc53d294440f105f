"""Pictures of a machine's HDFG: text, Graphviz dot and SVG."""

from html import escape
from typing import TYPE_CHECKING

from opu_fuse.hw.hdfg import build_hdfg, module_of
from opu_fuse.hw.spec import HwSpec, Module

if TYPE_CHECKING:
    import networkx as nx

_SVG_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"
 font-family="Helvetica, sans-serif" font-size="13">
<title>{title}</title>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8"
 orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>"""
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 150, 44, 40, 46, 20


def draw_text(spec: HwSpec) -> str:
    """One line per module in breadth-first order: name, kind, domains, marks, successors."""
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


def draw_svg(spec: HwSpec) -> str:
    """The HDFG as SVG: columns by distance from the root; dashed: may be bypassed, double: a group
    may end.
    """
    graph = build_hdfg(spec)
    layers = _layers(graph)
    tallest = max(len(layer) for layer in layers)
    height = 2 * _MARGIN + tallest * (_BOX_HEIGHT + _GAP_Y) + _GAP_Y
    width = 2 * _MARGIN + len(layers) * (_BOX_WIDTH + _GAP_X)
    places: dict[str, tuple[float, float]] = {}
    for column, layer in enumerate(layers):
        free = height - 2 * _MARGIN - len(layer) * _BOX_HEIGHT
        gap = free / (len(layer) + 1)
        for row, name in enumerate(layer):
            places[name] = (
                _MARGIN + column * (_BOX_WIDTH + _GAP_X),
                _MARGIN + gap + row * (_BOX_HEIGHT + gap),
            )
    parts = [
        _SVG_HEAD.format(width=width, height=height, title=escape(spec.name)),
        *(_svg_edge(places[source], places[target]) for source, target in graph.edges),
        *(_svg_box(name, module_of(graph, name), places[name]) for name in _ordered(graph)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _marks(module: Module) -> str:
    same = module.domain_in == module.domain_out
    domain = module.domain_in if same else f"{module.domain_in}->{module.domain_out}"
    flags = [flag for flag in ("bypass", "exit", "tap") if getattr(module, flag)]
    operand = [f"operand={module.operand}"] if module.operand else []
    return " ".join([f"[{domain}]", *flags, *operand])


def _ordered(graph: "nx.DiGraph[str]") -> list[str]:
    return [name for layer in _layers(graph) for name in layer]


def _layers(graph: "nx.DiGraph[str]") -> list[list[str]]:
    """Modules by distance from the root; a spec that was checked has no unreachable ones."""
    import networkx as nx

    return [list(layer) for layer in nx.bfs_layers(graph, graph.graph["root"])]


def _svg_box(name: str, module: Module, place: tuple[float, float]) -> str:
    x, y = place
    dash = ' stroke-dasharray="5 3"' if module.bypass else ""
    outer = f'width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" fill="white" stroke="black"{dash}'
    inner = f'width="{_BOX_WIDTH - 6}" height="{_BOX_HEIGHT - 6}" fill="none" stroke="black"'
    parts = [f'<rect x="{x:.1f}" y="{y:.1f}" {outer}/>']
    if module.exit:
        parts.append(f'<rect x="{x + 3:.1f}" y="{y + 3:.1f}" {inner}/>')
    text = f'<text x="{x + _BOX_WIDTH / 2:.1f}" text-anchor="middle"'
    parts.append(f'{text} y="{y + 19:.1f}">{escape(name)}</text>')
    parts.append(f'{text} y="{y + 34:.1f}" fill="#555">{module.kind}</text>')
    return "".join(parts)


def _svg_edge(source: tuple[float, float], target: tuple[float, float]) -> str:
    """Forward edges run from side to side; the others bend around the boxes.

    Downwards on the right side, upwards on the left, so that a pair of edges stays apart.
    """
    if target[0] > source[0]:
        leave, arrive, bend = _BOX_WIDTH, 0.0, (target[0] - source[0] - _BOX_WIDTH) / 2
        bends = (bend, -bend)
    else:
        leave = arrive = float(_BOX_WIDTH if target[1] > source[1] else 0)
        bends = (_GAP_X * (0.9 if leave else -0.9),) * 2
    x0, y0 = source[0] + leave, source[1] + _BOX_HEIGHT / 2
    x1, y1 = target[0] + arrive, target[1] + _BOX_HEIGHT / 2
    curve = f"{x0 + bends[0]:.1f} {y0:.1f} {x1 + bends[1]:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    path = f"M{x0:.1f} {y0:.1f}C{curve}"
    return f'<path d="{path}" fill="none" stroke="black" marker-end="url(#arrow)"/>'
