"""One run at a time on a board, whichever plan, runner and user: a lock that dies with its holders.

A worker process inherits it, so that what is still running on the device keeps the next run out.
"""

import fcntl
import os
from contextlib import suppress
from typing import Callable

from . import BoardError

DEFAULT = "/tmp/hybridlat-board.lock"  # run.sh takes the same one


def hold_board(on_wait: Callable[[str], None]) -> int:
    """The descriptor of the lock file HYBRIDLAT_LOCK, locked; ``on_wait`` is told who has it."""
    path = os.environ.get("HYBRIDLAT_LOCK") or DEFAULT
    try:
        with suppress(FileExistsError):
            made = os.open(path, os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(made, 0o666)  # another user's run reads and names it
            os.close(made)
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise BoardError(
            "%s cannot be locked (%s): set HYBRIDLAT_LOCK to another file" % (path, error.strerror)
        )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 200, 0).decode("utf-8", "replace").split("\n")[0]
        on_wait("another run measures on this board (%s): waiting for it" % (holder or path))
        fcntl.flock(lock, fcntl.LOCK_EX)
    with suppress(OSError), open(path, "w") as sink:
        sink.write("process %d in %s\n" % (os.getpid(), os.getcwd()))
    os.set_inheritable(lock, True)
    return lock
