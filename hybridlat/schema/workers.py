"""Processes that work for this one: no more than can be of use, and none outlives it."""

from __future__ import annotations

import copy
import os
import threading
import time
from functools import partial
from typing import Any

_ORPHANED_CHECK_S = 1.0


def end_with(parent: int) -> None:
    """End this process when its parent has died, whatever its main thread is busy with."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_ORPHANED_CHECK_S)
    os._exit(1)


def count_of(jobs: int | None) -> int:
    """How many workers ``jobs`` come to under joblib's configuration; two or a core's each here."""
    import joblib

    count = max(1, int(joblib.effective_n_jobs(jobs)))
    return count if _own_backend() is None else min(count, max(2, joblib.cpu_count()))


def parallel(jobs: int, **options: Any) -> Any:
    """joblib's ``Parallel`` by the backend in force; its processes here end with this one."""
    import joblib

    own = _own_backend()
    if own is not None:
        own.configure = partial(own.configure, initializer=end_with, initargs=(os.getpid(),))
        options["backend"] = own
    return joblib.Parallel(n_jobs=jobs, **options)


def _own_backend() -> Any:
    """A copy of the backend in force where it starts processes of this machine; else None."""
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    return copy.copy(backend) if type(backend).__name__ == "LokyBackend" else None
