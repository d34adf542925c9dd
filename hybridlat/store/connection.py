"""What the drivers of all databases offer: questions, changes and transactions.

SQL is written once, for SQLite and PostgreSQL: parameters are named (``:name``), and a list fills
``IN :names``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

Row: TypeAlias = tuple[Any, ...]
Values: TypeAlias = Mapping[str, object]


class Connection(Protocol):
    """An open connection of one driver; it is in a transaction only within ``transaction``."""

    @property
    def types(self) -> Mapping[str, str]:
        """The words of ``tables`` that databases write differently."""

    @property
    def is_closed(self) -> bool:
        """Whether the server has ended it."""

    @property
    def stamp(self) -> object:
        """Changes with every write of any process; None where only a query tells."""

    def rows(self, sql: str, values: Values) -> list[Row]:
        """The rows of a question."""

    def change(self, sql: str, rows: Sequence[Values]) -> int:
        """Run a statement once for each of ``rows``; how many rows of its table it changed."""

    def define(self, sql: str) -> None:
        """Run a statement that makes a table or an index."""

    def transaction(self) -> AbstractContextManager[object]:
        """A transaction that may write, rolled back when an error leaves it."""

    def lock_tables(self) -> None:
        """Keep other processes from making the tables until the transaction ends."""

    def table_names(self) -> list[str]:
        """The tables of the database."""

    def damage(self) -> list[str]:
        """What the database finds wrong with its own file."""

    def count_rows(self, names: Sequence[str]) -> None:
        """Let the planner count what these tables hold."""

    def shrink(self) -> int | None:
        """Give empty pages back: how many bytes; None where that cannot be done now."""

    def close(self) -> None:
        """End the connection."""


def with_lists(sql: str, values: Values) -> tuple[str, Values]:
    """The statement with a parameter for each item of each list, and the values by name."""
    if not any(isinstance(value, list) for value in values.values()):
        return sql, values
    single: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, list):
            items = {f"{name}_{number}": item for number, item in enumerate(value)}
            sql = sql.replace(f"IN :{name}", f"IN ({', '.join(f':{item}' for item in items)})")
            single.update(items)
        else:
            single[name] = value
    return sql, single
