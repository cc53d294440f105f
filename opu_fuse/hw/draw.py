"""Pictures and tables of a machine: text, Graphviz dot and SVG of its HDFG, tables of its sizes and
operators.
"""

from html import escape

import networkx as nx
from rich.table import Table

from opu_fuse.hw.hdfg import build_hdfg, module_of, modules_for
from opu_fuse.hw.spec import OPERATORS, HwSpec, Module

_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 150, 44, 40, 46, 20


def draw_text(spec: HwSpec) -> str:
    """One line per module in breadth-first order: name, kind, domains, marks, successors."""
    graph = build_hdfg(spec)
    names = max(len(name) for name in graph)
    kinds = max(len(module_of(graph, name).kind) for name in graph)
    lines = [f"{spec.name}: root {graph.graph['root']}"]
    for name in _ordered(graph):
        module = module_of(graph, name)
        successors = ", ".join(graph.successors(name))
        arrow = f" -> {successors}" if successors else ""
        lines.append(
            f"  {name:{names}}  {module.kind:{kinds}}  {_marks(module):30}{arrow}".rstrip()
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
    width = 2 * _MARGIN + len(layers) * (_BOX_WIDTH + _GAP_X) - _GAP_X + _GAP_X
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
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="Helvetica, sans-serif" font-size="13">',
        f"<title>{escape(spec.name)}</title>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
        *(_svg_edge(places[source], places[target]) for source, target in graph.edges),
        *(_svg_box(name, module_of(graph, name), places[name]) for name in _ordered(graph)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def sizes_table(spec: HwSpec) -> Table:
    """Array, buffers, memory and numbers of a machine."""
    table = Table("what", "value", title=f"{spec.name}: {spec.description}")
    modes = ", ".join(f"{m.ic}x{m.oc}x{m.px}" for m in spec.array.modes)
    rows: list[tuple[str, str]] = [
        ("RTL", "yes" if spec.build else "no, partitioning only"),
        ("spec hash", f"{spec.spec_hash:011x}"),
        ("clock", f"{spec.clock_mhz:g} MHz"),
        (
            "array",
            f"{spec.array.units} units x {spec.array.multipliers} = {spec.macs} MAC per cycle",
        ),
        ("modes (ic x oc x px)", modes),
        ("feature word", f"{spec.word_channels} channels, {spec.word_bytes} bytes"),
        ("weight row", f"{spec.array.row_bytes} bytes, {spec.row_words} words"),
    ]
    widths = {"weight": spec.buffers.weight.width, "psum": 4 * spec.word_channels}
    for name in ("feature", "weight", "param", "residual", "psum", "output"):
        buffer = getattr(spec.buffers, name)
        width = widths.get(name, spec.word_channels)
        rows.append(
            (f"{name} buffer", f"{buffer.banks} x {buffer.bank_words} words of {width} bytes")
        )
    queues, dram = spec.queues, spec.dram
    rows += [
        (
            "queues (words)",
            f"load {queues.load}, compute {queues.compute}, post {queues.post}, store {queues.store}",
        ),
        ("dependency counters", f"{spec.counter_bits} bits"),
        (
            "memory port",
            f"{dram.bus_bytes} bytes, bursts of {dram.max_burst}, {dram.outstanding} open",
        ),
        (
            "memory",
            f"{dram.capacity >> 20} MiB, {dram.bytes_per_cycle:g} bytes per cycle, latency {dram.latency}",
        ),
        (
            "multipliers",
            f"{spec.numeric.multiplier_bits} bits, average {spec.numeric.average_bits} bits",
        ),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def operators_table(spec: HwSpec) -> Table:
    """Which module of the machine runs which operator; operators without a module run on the host."""
    graph = build_hdfg(spec)
    table = Table("operator", "modules", title=f"{spec.name}: operators")
    for operator in OPERATORS:
        table.add_row(operator, ", ".join(modules_for(graph, operator)) or "host")
    return table


def _marks(module: Module) -> str:
    domain = (
        module.domain_in
        if module.domain_in == module.domain_out
        else f"{module.domain_in}->{module.domain_out}"
    )
    flags = [flag for flag in ("bypass", "exit", "tap") if getattr(module, flag)]
    return " ".join(
        [f"[{domain}]", *flags, *([f"operand={module.operand}"] if module.operand else [])]
    )


def _ordered(graph: "nx.DiGraph[str]") -> list[str]:
    return [name for layer in _layers(graph) for name in layer]


def _layers(graph: "nx.DiGraph[str]") -> list[list[str]]:
    """Modules by distance from the root; a spec that was checked has no unreachable ones."""
    return [list(layer) for layer in nx.bfs_layers(graph, graph.graph["root"])]


def _svg_box(name: str, module: Module, place: tuple[float, float]) -> str:
    x, y = place
    dash = ' stroke-dasharray="5 3"' if module.bypass else ""
    box = f'<rect x="{x:.1f}" y="{y:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" fill="white" stroke="black"{dash}/>'
    if module.exit:
        box += (
            f'<rect x="{x + 3:.1f}" y="{y + 3:.1f}" width="{_BOX_WIDTH - 6}" height="{_BOX_HEIGHT - 6}" '
            'fill="none" stroke="black"/>'
        )
    middle = x + _BOX_WIDTH / 2
    return (
        f'{box}<text x="{middle:.1f}" y="{y + 19:.1f}" text-anchor="middle">{escape(name)}</text>'
        f'<text x="{middle:.1f}" y="{y + 34:.1f}" text-anchor="middle" fill="#555">{module.kind}</text>'
    )


def _svg_edge(source: tuple[float, float], target: tuple[float, float]) -> str:
    """Forward edges run from side to side; edges inside a column or backwards bend around the
    boxes.
    """
    middle = _BOX_HEIGHT / 2
    if target[0] > source[0]:
        x0, y0, x1, y1 = source[0] + _BOX_WIDTH, source[1] + middle, target[0], target[1] + middle
        half = (x1 - x0) / 2
        path = f"M{x0:.1f} {y0:.1f}C{x0 + half:.1f} {y0:.1f} {x1 - half:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    else:
        # Downwards on the right side, upwards on the left, so that a pair of edges stays apart.
        side = _BOX_WIDTH if target[1] > source[1] else 0
        bend = _GAP_X * (0.9 if side else -0.9)
        x0, y0, x1, y1 = source[0] + side, source[1] + middle, target[0] + side, target[1] + middle
        path = f"M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} {x1 + bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    return f'<path d="{path}" fill="none" stroke="black" marker-end="url(#arrow)"/>'
