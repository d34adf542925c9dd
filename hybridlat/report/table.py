"""The one writer of tables: on a terminal, on a page, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape as escaped
from typing import TYPE_CHECKING, Any

from hybridlat.schema.shown import visible

if TYPE_CHECKING:
    from rich import table
    from rich.console import Console
    from rich.text import Text

GAP = 2  # characters between two columns of a terminal
STYLES = {
    "name": "bold", "doubtful": "bold red", "latency": "bold cyan",
    "faster": "green", "slower": "red", "sameness": "dim", "hint": "dim",
    "measured": "green", "predicted": "yellow", "unsupported": "bold red",
    "bad": "bold red", "warn": "yellow", "command": "cyan", "": "",
}  # fmt: skip
"""How a terminal shows each kind of cell; a page has the bold letters, and these classes:"""
_CLASSES = ("faster", "slower")
_FORMULA = tuple("=+-@")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_OF_MARKDOWN = re.compile(r"[\\|]|<(?=[A-Za-z/!?])|!(?=\[)")  # columns, HTML and pictures


def escape(text: str) -> str:
    """The text as HTML shows it: its own line breaks apart, none of it steers a reader's view."""
    return escaped(visible(text, breaks=True))


@dataclass(frozen=True)
class Column:
    """A column; texts go on in the next line where it ``wraps``, else a terminal cuts them."""

    title: str = ""
    right: bool = False
    wraps: bool = False
    style: str = ""
    most: int | None = None


@dataclass(frozen=True)
class Cell:
    """A text and its kind, one of ``STYLES``."""

    text: str
    kind: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Html:
    """A cell of a page alone: its markup and its classes."""

    markup: str
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells: texts, rich's texts for a terminal, or values for a CSV."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell | Html | Text | Any]]
    title: str = ""
    caption: str | Text = ""

    def without(self, left_out: Mapping[str, object]) -> Table:
        """The same without the columns of those titles that have a true value."""
        kept = [i for i, column in enumerate(self.columns) if not left_out.get(column.title)]
        rows = [[row[i] for i in kept] for row in self.rows]
        return replace(self, columns=[self.columns[i] for i in kept], rows=rows)

    def terminal(self) -> table.Table:
        """For rich's console: no borders, two spaces between columns."""
        from rich import table
        from rich.text import Text

        title, caption = visible(self.title) or None, _plain(self.caption, breaks=True) or None
        shown = table.Table(title=title, caption=caption, box=None, pad_edge=False)
        shown.min_width = len(title or "")  # a title as wide as its table would be two lines
        shown.title_style, shown.header_style, shown.padding = "bold", "dim", (0, GAP, 0, 0)
        shown.title_justify = shown.caption_justify = "left"
        shown.show_header = any(column.title for column in self.columns)
        for column in self.columns:
            shown.add_column(
                column.title,
                justify="right" if column.right else "left",
                style=column.style,
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
                max_width=column.most,
            )
        for row in self.rows:
            texts = [Text(c.text, STYLES[c.kind]) if isinstance(c, Cell) else c for c in row]
            shown.add_row(*map(_plain, texts))
        return shown

    def print(self, console: Console) -> None:
        """On a terminal, at least as wide as its words: what is to be copied is never cut."""
        from rich.cells import cell_len

        own, width = console.width, 0
        for column, *cells in zip(self.columns, *self.rows, strict=True):
            texts = visible("\n".join(map(str, [column.title, *cells])), breaks=True)
            words = texts.split() if column.wraps else texts.split("\n")
            width += GAP + max(map(cell_len, words), default=0)
        console.width = max(own, width - GAP)  # the terminal itself breaks longer lines
        console.print(self.terminal())
        console.width = own

    def page(self, attributes: Sequence[str] = ()) -> str:
        """For a page; ``attributes`` are those of each row."""
        classes = ["word" if c.wraps else "" if c.right else "left" for c in self.columns]
        words = [f' class="{name}"' if name else "" for name in classes]
        unseen = '<span class="unseen">row</span>'  # a title for those who hear the page
        head = "".join(
            f'<th scope="col"{word}>{escape(column.title) or unseen}</th>'
            for column, word in zip(self.columns, words, strict=True)
        )
        body = "\n".join(
            f"<tr{attributes[i] if attributes else ''}>{''.join(map(_td, row, words))}</tr>"
            for i, row in enumerate(self.rows)
        )
        rows = f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
        return f'<div class="scroll"><table>\n{rows}\n</table></div>\n'

    def markdown(self) -> str:
        titles = [column.title for column in self.columns]
        rules = ["---:" if column.right else "---" for column in self.columns]
        lines = []
        for row in (titles, rules, *self.rows):
            cells = (_OF_MARKDOWN.sub(r"\\\g<0>", visible(str(cell))) for cell in row)
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def csv(self) -> str:
        """Titles first; None is an empty field. What a spreadsheet would run begins with ``'``."""
        out = io.StringIO()
        rows = ([_field(value) for value in row] for row in self.rows)
        titles = [column.title for column in self.columns]
        csv.writer(out, lineterminator="\n").writerows([titles, *rows])  # None is an empty field
        return out.getvalue()


def titled(*titles: str, right: bool = False, wraps: bool = False) -> list[Column]:
    """Columns that differ by their titles alone."""
    return [Column(title, right, wraps) for title in titles]


def _plain(shown: Any, *, breaks: bool = False) -> Any:
    """A text, or rich's, in one line and without what steers a terminal; ``breaks`` may stay."""
    if isinstance(shown, str):
        return visible(shown, breaks=breaks)
    shown.plain = visible(shown.plain, breaks=breaks)  # as long as before: styles keep their places
    return shown


def _field(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    text = visible(value) if isinstance(value, str) else ""
    is_formula = text.startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return f"'{text}" if is_formula else text or value


def _td(cell: object, word: str) -> str:
    if isinstance(cell, Html):
        return f'<td class="{cell.kind}">{cell.markup}</td>'
    text, kind = escape(str(cell)), cell.kind if isinstance(cell, Cell) else ""
    text = f"<b>{text}</b>" if "bold" in STYLES.get(kind, "") else text
    return f'<td class="{kind}">{text}</td>' if kind in _CLASSES else f"<td{word}>{text}</td>"
