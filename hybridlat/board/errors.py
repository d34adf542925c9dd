"""What can go wrong on a board; the text is one sentence for a person."""


class BoardError(Exception):
    """Root of this package's errors."""


class NoDevice(BoardError):
    """The driver, the device or the engine's library is missing."""


class EngineError(BoardError):
    """The engine refused to build or to run one model; others may still work."""


class WorkerLost(BoardError):
    """The worker process crashed, or did not answer in time."""
