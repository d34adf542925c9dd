"""Where a store lies, as its URL says. Opens nothing."""

import os
import re
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from hybridlat.errors import StoreError

_SERVERS = ("postgresql+psycopg", "postgresql", "postgres")


def default_url() -> str:
    """``HYBRIDLAT_STORE``, else a SQLite file in the user's data folder."""
    if url := os.environ.get("HYBRIDLAT_STORE", "").strip():
        return url
    return f"sqlite:///{_data_folder() / 'store.db'}"


def _data_folder() -> Path:
    """The user's data folder: the only one that a store makes."""
    import platformdirs

    return platformdirs.user_data_path("hybridlat", appauthor=False)


class StorePlace:
    """What ``url`` names: the path of a SQLite file, ``sqlite:///PATH``, or a PostgreSQL server.

    ``sqlite://`` is a store in memory. ``file`` is the SQLite file, absolute, or None, ``address``
    the URL without its password, ``shown`` what errors call it. StoreError for another URL, and for
    a file in a folder that does not exist.
    """

    def __init__(self, url: str | Path) -> None:
        text = str(url) if isinstance(url, str | Path) else ""
        self.url = text if "://" in text else f"sqlite:///{Path(text).expanduser()}"
        self.address = without_password(self.url)
        scheme, _, rest = self.url.partition("://")
        self.is_server = scheme in _SERVERS
        is_file = scheme == "sqlite" and (not rest or rest.startswith("/"))
        if not text.strip() or "\0" in text or not (self.is_server or is_file):
            shown = self.address if text else url
            raise StoreError(
                f"{shown!r:.100} is no address of a store: write a path, or a URL like "
                "sqlite:////data/latency.db or postgresql://user@host/name"
            )
        path = "" if self.is_server else rest[1:]
        self.is_in_memory = not self.is_server and path in ("", ":memory:")
        try:
            self.file = None if self.is_server or self.is_in_memory else Path(path).absolute()
        except OSError as error:
            raise StoreError(f"the store {path} lay in a folder that was removed") from error
        shown = "a store in memory" if self.is_in_memory else path
        self.shown = self.address if self.is_server else shown
        folder = None if self.file is None else self.file.parent
        is_missing = False
        with suppress(OSError):  # of a folder that may not be looked into opening the file tells
            is_missing = folder is not None and not folder.exists()
        if is_missing and folder != _data_folder():
            raise StoreError(
                f"there is no store {self.shown}, and no folder {folder} to make it in (make "
                "that, or give another one with --store or HYBRIDLAT_STORE)"
            )

    @property
    def exists(self) -> bool:
        """False for a SQLite file that is not there yet, or empty, as a full disk leaves it."""
        try:
            about = None if self.file is None else self.file.stat()
            return about is None or not S_ISREG(about.st_mode) or about.st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreError(
                f"the store {self.shown} cannot be used: {error.strerror} "
                "(give another one with --store or HYBRIDLAT_STORE)"
            ) from error


def without_password(url: str) -> str:
    """The same URL without the password before its host, or among what it asks for."""
    url = re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", url)
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.partition("://")
    if not user or user.startswith("/"):  # the path of a file
        return url
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{tail}"
