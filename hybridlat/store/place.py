"""Where a store lies, as its URL says, and whether what lies there has changed. Opens nothing."""

from __future__ import annotations

import os
import time
from functools import cached_property
from pathlib import Path

from hybridlat.schema.address import without_password

_SETTLED_NS = 200_000_000


def default_url() -> str:
    """``HYBRIDLAT_STORE``, else a SQLite file in the user's data folder."""
    given = os.environ.get("HYBRIDLAT_STORE", "").strip()
    if given:
        return given
    import platformdirs

    folder = platformdirs.user_data_path("hybridlat", appauthor=False)
    return f"sqlite:///{folder / 'store.db'}"


class StorePlace:
    """What ``url`` names, an SQLAlchemy URL or the path of a SQLite file."""

    def __init__(self, url: str | Path) -> None:
        text = str(url)
        self.url = text if "://" in text else f"sqlite:///{Path(text).expanduser()}"

    @property
    def address(self) -> str:
        """The URL as it may be shown and kept: without a password."""
        return without_password(self.url)

    @property
    def is_in_memory(self) -> bool:
        """Whether no other process sees what is kept here."""
        return self._is_sqlite and self._path in ("", ":memory:")

    @cached_property
    def named_file(self) -> Path | None:
        """The SQLite file as the URL names it; None where there is none."""
        is_file = self._is_sqlite and not self.is_in_memory and not self._path.startswith("file:")
        return Path(self._path) if is_file else None

    @property
    def file(self) -> Path | None:
        """The SQLite file, absolute; None for a database server, and for one in memory."""
        return None if self.named_file is None else self.named_file.absolute()

    @property
    def plain_file(self) -> Path | None:
        """The SQLite file, if it is for Python's own driver, without settings of its own."""
        driver, _, path = self.url.partition("://")
        is_plain = driver in ("sqlite", "sqlite+pysqlite") and "?" not in path
        return self.named_file if is_plain else None

    @property
    def exists(self) -> bool:
        """False for a SQLite file that nobody made yet: told without loading SQLAlchemy."""
        return self.named_file is None or self.named_file.exists()

    @property
    def stamp(self) -> object:
        """Equal as long as nothing is written, by whatever process; None where only asking tells.

        That is so on a server, and just after a write: files do not tell two of one moment apart.
        """
        if self.named_file is None:
            return None
        found: list[tuple[int, int]] = []
        for path in (self.named_file, self._journal):
            try:
                status = path.stat()
            except OSError:
                found.append((0, 0))
            else:
                # An empty journal holds nothing, though whoever opens the store makes it anew.
                found.append((status.st_mtime_ns, status.st_size) if status.st_size else (0, 0))
        settled = time.time_ns() - max(found)[0] > _SETTLED_NS
        return tuple(found) if settled else None

    @cached_property
    def _journal(self) -> Path:
        """Where SQLite writes first."""
        return Path(f"{self.named_file}-wal")

    @property
    def _is_sqlite(self) -> bool:
        return self.url.partition(":")[0].partition("+")[0] == "sqlite"

    @property
    def _path(self) -> str:
        return self.url.partition(":///")[2].partition("?")[0]
