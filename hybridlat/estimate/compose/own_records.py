"""What a machine's own records say of it: how its pace wanders, and how its cells sum up.

Worked out once for each state of the store, which keeps it for later processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hybridlat.errors import StoreError
from hybridlat.estimate.compose import machine
from hybridlat.estimate.compose import pace_drift as wandering
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.pace_drift import Wandering
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.schema import wire
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.store import LatencyStats, Store

_MACHINE_VERSION = 4
_MOST_NETWORKS = 200
T = TypeVar("T", Composition, Wandering)


def of_this_revision(
    store: Store,
    target: Target,
    what: str,
    form: type[T],
    work_out: Callable[[], T],
    besides: object = "",
) -> T:
    """A value that follows from the store's records, worked out once for each state of the store.

    ``form`` is its type; ``besides`` is whatever else it depends on.
    """
    count, last = store.revision(target)
    if not count:
        return work_out()
    depends = hashlib.sha256(repr(besides).encode()).hexdigest()[:16]
    key = f"{what}/{_MACHINE_VERSION}/{target}/{count}-{last}-{depends}"
    known = store.cache_read(key, partial(wire.decode_or_none, form=form))
    if known is not None:
        return known
    made = work_out()
    with contextlib.suppress(StoreError):  # a store that takes nothing: worked out again
        store.cache_put(key, json.dumps(asdict(made)))
    return made


def newest_wandering(store: Store, target: Target) -> Wandering:
    """How the machine's own pace wanders, as its newest records tell it."""

    def newest() -> Wandering:
        paces = wandering.paces_of(store.recent(target))
        return wandering.wandering_of(paces.found(), paces.median_ratio)

    return of_this_revision(store, target, "wandering", Wandering, newest)


def summed_networks(
    store: Store,
    target: Target,
    known: Callable[[Iterable[str]], Mapping[str, LatencyStats]],
    whole: Callable[[str], WholeLatency | None],
) -> list[machine.SummedNetwork]:
    """Networks in the store that were measured whole and with every cell, 200 at most.

    ``known`` looks cells up, ``whole`` networks.
    """
    breakdowns = {b.signature: b for b in store.breakdowns(target)}
    measured = store.latencies(target, breakdowns, "network")
    chosen = [breakdowns[h] for h in sorted(measured) if measured[h].latency_us is not None]
    cells = known({h for b in chosen[:_MOST_NETWORKS] for h, _ in b.cells})
    found = []
    for breakdown in chosen[:_MOST_NETWORKS]:
        uses = [(cells[h].latency_us, n) for h, n in breakdown.cells if h in cells]
        latency = whole(breakdown.signature)
        if latency is None or not latency.is_exact or len(uses) < len(breakdown.cells):
            continue
        if latency.noise_share > machine.MOST_NOISE_SHARE:
            continue
        if all(us is not None for us, _ in uses):
            sum_us = sum((us or 0.0) * n for us, n in uses)
            found.append(machine.SummedNetwork(latency.latency_us, sum_us))
    return found
