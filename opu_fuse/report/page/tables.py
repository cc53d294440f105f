"""Tables of a page: of groups (sorts, filters, selects), of summaries, strategies, differences."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from bokeh.layouts import column
from bokeh.models import (
    BooleanFilter,
    CDSView,
    ColumnDataSource,
    CustomJS,
    DataTable,
    NumberFormatter,
    StringFormatter,
    TableColumn,
    TextInput,
)
from msgspec import Struct, field

from opu_fuse.report.html_tables import html_table

Tree = Mapping[str, Any]

_ROW_PIXELS, _MOST_PIXELS = 25, 420


def groups_table(groups: ColumnDataSource, number: int) -> Any:
    """A click on a heading sorts; words typed above leave the rows that have them."""
    kept = BooleanFilter(booleans=None)
    text, whole, share = StringFormatter(), _number("0,0"), _number("0.0")
    columns = [
        TableColumn(field=field, title=title, width=width, formatter=formatter)
        for field, title, width, formatter in (
            ("index", "#", 30, whole),
            ("name", "group", 220, text),
            ("modules", "modules", 170, text),
            ("cycles", "cycles", 70, whole),
            ("efficiency", "MAC eff. %", 70, share),
            ("bound_by", "bound by", 60, text),
            ("dram_bytes", "DRAM bytes", 75, whole),
            ("macs", "MACs", 90, whole),
            ("tiles", "tiles", 40, whole),
            ("predicted", "predicted", 70, whole),
        )
    ]
    rows = len(groups.data["index"])
    table = DataTable(
        name=f"table-{number}",
        source=groups,
        view=CDSView(filter=kept),
        columns=columns,
        index_position=None,
        reorderable=False,
        height=min(_MOST_PIXELS, _ROW_PIXELS * (rows + 1) + 10),
        min_width=900,
        sizing_mode="stretch_width",
    )
    words = TextInput(placeholder="filter: layer3 conv memory", name=f"filter-{number}", width=320)
    words.js_on_change(
        "value_input",
        CustomJS(
            args={"groups": groups, "kept": kept},
            code="""
            const wanted = this.value_input.toLowerCase().split(/\\s+/).filter((w) => w)
            const {name, operators, modules, bound_by} = groups.data
            kept.booleans = Array.from(name, (_, i) => {
                const row = [name[i], operators[i], modules[i], bound_by[i]].join(" ").toLowerCase()
                return wanted.every((word) => row.includes(word))
            })
            groups.change.emit()
            """,
        ),
    )
    return column(words, table, sizing_mode="stretch_width", name=f"groups-table-{number}")


def _number(form: str) -> NumberFormatter:
    return NumberFormatter(format=form)


def summary_table(programs: Sequence[Tree]) -> str:
    """What a person wants first, a column a program; after the others the ratio to the first."""
    rows = [_summary_row(title, programs, *how) for title, *how in _SUMMARY]
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
        numbers = (f"{outcome[key]:,}" for key in ("predicted_cycles", "dram_bytes"))
        counts = (str(outcome[key]) for key in ("groups", "host_operators"))
        row = [name, *counts, *numbers, "runs" if outcome["legal"] else "is not legal"]
        rows.append([f"<b>{cell}</b>" for cell in row] if outcome["this"] else row)
    heads = ["strategy", "groups", "host operators", "cycles, closed form", "DRAM bytes", ""]
    return html_table(heads, rows, "strategies")


def differences_table(programs: Sequence[Tree], most: int = 15) -> str:
    """Cycles of the groups that do the same work, the largest differences first."""
    matched = matched_groups(programs)
    shown = sorted(matched, key=_spread, reverse=True)[:most]
    rows = [
        [
            escape(name),
            *("" if cycles is None else f"{cycles:,}" for cycles in each),
            f"{_spread((name, each)):,}",
        ]
        for name, each in shown
    ]
    heads = ["groups", *(f"cycles on {p['machine']}" for p in programs)]
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

_SUMMARY = (
    ("time", "milliseconds", "{:,.3f} ms"),
    ("images run together", "batch", "{:,}"),
    ("images per second", "images_per_second", "{:,.1f}"),
    ("cycles", "cycles", "{:,}"),
    ("MAC efficiency", "mac_efficiency", "{:.1%}"),
    ("multiply-adds", "macs", "{:,}"),
    ("DRAM bytes read", "dram_bytes_read", "{:,}"),
    ("DRAM bytes written", "dram_bytes_written", "{:,}"),
    ("DRAM bound, bytes", "dram_bound_bytes", "{:,}"),
    ("groups", "groups", "{:,}"),
    ("operators", "operators", "{:,}"),
    ("of them on the host", "host_operators", "{:,}"),
    ("MAC units", "mac_units", "{:,}"),
    ("on-chip memory, bytes", "on_chip_bytes", "{:,}"),
    ("DRAM window, bytes", "window_bytes", "{:,}"),
)


def _summary_row(title: str, programs: Sequence[Tree], key: str, form: str) -> list[str]:
    values = [p["summary"][key] for p in programs]
    cells = ["" if v is None else form.format(v).replace("%", " %") for v in values]
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
        ratio = "exact" if o["ratio"] is None else f"{o['ratio']:.1f} dB"
        agreement = "" if o["agreement"] is None else f", as in float {o['agreement']:.1%}"
        right = "" if o["right"] is None else f", right {o['right']:.1%}"
        texts.append(f"{escape(o['name'])}: SNR {ratio}{agreement}{right}")
    return "<br>".join(texts)
