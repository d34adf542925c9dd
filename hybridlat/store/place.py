"""Where a store lies, as its URL says. Opens nothing."""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from hybridlat.errors import StoreError

_SERVERS = ("postgresql+psycopg", "postgresql", "postgres")


def default_url() -> str:
    """``HYBRIDLAT_STORE``, else a SQLite file in the user's data folder."""
    given = os.environ.get("HYBRIDLAT_STORE", "").strip()
    if given:
        return given
    import platformdirs

    folder = platformdirs.user_data_path("hybridlat", appauthor=False)
    return f"sqlite:///{folder / 'store.db'}"


class StorePlace:
    """What ``url`` names: the path of a SQLite file, ``sqlite:///PATH``, or a PostgreSQL server.

    ``sqlite://`` is a store in memory. StoreError for a URL of anything else.
    """

    def __init__(self, url: str | Path) -> None:
        text = str(url)
        self.url = text if "://" in text else f"sqlite:///{Path(text).expanduser()}"
        scheme, _, rest = self.url.partition("://")
        self.is_server = scheme in _SERVERS
        if not self.is_server and (scheme != "sqlite" or (rest and not rest.startswith("/"))):
            raise StoreError(
                f"{without_password(self.url)!r} is no address of a store: write a path, or a URL "
                "like sqlite:////data/latency.db or postgresql://user@host/name"
            )

    @property
    def address(self) -> str:
        """The URL without its password, as it may be shown."""
        return without_password(self.url)

    @property
    def shown(self) -> str:
        """What errors call it: the path of a file, else the address."""
        return str(self._path or "a store in memory") if not self.is_server else self.address

    @property
    def is_in_memory(self) -> bool:
        """Whether the store lives in memory, which no other process sees."""
        return not self.is_server and self._path is None

    @property
    def file(self) -> Path | None:
        """The SQLite file, absolute; None for a database server, and for one in memory."""
        return None if self._path is None else self._path.absolute()

    @property
    def exists(self) -> bool:
        """False for a SQLite file that is not there yet."""
        return self._path is None or self._path.exists()

    @cached_property
    def _path(self) -> Path | None:
        path = "" if self.is_server else self.url.partition(":///")[2]
        return None if path in ("", ":memory:") else Path(path)


def without_password(url: str) -> str:
    """The same URL without the password before its host, or among what it asks for."""
    url = re.sub(r"([?&]password=)[^&]*", r"\1***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    if not user or user.startswith("/"):  # the path of a file
        return url
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{tail}"
