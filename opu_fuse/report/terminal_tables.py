"""Tables that fit the terminal: a row is a line, names lose their middle, columns that matter less
are left out, and the footer says which.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from unicodedata import combining, east_asian_width

from msgspec import Struct, field

from opu_fuse.summaries import NAME_LENGTH, short

_LEAST = 24
"""Characters of a name; before it would have fewer, columns are left out."""
_BETWEEN = 3
"""Characters that a column takes besides its text."""


class Column(Struct, frozen=True, kw_only=True):
    """leave_out: the column with the largest number goes first, one with 0 never."""

    name: str
    number: bool = False
    leave_out: int = 0


_LINES = "┏━┳┓", "┃ ┃┃", "┡━╇┩", "│ ││", "├─┼┤", "└─┴┘"
_ASCII = "+--+", "| ||", "|-+|", "| ||", "|-+|", "+--+"
"""Of the top, the heading, the line under it, rows, the line before the total, and the bottom: left
end, what fills it, what is between columns, right end.
"""


class FittedTable(Struct, kw_only=True):
    """total: a last row under a line; footer: lines below; wide: every column and every name whole,
    as wide as they come.
    """

    title: str
    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)
    total: Sequence[str] | None = None
    footer: list[str] = field(default_factory=list)
    wide: bool = False

    def lines(self, width: int, *, ascii_only: bool = False) -> Iterator[str]:
        """The table as text. width: of the terminal, in characters; ascii_only: for those that
        cannot show lines.
        """
        widths = self._natural(lambda heading: [heading])
        if not self.wide:
            widths = self._fitted(widths, width)
        top, heading, under, row, section, bottom = _ASCII if ascii_only else _LINES
        nothing = dict.fromkeys(range(len(self.columns)), "")
        yield self.title
        yield self._line(top, nothing, widths)
        headings = [textwrap.wrap(self.columns[n].name, width) for n, width in widths.items()]
        for parts in reversed([*zip_longest(*map(reversed, headings), fillvalue="")]):
            yield self._line(heading, dict(zip(widths, parts, strict=True)), widths)
        yield self._line(under, nothing, widths)
        for cells in self.rows:
            yield self._line(row, cells, widths)
        if self.total is not None:
            yield self._line(section, nothing, widths)
            yield self._line(row, self.total, widths)
        yield self._line(bottom, nothing, widths)
        left_out = [c.name for n, c in enumerate(self.columns) if n not in widths]
        if left_out:
            yield f"no room for {', '.join(left_out)} (--wide shows all)"
        yield from self.footer

    def _line(
        self, rule: str, row: Sequence[str] | Mapping[int, str], widths: Mapping[int, int]
    ) -> str:
        left, fill, between, right = rule
        cells = []
        for n, width in widths.items():
            text = short(row[n].replace("\n", " "), width)
            if _places(text) > width:
                text = short(text, max(width // 2, 1))
            gap = fill * (width - _places(text))
            cells.append(f"{gap}{text}" if self.columns[n].number else f"{text}{gap}")
        return f"{left}{fill}{f'{fill}{between}{fill}'.join(cells)}{fill}{right}"

    def _all_rows(self) -> list[Sequence[str]]:
        return [*self.rows, *([] if self.total is None else [self.total])]

    def _natural(self, split: Callable[[str], Sequence[str]]) -> dict[int, int]:
        """Column -> characters of its longest cell or of the longest part of its heading."""
        return {
            n: max(
                _places(text) for text in (*split(c.name), *(row[n] for row in self._all_rows()))
            )
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


def _room(widths: dict[int, int]) -> int:
    """Characters of a line with columns of these widths."""
    return sum(widths.values()) + _BETWEEN * len(widths) + 1


def _places(text: str) -> int:
    """Terminal columns that a text occupies."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)
