"""The one writer of tables: on a terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich import table
    from rich.text import Text

GAP = 2
"""Characters between two columns of a terminal."""


@dataclass(frozen=True)
class Column:
    """A column; ``wraps`` lets long texts go on in the next line, else they are cut.

    ``style`` is rich's, ``most`` the greatest width on a terminal.
    """

    title: str = ""
    right: bool = False
    wraps: bool = False
    style: str = ""
    most: int | None = None


@dataclass(frozen=True)
class Table:
    """Rows of cells: text (with rich's styles or plain), or values for a CSV.

    ``title`` and ``caption`` stand above and below on a terminal.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Text | Any]]
    title: str = ""
    caption: str | Text = ""

    def terminal(self) -> table.Table:
        """For rich's console: no borders, two spaces between columns."""
        from rich import table

        shown = table.Table(
            title=self.title or None, title_justify="left", title_style="bold",
            caption=self.caption or None, caption_justify="left",
            show_header=any(column.title for column in self.columns),
            box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim",
        )  # fmt: skip
        for column in self.columns:
            shown.add_column(
                column.title, justify="right" if column.right else "left", style=column.style,
                no_wrap=not column.wraps, overflow="fold" if column.wraps else "ellipsis",
                max_width=column.most,
            )  # fmt: skip
        for row in self.rows:
            shown.add_row(*row)
        return shown

    def markdown(self) -> str:
        """A table of GitHub's Markdown, without a line break at its end."""
        rows = [
            [column.title for column in self.columns],
            ["---:" if column.right else "---" for column in self.columns],
            *self.rows,
        ]
        return "\n".join(
            "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row)
            + " |"
            for row in rows
        )  # fmt: skip

    def csv(self) -> str:
        """Comma-separated, titles first; None is an empty field, True is ``true``."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([column.title for column in self.columns])
        writer.writerows([_field(cell) for cell in row] for row in self.rows)
        return out.getvalue()


def titled(*titles: str, right: bool = False, wraps: bool = False) -> list[Column]:
    """Columns that differ by their titles alone."""
    return [Column(title, right, wraps) for title in titles]


def _field(cell: object) -> object:
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool) else cell
