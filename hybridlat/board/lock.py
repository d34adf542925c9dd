"""One holder at a time of a lock file, as of all that measures on a machine.

The system gives the lock back when its holders die. What a board's run starts inherits the lock, so
that what is still running on the device keeps the next run out; a forked process lets go of it.
"""

import contextlib
import fcntl
import os
import threading
from typing import Callable, Dict, Iterator, Tuple

from . import BoardError

DEFAULT = "/tmp/hybridlat-board.lock"  # run.sh takes the same one
_HELD: Dict[int, Tuple[str, int]] = {}  # path and thread of each descriptor


def machine_lock() -> str:
    """The file that whatever measures on this machine locks: HYBRIDLAT_LOCK, or the default."""
    return os.environ.get("HYBRIDLAT_LOCK") or DEFAULT


def hold(path: str, on_wait: Callable[[str], None]) -> int:
    """The descriptor of a lock file, locked; ``on_wait`` gets the holder that is waited for."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    with contextlib.ExitStack() as opened:
        try:
            with contextlib.suppress(FileExistsError):
                made = os.open(path, os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(made, 0o666)  # another user's run reads and names it
                os.close(made)
            try:  # no symbolic link is followed, and no pipe waited for
                lock = os.open(path, os.O_RDWR | flags)
            except PermissionError:
                lock = os.open(path, os.O_RDONLY | flags)
            opened.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(lock, 200, 0).decode("utf-8", "replace").split("\n")[0]
                on_wait(holder or path)
                fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            raise BoardError(
                "%s cannot be locked (%s): set HYBRIDLAT_LOCK to another file"
                % (path, error.strerror)
            )
        opened.pop_all()
    with contextlib.suppress(OSError):  # another user's file may be there to be read alone
        os.ftruncate(lock, 0)
        os.pwrite(
            lock, ("process %d in %s\n" % (os.getpid(), os.getcwd())).encode("utf-8", "replace"), 0
        )
    _HELD[lock] = path, threading.get_ident()
    return lock


def let_go(lock: int) -> None:
    """Close what ``hold`` gave: a process that inherited the lock keeps it."""
    _HELD.pop(lock, None)
    os.close(lock)


@contextlib.contextmanager
def held(path: str, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file, and give it back for all processes.

    A thread that holds it already, as in what hears of progress, does not wait for itself.
    """
    if (path, threading.get_ident()) in _HELD.values():
        yield
        return
    lock = hold(path, on_wait)
    try:
        yield
    finally:
        if lock in _HELD:  # not in a process that was forked meanwhile
            fcntl.flock(lock, fcntl.LOCK_UN)
            let_go(lock)


def _let_go_of_all() -> None:
    for lock in list(_HELD):
        let_go(lock)


if hasattr(os, "register_at_fork"):  # Python 3.7
    os.register_at_fork(after_in_child=_let_go_of_all)
