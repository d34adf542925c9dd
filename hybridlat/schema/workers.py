"""Long calls: how far they are; processes that work for this one, and threads of linear algebra."""

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from threadpoolctl import ThreadpoolController, threadpool_limits


@dataclass(frozen=True)
class Progress:
    """How far a long call is: ``done`` of ``total`` steps; ``label`` says what runs now.

    ``seconds_left`` is None while it is unknown.
    """

    done: int
    total: int
    label: str
    seconds_left: float | None


OnProgress = Callable[[Progress], None]
OnMessage = Callable[[str], None]
"""Hears in sentences what a long call is at."""


def silent(_: str) -> None:
    """A receiver that drops messages."""


_JOBS: ContextVar[int | None] = ContextVar("jobs", default=None)


def end_with(parent: int) -> None:
    """End this process when its parent has died, whatever its main thread is busy with."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
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


@contextmanager
def fitted_by(jobs: int) -> Iterator[None]:
    """What is fitted meanwhile is fitted by so many processes: joblib is loaded when it is."""
    token = _JOBS.set(jobs)
    try:
        yield
    finally:
        _JOBS.reset(token)


def count_of(jobs: int | None) -> int:
    """How many workers ``jobs`` come to under joblib's configuration: two or one a core at most."""
    import joblib

    most: int = max(2, joblib.cpu_count())
    return min(max(1, int(joblib.effective_n_jobs(_JOBS.get() if jobs is None else jobs))), most)


def parallel(jobs: int, **options: Any) -> Any:
    """joblib's ``Parallel`` by processes of this machine, which end with this one."""
    import joblib
    from joblib.parallel import BACKENDS

    backend = BACKENDS["loky"]()
    backend.configure = partial(backend.configure, initializer=end_with, initargs=(os.getpid(),))
    return joblib.Parallel(n_jobs=jobs, backend=backend, **options)


_locks: dict[int, threading.RLock] = {}  # by process: a fork has none of the threads


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def steady_sums(*, alone: bool) -> Iterator[None]:
    """Keep BLAS to one thread in this block: it splits a sum among its threads, so the last digits
    depend on how many there are.

    The limit is the process's, so another thread that leaves its block would lift it: blocks that
    are ``alone`` wait for each other. One in which something is measured need not be.
    """
    with _locks.setdefault(os.getpid(), threading.RLock()) if alone else nullcontext():
        blas = _blas()
        # Reading the number takes a tenth of the time of setting it.
        many = any(library.get_num_threads() != 1 for library in blas.lib_controllers)
        with blas.limit(limits=1) if many else nullcontext():
            yield


@contextmanager
def steady_fits() -> Iterator[None]:
    """The same around fits, as a block or a decorator: SciPy's own BLAS may not be loaded yet."""
    with suppress(ImportError):
        importlib.import_module("scipy.linalg")
    with threadpool_limits(1, user_api="blas"):
        yield
