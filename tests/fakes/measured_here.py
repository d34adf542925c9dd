"""Stands in for the measuring process: what the fake engine runs needs no process of its own."""

from contextlib import AbstractContextManager
from typing import Any

from hybridlat.engines.base import Backend
from hybridlat.measuring import visiting
from hybridlat.measuring.process import MeasuringProcess
from tests.fakes.fake_backend import FakeBackend


class MeasuredHere(AbstractContextManager["MeasuredHere"]):
    """Answers as a measuring process does, which has a backend made anew and never dies."""

    def __init__(self, backend: Backend) -> None:
        self._backend = type(backend)(**backend.options)
        self._references = visiting.References(self._backend)

    def ask(self, task: visiting.VisitTask) -> visiting.VisitResult:
        """The result of ``task``."""
        return visiting.visit(self._backend, self._references, task)

    def __exit__(self, *_: object) -> None:
        pass


def measuring_process(backend: Backend) -> Any:
    """A process for a real engine, none for a fake one."""
    return (MeasuredHere if isinstance(backend, FakeBackend) else MeasuringProcess)(backend)
