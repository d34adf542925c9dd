"""The fake machine as another package would offer it: an entry point, a lowering, a backend."""

import os
from pathlib import Path

from hybridlat.engines.registry import EngineEntry
from hybridlat.graph.network import Lowered, Network
from hybridlat.schema.target import Target
from tests.fakes.fake_backend import FakeBackend

FAKE = EngineEntry(lowering=__name__, backend="tests.fakes.fake_backend:FakeBackend")

# Names of networks over which its process dies, and a file over which it dies once.
LOWERING_DIES_VARIABLE = "FAKE_LOWERING_DIES"
ONCE_VARIABLE = "FAKE_LOWERING_DIES_ONCE"


def lower(network: Network, target: Target) -> Lowered:
    """Every operator is a kernel."""
    del target
    if network.name in os.environ.get(LOWERING_DIES_VARIABLE, "").split(","):
        once = os.environ.get(ONCE_VARIABLE)
        if once is None:
            os.abort()
        if Path(once).exists():
            Path(once).unlink()
            os.abort()
    return FakeBackend().lower(network)


def identity(target: Target) -> str:
    """It never changes."""
    return f"fake-{target.version}"
