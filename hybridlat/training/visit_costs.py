"""How long one visit of a cell takes under the replica protocol, before it is made."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridlat.measuring.schedule import HEAVY_BYTES, REPLICAS, MeasurementConfig
from hybridlat.model.geometry import CONTEXTS, Geometry

VISIT_MS = 10.0
"""How long a cell is run in one visit of an onboarding."""
_FIXED_S = 0.02  # two runs of the reference, messages
_REPLICA_S = 0.0016  # building one copy
_AROUND_RUNS = 1.2  # what comes on top of the runs themselves, as a factor
_HEAVY_REPLICAS = 3
_BYTE_S = 12e-9  # making a byte of weights and building the engine's copy of it
_NETWORK_S = 0.15

Array = NDArray[np.float64]


def cell_visit_s(cells: Geometry, latencies_us: Array, visit_ms: float = VISIT_MS) -> Array:
    """Seconds of one visit of each cell, from what its latency is thought to be.

    The constants were seen on a virtual machine with two cores; what they are elsewhere shows after
    the first portion, and the caller scales by it.
    """
    weight_bytes = np.bincount(cells.cell, cells.column("weight_bytes"), cells.cells)
    context = np.zeros(cells.cells)
    context[cells.cell] = cells.column("context")
    copies = np.empty(cells.cells)
    for name, (most, least, together) in REPLICAS.items():
        mine = context == CONTEXTS[name]
        wanted = np.ceil(together / np.maximum(weight_bytes[mine], 1))
        copies[mine] = np.clip(wanted, least, most)
    copies = np.where(weight_bytes > HEAVY_BYTES, _HEAVY_REPLICAS, copies)
    once_s = copies * np.nan_to_num(latencies_us, nan=100.0) * 1e-6
    running_s = _AROUND_RUNS * (once_s + np.maximum(visit_ms / 1e3, once_s))
    return np.asarray(_FIXED_S + copies * (_REPLICA_S + _BYTE_S * weight_bytes) + running_s)


def network_visits_s(weight_bytes: float, latency_us: float, settings: MeasurementConfig) -> float:
    """Seconds that measuring a network whole takes, its cells not counted."""
    once_s = latency_us * 1e-6
    running_s = once_s + max(settings.network_visit_ms / 1e3, 3 * once_s)
    one_s = _NETWORK_S + _BYTE_S * weight_bytes + _AROUND_RUNS * running_s
    return settings.rounds * settings.processes * settings.network_visits * one_s
