"""What a command says of its inner doings: log messages and tracebacks on standard error."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from dataclasses import dataclass, field

VARIABLE = "HYBRIDLAT_DEBUG"
_LOGGER = logging.getLogger("hybridlat")


@dataclass
class Diagnostics:
    """One run of the command line: with ``debug``, errors show where they arose.

    Nothing outlives the run: a program that runs commands in its own process has its logging back
    as it was, and the environment is never written to.
    """

    debug: bool = field(default_factory=lambda: os.environ.get(VARIABLE, "") not in ("", "0"))
    _handler: logging.Handler | None = None
    _level_before: int = logging.NOTSET

    def show(self, *, debug: bool, verbose: bool) -> None:
        """Log messages from here on: warnings, what is done (``verbose``) or all (``debug``)."""
        self.debug = self.debug or debug
        if self._handler is not None:
            return
        self._handler = logging.StreamHandler(sys.stderr)
        form = "%(name)s: %(message)s" if self.debug or verbose else "hybridlat: %(message)s"
        self._handler.setFormatter(logging.Formatter(form))
        self._level_before = _LOGGER.level
        quiet = logging.INFO if verbose else logging.WARNING
        _LOGGER.setLevel(logging.DEBUG if self.debug else quiet)
        _LOGGER.addHandler(self._handler)

    def traceback(self) -> None:
        """Where the error being handled arose, if that is wanted."""
        if self.debug:
            traceback.print_exc()

    def end(self) -> None:
        """Logging as it was before."""
        if self._handler is not None:
            _LOGGER.removeHandler(self._handler)
            _LOGGER.setLevel(self._level_before)
            self._handler = None
