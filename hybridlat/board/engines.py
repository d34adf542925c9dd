"""The interface of an engine on a board; one file per engine implements it."""

import importlib
from typing import Any, Callable, Dict, List, Optional

from . import NoDevice
from .nvml import Reading


class Engine(object):
    """An engine that builds models and times them."""

    name = ""
    version = ""

    def settings(self) -> Dict[str, str]:
        """What decides how models are built and run, for the record."""
        return {}

    def board(self) -> Dict[str, str]:
        """What the engine knows of the device it runs on."""
        return {}

    def read_sensors(self) -> Reading:
        """Clock, temperature and power now."""
        return {}

    def build(
        self, key: str, path: str, typed_path: str, precision: str, copies: int, alone: bool
    ) -> Dict[str, Any]:
        """Build a model and make it ready; what is worth keeping of the build.

        ``copies`` with their own weights are run in turn; ``alone`` says that it is a part of a
        network, too short to be timed one launch at a time.
        """
        raise NotImplementedError

    def run_us(
        self, key: str, count: int, during: Optional[Callable[[], None]] = None
    ) -> List[float]:
        """Microseconds per inference, ``count`` samples taken back to back."""
        raise NotImplementedError

    def layers(self, key: str) -> Any:
        """What the engine made of the model, as JSON; None where it does not say."""
        return None

    def drop(self, key: str) -> None:
        """Forget a model and give back its memory."""


def open_engine(name: str, options: Dict[str, str]) -> Engine:
    """The engine of the file ``engine_NAME.py`` here; NoDevice where this machine lacks it."""
    try:
        module = importlib.import_module(".engine_" + name, __package__)
    except ImportError as error:
        raise NoDevice("this worker has no engine %r (%s)" % (name, error))
    engine: Engine = module.open_engine(options)
    return engine
