"""Python's collector of garbage, kept from running in the middle of an answer."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect behind this block, not in it: once instead of a dozen times for every network.

    What an answer is made of is gone when it is given, but whoever collects in between goes through
    all of it, and now and then through everything that is remembered: a fifth of the time. Outside,
    and where the caller has switched the collector off, all stays as it was. With several threads
    the last to leave that found it running switches it on again.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
