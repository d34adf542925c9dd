"""The measuring process: builds networks, times them between reference runs, and reports.

    python -m hybridlat.measuring.worker FD PARENT      FD: a socket to the parent, PARENT its id

A process of its own, so that a crash or a hang costs one job, and so that addresses and cores,
which a process keeps for its whole life, differ between visits of the same thing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from multiprocessing.connection import Connection

from hybridlat.engines import registry
from hybridlat.engines.host import pin, usable_cores
from hybridlat.errors import HybridlatError
from hybridlat.measuring.visiting import References, VisitTask, visit
from hybridlat.schema.workers import end_with


def main(arguments: list[str]) -> int:
    """Serve the parent until it closes the socket or dies."""
    # Ctrl-C is the parent's to answer: it ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, parent = map(int, arguments)
    end_with(parent)
    with Connection(descriptor) as parent_side, contextlib.suppress(EOFError, ConnectionError):
        serve(parent_side)
    return 0


def serve(parent_side: Connection) -> None:
    """Answer tasks; EOFError or ConnectionError when the parent is gone."""
    place, options, sys.path[:], pythonpath = parent_side.recv()
    os.environ.pop("PYTHONPATH", None)
    if pythonpath is not None:
        os.environ["PYTHONPATH"] = pythonpath
    try:
        backend = registry.backend_at(place)(**options)
        cores = usable_cores()
        pin(backend.target.threads or 1)
        references = References(backend)
    except HybridlatError as error:
        parent_side.send(str(error))
        return
    parent_side.send("")
    while isinstance(task := parent_side.recv(), VisitTask):
        parent_side.send(visit(backend, references, task, cores))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
