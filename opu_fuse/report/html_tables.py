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
    """A table that may be wider than the page. rows: cells are HTML already, headings are not;
    numbers: columns that are aligned on the right.
    """
    right = [
        ' style="text-align: right; white-space: nowrap"' if n in numbers else ""
        for n in range(len(heads))
    ]

    def line(cells: Sequence[str], tag: str) -> str:
        parts = zip(cells, right, strict=True)
        return f"<tr>{''.join(f'<{tag}{style}>{cell}</{tag}>' for cell, style in parts)}</tr>"

    head, body = line([escape(h) for h in heads], "th"), "".join(line(row, "td") for row in rows)
    return (
        f'<div class="wide"><table class="{name}"><thead>{head}</thead>'
        f"<tbody>{body}</tbody></table></div>"
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
