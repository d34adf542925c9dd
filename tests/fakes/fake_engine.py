"""The fake machine as another package would offer it: an entry point, a lowering, a backend."""

from __future__ import annotations

from hybridlat.engines.registry import EngineEntry
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target
from tests.fakes.fake_backend import FakeBackend

FAKE = EngineEntry(lowering=__name__, backend="tests.fakes.fake_backend:FakeBackend")


def lower(network: Network, target: Target) -> Lowered:
    """Every operator is a kernel."""
    del target
    return FakeBackend().lower(network)


def identity(target: Target) -> str:
    """It never changes."""
    return f"fake-{target.version}"
