"""Tables of a page: of groups (sorts, filters, selects), of summaries, strategies, differences."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from msgspec import Struct, field

from opu_fuse.number_text import percent, rounded, whole
from opu_fuse.report.decibels import snr_meaning
from opu_fuse.report.html_tables import html_table

Tree = Mapping[str, Any]

_GROUP_COLUMNS = (
    ("#", "index", whole),
    ("group", "name", None),
    ("modules", "modules", None),
    ("cycles", "cycles", whole),
    ("MAC efficiency, %", "mac_efficiency", lambda share: f"{100 * share:.1f}"),
    ("bound by", "bound_by", None),
    ("DRAM, bytes", "dram_bytes", whole),
    ("MACs", "macs", whole),
    ("tiles", "tiles", whole),
    ("predicted cycles", "predicted_cycles", whole),
)
"""Heading, key, and how numbers are written; None: text."""


def groups_table(program: Tree, number: int) -> str:
    """A button in a heading sorts; words typed above leave the rows that have them; a row selects
    its group. Cells have the number itself as `data-value`.
    """
    rows = []
    for group in program["groups"]:
        row = {**group, "modules": " > ".join(group["modules"]), "tiles": group["tile"]["count"]}
        cells = (_cell(row[key], form, key) for _, key, form in _GROUP_COLUMNS)
        words = escape(", ".join(group["operators"]))
        rows.append(f'<tr data-group="{row["index"]}" data-words="{words}">{"".join(cells)}</tr>')
    kinds = (_heading(title, number=form is not None) for title, _, form in _GROUP_COLUMNS)
    return (
        f'<p><label for="filter-{number}">Filter</label> <input type="search" '
        f'id="filter-{number}" placeholder="layer3 conv memory" autocomplete="off"></p>'
        f'<div class="wide tall" id="table-{number}" tabindex="0" role="group" '
        f'aria-label="Table of groups"><table class="groups"><thead><tr>{"".join(kinds)}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _heading(title: str, *, number: bool) -> str:
    kind = ' class="number"' if number else ""
    return f'<th scope="col"{kind}><button type="button">{escape(title)}</button></th>'


def _cell(value: Any, form: Callable[[Any], str] | None, key: str) -> str:
    if key == "name":  # what the keyboard reaches of a row
        button = f'<button type="button" aria-pressed="false">{escape(value)}</button>'
        return f'<th scope="row">{button}</th>'
    if form is None:
        return f"<td>{escape(str(value))}</td>"
    return f'<td class="number" data-value="{value}">{form(value)}</td>'


def summary_table(programs: Sequence[Tree]) -> str:
    """What a person wants first, a column a program; after the others the ratio to the first."""
    rows = [_summary_row(title, programs, key, form) for title, key, form in _SUMMARY]
    heads = [f"{p['model']} on {p['machine']}" for p in programs]
    return html_table(
        ["", *heads], [*rows, _clock_row(programs), _accuracy_row(programs)], "summary"
    )


def strategies_table(program: Tree) -> str:
    """What every strategy makes of the model; the program's own in bold."""
    rows = []
    for outcome in program["strategies"]:
        name = escape(outcome["strategy"])
        if outcome["error"]:
            rows.append([name, escape(outcome["error"]), "", "", "", ""])
            continue
        keys = ("groups", "host_operators", "predicted_cycles", "dram_bytes")
        row = [name, *(whole(outcome[key]) for key in keys), "yes" if outcome["legal"] else "no"]
        rows.append([f"<b>{cell}</b>" for cell in row] if outcome["this"] else row)
    heads = [
        *("strategy", "groups", "operators on the host CPU", "predicted cycles", "DRAM, bytes"),
        "legal",
    ]
    return html_table(heads, rows, "strategies")


def differences_table(programs: Sequence[Tree], most: int = 15) -> str:
    """Cycles of the groups that compute the same layer, the largest differences first."""
    matched = matched_groups(programs)
    shown = sorted(matched, key=_spread, reverse=True)[:most]
    rows = [
        [
            escape(name),
            *("" if cycles is None else whole(cycles) for cycles in each),
            "" if None in each else whole(_spread((name, each))),
        ]
        for name, each in shown
    ]
    machines = [p["machine"] for p in programs]
    several = len(set(machines)) == len(machines)
    names = machines if several else [f"{p['model']} on {p['machine']}" for p in programs]
    heads = ["groups", *(f"cycles, {name}" for name in names)]
    return html_table([*heads, "difference"], rows, "differences")


def _spread(row: tuple[str, Sequence[int | None]]) -> int:
    """Between programs that have such a group: where the host has it there are no cycles."""
    known = [cycles for cycles in row[1] if cycles is not None]
    return max(known) - min(known)


class _Row(Struct):
    """Groups of several programs that share operators.

    titles: names of the groups, as keys. cycles: by program.
    """

    titles: dict[str, None] = field(default_factory=dict)
    cycles: dict[int, int] = field(default_factory=dict)


def matched_groups(programs: Sequence[Tree]) -> list[tuple[str, list[int | None]]]:
    """Groups of several programs that share operators: a name, and the cycles in each program, None
    where it has no such group. Groups with a convolution or dense layer are matched by it, the
    others go with the group that has most of their operators.
    """
    rows: list[_Row] = []
    row_of: dict[str, int] = {}  # operator -> its row
    row_of_layer: dict[str, int] = {}
    items = [(n, *item) for n, program in enumerate(programs) for item in _with_operators(program)]
    for number, group, names, layers in sorted(items, key=lambda item: not item[3]):
        known = row_of_layer if layers else row_of
        shared = Counter(known[name] for name in layers or names if name in known)
        at = min(shared, key=lambda row: (-shared[row], row), default=len(rows))
        if at == len(rows):
            rows.append(_Row())
        rows[at].titles[group["name"]] = None
        rows[at].cycles[number] = rows[at].cycles.get(number, 0) + group["cycles"]
        for name in names:
            row_of.setdefault(name, at)
        for name in layers:
            row_of_layer.setdefault(name, at)
    return [
        (" + ".join(row.titles), [row.cycles.get(n) for n in range(len(programs))]) for row in rows
    ]


def _with_operators(program: Tree) -> Iterator[tuple[Tree, set[str], set[str]]]:
    """Every group, the names of its operators, and of those that multiply weights."""
    inside: dict[int, list[Tree]] = {}
    for operator in program["operators"]:
        inside.setdefault(operator["group"], []).append(operator)
    for group in program["groups"]:
        own = inside.get(group["index"], [])
        names = {o["name"] for o in own} or {group["name"]}
        yield group, names, {o["name"] for o in own if o["op"] in _HEAVY}


_HEAVY = ("conv", "transposed_conv", "dense")
"""Operators on which groups spend their time."""

_SUMMARY: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("time, ms", "milliseconds", rounded),
    ("images per run", "batch", whole),
    ("images per second", "images_per_second", rounded),
    ("cycles", "cycles", whole),
    ("MAC efficiency", "mac_efficiency", percent),
    ("multiply-accumulates", "macs", whole),
    ("DRAM read, bytes", "dram_bytes_read", whole),
    ("DRAM written, bytes", "dram_bytes_written", whole),
    ("least possible DRAM traffic, bytes", "dram_bound_bytes", whole),
    ("groups", "groups", whole),
    ("operators", "operators", whole),
    ("operators on the host CPU", "host_operators", whole),
    ("MAC units", "mac_units", whole),
    ("on-chip memory, bytes", "on_chip_bytes", whole),
    ("DRAM window, bytes", "window_bytes", whole),
    ("memory, bytes per cycle", "dram_bytes_per_cycle", rounded),
    ("memory latency, cycles", "dram_latency", whole),
)


def _summary_row(
    title: str, programs: Sequence[Tree], key: str, form: Callable[[Any], str]
) -> list[str]:
    values = [p["summary"][key] for p in programs]
    cells = ["" if v is None else form(v) for v in values]
    first = values[0]
    for index, value in enumerate(values[1:], 1):
        if first and value is not None and value != first:
            cells[index] += f" <small>× {value / first:.3g}</small>"
    return [title, *cells]


def _clock_row(programs: Sequence[Tree]) -> list[str]:
    return ["clock", *(p["summary"]["clock"] for p in programs)]


def _accuracy_row(programs: Sequence[Tree]) -> list[str]:
    return ["accuracy", *(_accuracy(p["summary"]["accuracy"]) for p in programs)]


def _accuracy(outputs: Iterable[Tree] | None) -> str:
    if outputs is None:
        return "not measured"
    texts = []
    for o in outputs:
        ratio = (
            "exact" if o["ratio"] is None else f"{o['ratio']:.1f} dB ({snr_meaning(o['ratio'])})"
        )
        agreement = (
            ""
            if o["agreement"] is None
            else f", largest channel as in float {percent(o['agreement'])}"
        )
        right = "" if o["right"] is None else f", right {percent(o['right'])}"
        texts.append(f"{escape(o['name'])}: SNR {ratio}{agreement}{right}")
    return "<br>".join(texts)
