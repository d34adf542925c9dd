"""A PostgreSQL server of the tests' own, where one is installed: on a socket in a folder, no port.

Debian keeps the server's programs off the PATH. The server refuses to run as root, so that it then
runs as ``postgres`` or ``nobody``.
"""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Nothing of a test outlives the machine, so nothing waits for the disk.
_SETTINGS = "-c fsync=off -c full_page_writes=off -c listen_addresses= -c max_connections=40"


class Server:
    """A server in ``folder``, a path short enough for a socket, that ``user`` may write to."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self._programs, self._folder, self._user = programs, folder, user
        self._numbers = itertools.count()
        data = self._folder / "data"
        self._run(
            "initdb", "--pgdata", str(data), "--username", "postgres", "--auth", "trust",
            "--encoding", "UTF8", "--locale", "C", "--no-sync",
        )  # fmt: skip
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = f"{_SETTINGS} -c unix_socket_directories={self._folder}"
        self._control("start", "--options", options)

    def stop(self, mode: str = "fast") -> None:
        """Stop it: ``fast`` ends all transactions first, ``immediate`` is a crash."""
        self._control("stop", "--mode", mode)

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        """The address of a database as one user of the server has it."""
        return f"postgresql+psycopg://{user}@/{database}?host={self._folder}"

    def database(self) -> str:
        """The address of a new, empty database."""
        name = f"made_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, *statements: str, database: str = "postgres", user: str = "postgres") -> None:
        """Run statements, each by itself."""
        import psycopg

        address = {"host": str(self._folder), "dbname": database, "user": user}
        with psycopg.connect(**address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def _control(self, *words: str) -> None:
        log = self._folder / "log"
        try:
            self._run("pg_ctl", "-w", "--pgdata", str(self._folder / "data"), "--log", str(log),
                      *words)  # fmt: skip
        except subprocess.CalledProcessError as error:
            said = log.read_text(errors="replace") if log.exists() else ""
            raise RuntimeError(f"{error.stderr}\n{said}") from error

    def _run(self, program: str, *words: str) -> None:
        as_user: dict[str, Any] = {}
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            as_user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        # A server that inherits a pipe would keep whoever reads it waiting.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [str(self._programs / program), *words], cwd=self._folder, check=False,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=120, **as_user,
            )  # fmt: skip
            said.seek(0)
            if done.returncode:
                raise subprocess.CalledProcessError(done.returncode, program, "", said.read())


@contextmanager
def running() -> Iterator[Server]:
    """A server while the block runs; the test is skipped where there can be none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="hybridlat-pg-"))
    try:
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        server = Server(programs, folder, user)
        try:
            yield server
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    found = shutil.which("pg_ctl")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places += [Path(found).resolve().parent] if found else []
    return next((p for p in places if (p / "initdb").exists() and (p / "pg_ctl").exists()), None)


def _user() -> str | None:
    """Whom the server runs as: None for who runs the tests."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = next((name for name in ("postgres", "nobody") if name in names), None)
    if user is None:
        pytest.skip("a PostgreSQL server does not run as root, and there is no other user")
    return user
