"""Tables that fit the terminal: a row is a line, names lose their middle, columns that matter less
are left out, and the footer says which.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct, field
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

NAME_LENGTH = 48
"""Characters of a name in a table that is not wide; exporters write paths of a hundred."""
_LEAST = 24
"""Characters of a name; before it would have fewer, columns are left out."""
_BETWEEN = 3
"""Characters that a column takes besides its text."""


class Column(Struct, frozen=True, kw_only=True):
    """leave_out: the column with the largest number goes first, one with 0 never."""

    name: str
    number: bool = False
    leave_out: int = 0


class FittedTable(Struct, kw_only=True):
    """Something that `rich` prints. total: a last row under a line; footer: lines below; wide:
    every column and every name whole, as wide as they come.
    """

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    total: Sequence[str] | None = None
    footer: list[str] = field(default_factory=list)
    wide: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = self._natural(lambda heading: [heading])
        if not self.wide:
            widths = self._fitted(widths, options.max_width)
        yield from console.render(self._table(widths), options.update(width=_room(widths)))
        left_out = [c.name for n, c in enumerate(self.columns) if n not in widths]
        if left_out:
            yield Text(f"no room for {', '.join(left_out)} (--wide or --json shows all)")
        for line in self.footer:
            yield Text(line)

    def _all_rows(self) -> list[Sequence[str]]:
        return [*self.rows, *([] if self.total is None else [self.total])]

    def _natural(self, split: Callable[[str], Sequence[str]]) -> dict[int, int]:
        """Column -> characters of its longest cell or of the longest part of its heading."""
        return {
            n: max(len(text) for text in (*split(c.name), *(row[n] for row in self._all_rows())))
            for n, c in enumerate(self.columns)
        }

    def _fitted(self, widths: dict[int, int], room: int) -> dict[int, int]:
        """Names of NAME_LENGTH at most; if these do not fit, headings of several lines; then fewer
        columns, then shorter names.
        """
        names = {n for n, c in enumerate(self.columns) if not c.number}

        def capped(widths: dict[int, int]) -> dict[int, int]:
            return {n: min(w, NAME_LENGTH) if n in names else w for n, w in widths.items()}

        widths = capped(widths)
        if _room(widths) > room:
            widths = capped(self._natural(str.split))
        while self._least(widths, names) > room:
            going = max(widths, key=lambda n: self.columns[n].leave_out)
            if not self.columns[going].leave_out:
                break
            del widths[going]
        while _room(widths) > room:
            longest = max(names & widths.keys(), key=lambda n: widths[n])
            if widths[longest] <= 1:
                break
            widths[longest] -= 1
        return widths

    @staticmethod
    def _least(widths: dict[int, int], names: set[int]) -> int:
        return _room({n: min(w, _LEAST) if n in names else w for n, w in widths.items()})

    def _table(self, widths: dict[int, int]) -> Table:
        made = Table(title=Text(self.title), title_justify="left")
        for n, width in widths.items():
            justify = "right" if self.columns[n].number else "left"
            made.add_column(self.columns[n].name, justify=justify, width=width)
        for row in self._all_rows():
            if row is self.total:
                made.add_section()
            # Text, since names of models may hold brackets, which are no markup.
            made.add_row(*(Text(short(row[n], width), no_wrap=True) for n, width in widths.items()))
        return made


def _room(widths: dict[int, int]) -> int:
    """Characters of a line with columns of these widths."""
    return sum(widths.values()) + _BETWEEN * len(widths) + 1


def short(name: str, length: int = NAME_LENGTH) -> str:
    """A name of at most that many characters: of longer ones the middle is left out."""
    if len(name) <= length:
        return name
    end = length // 2
    return f"{name[: length - end - 1]}…{name[len(name) - end :]}"
