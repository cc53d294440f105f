"""Tables that fit the terminal. Long cells wrap. Where the columns have no room next to each
other, some are stacked: their cells become lines below the cell to their left.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from unicodedata import combining, east_asian_width

from msgspec import Struct, field

from opu_fuse.summaries import NAME_LENGTH, short

_STACK_BELOW, _LEAST = 24, 16
"""Characters of a column of names; before it has fewer, columns are stacked, then left out."""
_GAP = 3
"""Characters between the texts of two columns."""
_BREAKS = "/._-"
_INDENT = "  "
"""Of the lines of a cell after its first one."""


class Column(Struct, frozen=True, kw_only=True):
    """stack: may become lines below the cell of the nearest column before that does not stack.
    leave_out: the column with the largest number is left out first, one with 0 never.
    """

    name: str
    number: bool = False
    stack: bool = False
    leave_out: int = 0


_LINES = "┏━┳┓", "┃ ┃┃", "┡━╇┩", "│ ││", "├─┼┤", "└─┴┘"
_ASCII = "+--+", "| ||", "|-+|", "| ||", "|-+|", "+--+"
"""Of the top, the heading, the line under it, rows, the line before the total, and the bottom: left
end, what fills it, what is between columns, right end.
"""

Layout = dict[int, list[int]]
"""Shown column -> the columns stacked below it."""


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
        layout: Layout = {n: [] for n in range(len(self.columns))}
        widths = self._natural(layout, lambda heading: [heading])
        if not self.wide:
            layout, widths = self._fitted(layout, widths, width)
        top, heading, under, row, section, bottom = _ASCII if ascii_only else _LINES
        nothing = dict.fromkeys(widths, "")
        yield self.title
        yield self._line(top, nothing, widths)
        headings = [self._heading(n, layout[n], width) for n, width in widths.items()]
        for parts in reversed([*zip_longest(*map(reversed, headings), fillvalue="")]):
            yield self._line(heading, dict(zip(widths, parts, strict=True)), widths)
        yield self._line(under, nothing, widths)
        for cells in self.rows:
            yield from self._row(row, cells, layout, widths)
        if self.total is not None:
            yield self._line(section, nothing, widths)
            yield from self._row(row, self.total, layout, widths)
        yield self._line(bottom, nothing, widths)
        shown = {*layout, *(n for below in layout.values() for n in below)}
        left_out = [c.name for n, c in enumerate(self.columns) if n not in shown]
        if left_out:
            yield f"no room for {', '.join(left_out)} (--wide shows all)"
        yield from self.footer

    def _heading(self, column: int, below: Sequence[int], width: int) -> list[str]:
        first = textwrap.wrap(self.columns[column].name, width)
        return [*first, *(f"{_INDENT}{self.columns[n].name}" for n in below)]

    def _row(
        self, rule: str, cells: Sequence[str], layout: Layout, widths: Mapping[int, int]
    ) -> Iterator[str]:
        texts = [self._cell(cells, n, layout[n], width) for n, width in widths.items()]
        for parts in zip_longest(*texts, fillvalue=""):
            yield self._line(rule, dict(zip(widths, parts, strict=True)), widths)

    def _cell(
        self, cells: Sequence[str], column: int, below: Sequence[int], width: int
    ) -> list[str]:
        """Lines of a cell."""
        if self.wide:
            return [cells[column].replace("\n", " ")]
        lines = wrapped(cells[column], width)
        for n in below:
            if cells[n]:
                lines += [f"{_INDENT}{line}" for line in wrapped(cells[n], width - len(_INDENT))]
        return lines

    def _line(self, rule: str, row: Mapping[int, str], widths: Mapping[int, int]) -> str:
        left, fill, between, right = rule
        cells = []
        for n, width in widths.items():
            gap = fill * (width - _places(row[n]))
            cells.append(f"{gap}{row[n]}" if self.columns[n].number else f"{row[n]}{gap}")
        return f"{left}{fill}{f'{fill}{between}{fill}'.join(cells)}{fill}{right}"

    def _natural(
        self, layout: Layout, split: Callable[[str], Sequence[str]], most: int | None = None
    ) -> dict[int, int]:
        """Column -> characters of its longest cell or of the longest part of its heading. most: of
        columns of names.
        """
        rows = [*self.rows, *([] if self.total is None else [self.total])]

        def longest(n: int, indent: int) -> int:
            column = self.columns[n]
            heading = max(map(_places, split(column.name)))
            cells = max((_places(row[n]) for row in rows), default=0)
            room = cells if column.number or most is None else min(cells, most)
            return indent + max(heading, room)

        indent = len(_INDENT)
        return {
            n: max(longest(n, 0), *(longest(b, indent) for b in below), 0)
            for n, below in layout.items()
        }

    def _fitted(
        self, layout: Layout, widths: dict[int, int], room: int
    ) -> tuple[Layout, dict[int, int]]:
        """Names of NAME_LENGTH at most; if these do not fit, headings of several lines, then
        stacked columns, then fewer columns, then narrower names.
        """
        widths = self._natural(layout, lambda heading: [heading], NAME_LENGTH)
        if _room(widths) > room:
            widths = self._natural(layout, str.split, NAME_LENGTH)
        if self._least(widths, _STACK_BELOW) > room and any(c.stack for c in self.columns):
            layout = self._stacked()
            widths = self._natural(layout, str.split, NAME_LENGTH)
        while self._least(widths, _LEAST) > room:
            last = max(widths, key=lambda n: self.columns[n].leave_out)
            if not self.columns[last].leave_out:
                break
            del widths[last], layout[last]
        names = {n for n in widths if not self.columns[n].number}
        while _room(widths) > room:
            longest = max(names, key=lambda n: widths[n])
            if widths[longest] <= 1:
                break
            widths[longest] -= 1
        return layout, widths

    def _stacked(self) -> Layout:
        layout: Layout = {}
        for n, column in enumerate(self.columns):
            if column.stack:
                layout[next(reversed(layout))].append(n)
            else:
                layout[n] = []
        return layout

    def _least(self, widths: dict[int, int], name: int) -> int:
        """Characters of a line whose columns of names have at most `name`."""
        return _room({n: w if self.columns[n].number else min(w, name) for n, w in widths.items()})


def _room(widths: dict[int, int]) -> int:
    """Characters of a line with columns of these widths."""
    return sum(widths.values()) + _GAP * len(widths) + 1


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` terminal columns, broken at spaces, within long names after / . _ or
    -, else anywhere. Names of more than NAME_LENGTH characters lose their middle.
    """
    words = [short(word) for word in text.split()]
    if _places(joined := " ".join(words)) <= width:
        return [joined]
    indent = _INDENT if width >= _LEAST // 2 else ""
    lines, line = [], ""
    for word in words:
        joined = f"{line} {word}" if line else word
        if _places(joined) <= width - (len(indent) if lines else 0):
            line = joined
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, width - len(indent))
        lines += full
    return [(indent if n else "") + each for n, each in enumerate([*lines, line])]


def _pieces(word: str, width: int) -> list[str]:
    pieces = []
    while _places(word) > width:
        end = next(n for n in range(len(word), 0, -1) if n == 1 or _places(word[:n]) <= width)
        parts = [n for n in range(end // 2, end) if word[n] in _BREAKS]
        cut = parts[-1] + 1 if parts else end
        pieces.append(word[:cut])
        word = word[cut:]
    return [*pieces, word]


def _places(text: str) -> int:
    """Terminal columns that a text occupies."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)
