"""Connections to a store's database: SQLite by Python's own driver, PostgreSQL by psycopg.

SQL is written once for both: parameters are named (``:name``), and a list fills ``IN :names``.
"""

import itertools
import logging
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from hybridlat.errors import StoreError
from hybridlat.store.place import StorePlace

Row: TypeAlias = tuple[Any, ...]
Values: TypeAlias = Mapping[str, object]

_PASSING_STATES = ("08", "40", "57P", "53300")  # SQL's own: gone away, collided, restarting, full
_STARTING = ("starting up", "shutting down", "not yet accepting", "too many clients")
_numbers = itertools.count()
IMMUTABLE = "immutable=1"
"""SQLite's option for a file that does not change: only the file itself is read."""
MOUNTS = Path("/proc/mounts")
_OF_A_NETWORK = re.compile(
    r"nfs|cifs|smb|afs|ceph|lustre|gpfs|beegfs|fuse\.(sshfs|gluster|s3fs|rclone)"
)
_UNWRITABLE = [getattr(sqlite3, f"SQLITE_{n}") for n in ("READONLY", "CANTOPEN", "IOERR", "FULL")]
_log = logging.getLogger(__name__)


class Connection:
    """A connection to a SQLite file, which is made where it does not exist yet, or to memory.

    A writer takes its lock at once and waits its turn: SQLite gives up without waiting when a
    reader turns into a writer.
    """

    types: ClassVar = {"number": "INTEGER", "bytes": "BLOB", "clustered": "WITHOUT ROWID"}
    begin: ClassVar[str] = "BEGIN IMMEDIATE"
    lock: ClassVar[str] = "SELECT 1"
    """Keeps other processes from making the tables until the transaction ends, where that must."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*'"
    integrity, vacuum = "PRAGMA integrity_check", "VACUUM"
    is_read_only = False
    _raw: Any = None

    def __init__(self, place: StorePlace, busy_s: float, read_only: str = "") -> None:
        """``read_only`` is SQLite's option for a file that cannot be written."""
        self._number = next(_numbers)
        self.is_read_only, name = bool(read_only), ":memory:"
        if place.file is not None:
            _make_file(place.file, place.shown)
            name = f"{place.file.as_uri()}?{read_only}"
        self._raw = sqlite3.connect(
            name, timeout=busy_s, isolation_level=None, check_same_thread=False, uri=True
        )
        # KiB. Hashes come in any order: what of an index has no room here is read for each.
        self._raw.execute("PRAGMA cache_size = -65536")
        if read_only:
            return
        # With WAL this survives a killed process; only a power cut may take the last commits. WAL
        # needs memory that all its processes share, which those of several machines do not.
        on_network = place.file is not None and _is_on_network(place.file)
        with suppress(sqlite3.DatabaseError):  # what cannot be written can still be read
            self._raw.execute(f"PRAGMA journal_mode = {'DELETE' if on_network else 'WAL'}")
        self._raw.execute(f"PRAGMA synchronous = {'FULL' if on_network else 'NORMAL'}")
        if on_network:
            _log.warning(
                "the store %s lies on a network's file system, which may lose it when several "
                "machines write: use a PostgreSQL server for those",
                place.shown,
            )

    @staticmethod
    def ways_to_read(place: StorePlace, error: Exception) -> tuple[str, ...]:
        """SQLite's options that may open a file although ``error`` came of it."""
        code = getattr(error, "sqlite_errorcode", None) or 0
        is_there = place.file is not None and place.file.is_file()
        return ("mode=ro", IMMUTABLE) if is_there and code & 0xFF in _UNWRITABLE else ()

    @staticmethod
    def errors() -> tuple[type[Exception], ...]:
        """What the driver raises; it quotes a damaged schema, which then is no text."""
        return sqlite3.Error, UnicodeDecodeError

    @staticmethod
    def may_pass(error: Exception, was_reached: bool) -> bool:
        """Whether what is in the way may pass; a server that never answered is not waited for."""
        del was_reached
        code = getattr(error, "sqlite_errorcode", None) or 0
        return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    @property
    def stamp(self) -> object:
        """Changes with every write of any process; None where only a query tells."""
        ((version,),) = self._raw.execute("PRAGMA data_version").fetchall()
        return self._number, version, self._raw.total_changes

    def rows(self, sql: str, values: Values) -> list[Row]:
        """The rows of a statement; a list gives it a parameter for each of its items."""
        single: dict[str, object] = {}
        for name, value in values.items():
            if isinstance(value, list):
                items = {f"{name}_{number}": item for number, item in enumerate(value)}
                sql = sql.replace(f"IN :{name}", f"IN ({', '.join(f':{item}' for item in items)})")
                single.update(items)
            else:
                single[name] = value
        cursor = self._raw.execute(self._translated(sql), single)
        rows: list[Row] = cursor.fetchall() if cursor.description else []
        return rows

    def change(self, sql: str, rows: Sequence[Values]) -> int:
        """Run a statement once for each of ``rows``; how many rows of its table it changed."""
        if not rows:
            return 0
        cursor = self._raw.cursor()
        cursor.executemany(self._translated(sql), rows)
        return int(cursor.rowcount)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction that may write, rolled back when an error leaves it."""
        self._raw.execute(self.begin)
        try:
            yield
            self._raw.execute("COMMIT")
        except BaseException:
            with suppress(*self.errors()):  # some errors have ended it
                self._raw.execute("ROLLBACK")
            raise

    def damage(self) -> list[str]:
        return [str(line) for (line,) in self._raw.execute(self.integrity) if line != "ok"]

    def shrink(self) -> None:
        """Give empty pages back; not while others keep it from that."""
        with suppress(sqlite3.OperationalError):
            self._raw.execute(self.vacuum)

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def __del__(self) -> None:
        self.close()  # the drivers warn of connections that are left open

    @staticmethod
    def _translated(sql: str) -> str:
        return sql


class PostgresConnection(Connection):
    """A connection to a server that commits each statement outside of ``transaction``."""

    types: ClassVar = {"number": "SERIAL", "bytes": "BYTEA", "clustered": ""}
    begin = "BEGIN"
    lock = "SELECT pg_advisory_xact_lock(4997460)"  # any number that all of hybridlat takes
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    integrity, vacuum = "SELECT 'ok'", "SELECT 1"  # a server sees to both itself

    def __init__(self, place: StorePlace, busy_s: float, read_only: str = "") -> None:
        del busy_s, read_only  # the server lets writers wait for each other
        psycopg = _psycopg()
        address = re.sub(r"^[a-z+]+://", "postgresql://", place.url)
        # The driver's own limit is over two minutes: a restart takes seconds.
        limit_s = {} if "connect_timeout" in address else {"connect_timeout": 10}
        try:
            self._raw = psycopg.connect(address, autocommit=True, **limit_s)
        except psycopg.ProgrammingError as error:  # it quotes the address and its password
            raise StoreError(
                f"{place.shown!r} is no address of a store: write it like "
                "postgresql://user@host/name"
            ) from error

    @staticmethod
    def errors() -> tuple[type[Exception], ...]:
        return (_psycopg().Error,)

    @staticmethod
    def may_pass(error: Exception, was_reached: bool) -> bool:
        state: str = getattr(error, "sqlstate", None) or ""
        if was_reached and not state and isinstance(error, _psycopg().OperationalError):
            return True  # no connection to be had, or it broke
        words = str(error).lower()
        return state.startswith(_PASSING_STATES) or any(sign in words for sign in _STARTING)

    @property
    def stamp(self) -> object:
        return None

    @staticmethod
    @cache
    def _translated(sql: str) -> str:
        return re.sub(r":([a-z_][a-z_0-9]*)", r"%(\1)s", sql)


def _make_file(file: Path, shown: str) -> None:
    """Make a new store's folder and its file, which only its user reads."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.touch(0o600)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"the store {shown} cannot be made: {reason}") from error
    if not file.is_file():
        raise StoreError(f"the store {shown} cannot be used: it is no regular file")


def _is_on_network(path: Path) -> bool:
    """Whether other machines write the file system of a file too, as far as Linux tells."""
    try:
        mounts = [line.split(" ") for line in MOUNTS.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return False
    kinds = {Path(at.replace("\\040", " ")): kind for _, at, kind, *_ in mounts}
    places = (path.resolve(), *path.resolve().parents)
    kind_of_nearest = next(filter(None, map(kinds.get, places)), "")
    return _OF_A_NETWORK.match(kind_of_nearest) is not None


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:  # also a driver that lacks its library
        raise StoreError(
            "a store on PostgreSQL needs the driver package 'psycopg': install it with "
            '`pip install ".[postgres]"` in a clone of hybridlat'
        ) from error
    # What it warns of while a server restarts is tried again, and is no news for a terminal.
    log = logging.getLogger("psycopg")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    return psycopg
