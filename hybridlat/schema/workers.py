"""Processes that work for this one: no more than can be of use, and none outlives it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
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


@contextlib.contextmanager
def safe_path() -> Iterator[None]:
    """Processes of Python that start while it lasts take no modules from the working folder."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.pop("PYTHONSAFEPATH", None)  # another thread may have done so
        if before is not None:
            os.environ["PYTHONSAFEPATH"] = before


def count_of(jobs: int | None) -> int:
    """How many workers ``jobs`` come to under joblib's configuration: two or one a core at most."""
    import joblib

    most: int = max(2, joblib.cpu_count())
    return min(max(1, int(joblib.effective_n_jobs(jobs))), most)


def parallel(jobs: int, **options: Any) -> Any:
    """joblib's ``Parallel`` by processes of this machine, which end with this one."""
    import joblib
    from joblib.parallel import BACKENDS

    backend = BACKENDS["loky"]()
    backend.configure = partial(backend.configure, initializer=end_with, initargs=(os.getpid(),))
    return joblib.Parallel(n_jobs=jobs, backend=backend, **options)
