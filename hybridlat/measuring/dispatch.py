"""A network's cells measured behind their predecessors, in this process, into a store."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from hybridlat.graph.reference_networks import null_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.differential import Differential, Effort, parts_of
from hybridlat.measuring.differential import whole as whole_part
from hybridlat.measuring.isolated import Progress
from hybridlat.schema.measurement import Measurement, Visit

if TYPE_CHECKING:
    from hybridlat.engines.base import Backend
    from hybridlat.graph.network import Network
    from hybridlat.store import Store


def measure_behind(
    backend: Backend,
    name: str,
    network: Network,
    wanted: Collection[str],
    store: Store,
    *,
    whole: bool,
    effort: Effort | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Measurement]:
    """Measure the cells with the ``wanted`` signatures, and the whole network if asked for.

    The records are added to ``store``, failures too, and what entering the engine costs where the
    store does not know it yet. Raises MeasurementError when the engine refuses the network.
    """
    plan = parts_of(name, network, backend.lower(network))
    parts = [part for part, _ in plan if part.signature in wanted]
    if whole:
        signature = sign(network)
        store.add_signatures({signature.hash: signature.text})
        parts.append(whole_part(name, network))
    if not parts:
        return []
    run = Differential(backend, parts, effort)

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(Progress(done, total, name, None))

    run.visit(tell)
    records = run.records()
    store.add([*records, *_entry_record(backend, run.entry_us, store)])
    return records


def measure_in_network(
    backend: Backend,
    name: str,
    network: Network,
    wanted: Collection[str],
    store: Store,
    *,
    whole: bool,
    rounds: int,
    progress: Callable[[Progress], None] | None = None,
) -> list[Measurement]:
    """The same by whatever the engine measures with: its runner of plans, or this process."""
    if not backend.measures_plans:
        effort = Effort(max(rounds, 2), rounds + 2)
        return measure_behind(
            backend, name, network, wanted, store, whole=whole, effort=effort, progress=progress
        )
    from hybridlat.measuring.plans import execution

    found = execution.measure_networks(
        [(name, network)], backend.target, store, execution.run_here(backend.run_plan, progress),
        lower=backend.lower, wanted=frozenset(wanted).__contains__, whole=whole, rounds=rounds,
    )  # fmt: skip
    return list(found.records)


def _entry_record(backend: Backend, entry_us: float, store: Store) -> list[Measurement]:
    signature = sign(null_network(1))
    if entry_us <= 0 or signature.hash in store.latencies(backend.target, [signature.hash]):
        return []
    store.add_signatures({signature.hash: signature.text})
    return [
        Measurement(
            target=backend.target,
            signature=signature.hash,
            kind="cell",
            latency_us=entry_us,
            visits=(Visit((entry_us,)),),
            protocol="reference-1",
            environment=dict(backend.environment()),
            measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            labels={"role": "entry cost"},
        )
    ]
