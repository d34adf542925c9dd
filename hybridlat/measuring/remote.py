"""Networks measured on a board that only ssh reaches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hybridlat.engines import registry
from hybridlat.errors import InputError
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.plans import PlanRequest, Wanted
from hybridlat.measuring.plans.run import measure_networks
from hybridlat.measuring.report import MeasureReport, What, report_of, sum_of_cells_us
from hybridlat.measuring.ssh import check_target, run_on
from hybridlat.schema.measurement import Kind
from hybridlat.schema.progress import OnMessage, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store


@dataclass(frozen=True)
class Host:
    """A board: ``name`` as ssh takes it, ``runner`` worker, trtexec or auto, and the time it may
    take."""

    name: str
    runner: str = "auto"
    timeout_s: float = 6 * 3600.0


def measure_on_host(
    networks: Sequence[tuple[str, Network]],
    target: Target | None,
    store: Store,
    host: Host,
    *,
    what: What = "both",
    remeasure: bool = False,
    on_message: OnMessage = silent,
) -> list[MeasureReport]:
    """Measure (name, network) pairs on a board, all in one plan; a report on each, in order.

    Cells that the store knows are not measured again unless ``remeasure``. ``target`` may leave the
    engine's version to the board. ``on_message`` gets a line about every step. Raises InputError
    for a host or target that cannot be, BackendUnavailable where the board does not answer or has
    no engine, MeasurementError when its run fails; what was measured until then stays in the store.
    """
    if target is None:
        raise InputError(
            f"--host {host.name} needs --target: device/runtime/precision, such as "
            "orin/tensorrt/fp16"
        )
    check_target(target)
    began = time.perf_counter()
    run = run_on(host.name, host.runner, host.timeout_s, on_message)
    request = PlanRequest(networks, target, unknown_to(store, target, what, remeasure))
    imported = measure_networks(request, store, run)
    there = imported.targets[0] if imported.targets else target
    reports = []
    for name, network in networks:
        own = [record for record in imported.records if record.labels.get("network") == name]
        cells = _cells_of(network, target)
        measured = {record.signature for record in imported.records}
        reports.append(
            report_of(
                name,
                there,
                own,
                known=len(cells.keys() - measured) if what != "network" else 0,
                sum_of_cells_us=sum_of_cells_us(store, there, list(cells.items())),
                elapsed_s=time.perf_counter() - began,
                warnings=registry.about(network),
            )
        )
    return reports


def unknown_to(store: Store, target: Target, what: What, remeasure: bool = False) -> Wanted:
    """Chooses the records of a plan: networks unless only cells are wanted, and unknown cells."""

    def wanted(kind: Kind, hash_: str) -> bool:
        if kind == "network":
            return what != "cells"
        return what != "network" and (remeasure or not store.latencies(target, [hash_]))

    return wanted


def _cells_of(network: Network, target: Target) -> Counter[str]:
    """How often the network uses each of its cells, as the plan cuts it."""
    return Counter(
        sign(cell.network).hash for cell in cut(registry.lower(network, target), network)
    )
