"""Tables as HTML: for the pages, and for notebooks."""

from collections.abc import Collection, Iterable, Sequence
from html import escape

from opu_fuse.report.terminal_tables import FittedTable

_NUMBER = ' style="text-align: right; white-space: nowrap"'
_SCROLLED = "max-height: 30em; overflow: auto"
"""A notebook shows what follows a table of a hundred groups without a scroll through it."""


def html_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    name: str,
    numbers: Collection[int] = (),
) -> str:
    """A table that may be wider than the page, its first column the headings of its rows.

    rows: cells are HTML already, headings are not; numbers: columns that are aligned on the right.
    """
    style = [_NUMBER if n in numbers else "" for n in range(len(heads))]

    def line(cells: Sequence[str], scopes: Iterable[str]) -> str:
        tags = (("th", f' scope="{scope}"') if scope else ("td", "") for scope in scopes)
        parts = zip(tags, cells, style, strict=True)
        return f"<tr>{''.join(f'<{t}{s}{own}>{cell}</{t}>' for (t, s), cell, own in parts)}</tr>"

    head = line([escape(h) for h in heads], ("col" if h else "" for h in heads))
    others = [""] * (len(heads) - 1)
    body = "".join(line(row, ("row", *others)) for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="Table of {name}">'
        f'<table class="{name}"><thead>{head}</thead><tbody>{body}</tbody></table></div>'
    )


def terminal_table_html(table: FittedTable, name: str) -> str:
    """A table of the terminal with all its columns and whole names, for a notebook."""
    rows = [[escape(cell) for cell in row] for row in table.rows]
    if table.total is not None:
        rows.append([f"<b>{escape(cell)}</b>" for cell in table.total])
    numbers = {n for n, column in enumerate(table.columns) if column.number}
    body = html_table([column.name for column in table.columns], rows, name, numbers)
    footer = "".join(f"<div><small>{escape(line)}</small></div>" for line in table.footer)
    title = f"<div><b>{escape(table.title)}</b></div>"
    return f'{title}<div style="{_SCROLLED}">{body}</div>{footer}'
