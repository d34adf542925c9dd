"""Linear algebra on one thread, so that an answer is the same bits in every process."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache

from threadpoolctl import ThreadpoolController, threadpool_limits

_one_at_a_time = threading.RLock()


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
    with _one_at_a_time if alone else nullcontext():
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
