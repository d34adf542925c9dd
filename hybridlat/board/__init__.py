"""What runs on a board: standard library only, Python 3.6 syntax, no import of hybridlat.

A plan carries a copy of this package as ``hybridlat_board`` beside ``worker.py``, and the TensorRT
backend starts the same code in a worker process, with whichever Python has TensorRT.
"""


class BoardError(Exception):
    """Root of this package's errors."""


class NoDevice(BoardError):
    """The driver, the device or the engine's library is missing."""


class EngineError(BoardError):
    """The engine refused to build or to run one model; others may still work."""


class DeviceLost(EngineError):
    """The device refuses all further work of this process: only a new process can go on."""


class WorkerLost(BoardError):
    """The worker process crashed (``timed_out``: it did not answer in time), and is gone."""

    timed_out = False
