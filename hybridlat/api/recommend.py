"""Which GPU keeps a budget: every device, mode and precision that a family of engines predicts."""

from __future__ import annotations

import fnmatch
import math
import time
from dataclasses import replace

from hybridlat.api.session import Options, Session, estimate, request_of
from hybridlat.api.sources import Item, Query, Source, checked_shapes, one_batch
from hybridlat.engines import device_sheets, registry
from hybridlat.errors import HybridlatError, InputError
from hybridlat.estimate.lookup.asked_target import newest_on_record, on_record
from hybridlat.estimate.lookup.target_list import by_data_sheet
from hybridlat.estimate.network_estimate import cells_of
from hybridlat.estimate.partition import Partition, known_file
from hybridlat.estimate.predict.chain import family_law
from hybridlat.estimate.predict.family import foresee
from hybridlat.onnx_io import Shapes
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.target import Target
from hybridlat.store import Store

_WHY = "measuring is for one target at a time"
_ORDER = {"within": 0, None: 0, "unsure": 1, "over": 2}


def recommend(
    source: Source, pattern: str = "*", *, max_latency_us: float | None = None,
    fps: float | None = None, batch: int | None = None, shapes: Shapes | None = None,
    precision: str | None = None, confidence: float = 0.9, store: str | None = None,
) -> list[Estimate]:  # fmt: skip
    """The estimate of a network on every GPU, mode and precision, the first to choose first.

    Those that keep the budget come before those that may and those that do not, each by the power
    of the board, then by its memory. Answers are those of ``predict`` with ``measure="never"``.

    Args:
        source: a network, as ``predict`` takes it.
        pattern: of devices (``orin-*``) under TensorRT, or of whole targets (``l4/torch/*``).
        max_latency_us: the budget of one batch; ``fps`` is one in images a second instead.
        batch, shapes, confidence, store: as in ``predict``.
        precision: this one alone, such as ``"fp16"``.

    Raises InputError where the pattern fits nothing, and what ``predict`` raises for the network.
    """
    started, query = time.perf_counter(), Query(one_batch(batch), checked_shapes(shapes))
    wanted = pattern if "/" in pattern else f"{pattern}/tensorrt/*"
    every = [info.target for info in by_data_sheet(())]
    named = [Target.parse(name) for name in fnmatch.filter(every, wanted)]
    chosen = [target for target in named if precision in (None, target.precision)]
    if not chosen:
        devices = ", ".join(sorted({name.split("/")[0] for name in every})[:5])
        at = f" at {precision}" if precision else ""
        raise InputError(f"{pattern!r} fits no target{at}: devices are {devices} …, as in 'orin-*'")
    with Store(store) as opened_store:
        opened = Item(source).opened(query, lambda digest: known_file(opened_store, digest))
        known, partitions = on_record(opened_store), dict[tuple[str, str], Partition]()
        sessions: list[tuple[Session, Partition]] = []
        failure: HybridlatError | None = None
        for target in chosen:
            options = Options(confidence=confidence, measure="never", runtime=target.runtime)
            newest = newest_on_record(target, opened_store, known=known)
            session = Session(
                registry.ResolvedEngine(newest, why_not=_WHY), newest, options, opened_store
            )
            try:
                key = registry.lowering_identity(newest), target.precision
                if key not in partitions:
                    partition, texts = session.partition(opened), session.data.texts
                    signatures = [use.signature for use in partition.uses]
                    partitions[key] = replace(partition, texts=texts(partition, signatures))
                sessions.append((session, partitions[key]))
            except HybridlatError as error:  # an engine that is not here
                failure = failure or error
        if failure is not None and not sessions:
            raise failure
        requests = [request_of(session, opened, started, partition=p) for session, p in sessions]
        laws = [family_law(session.data) for session, _ in sessions]
        foresee([
            (law, cells_of(request, session.data))
            for law, request, (session, _) in zip(laws, requests, sessions, strict=True) if law
        ])  # fmt: skip
        estimates = [estimate(session, opened, started, partition=p) for session, p in sessions]
    if (max_latency_us, fps) != (None, None):
        estimates = [one.against(max_latency_us, fps=fps) for one in estimates]
    return sorted(estimates, key=_rank)


def device_of(one: Estimate) -> Device:
    """The data sheet of an estimate's device."""
    return device_sheets.load(Target.parse(one.target).device)


def _rank(one: Estimate) -> tuple[float, ...]:
    device, too_large = device_of(one), one.memory is not None and one.memory.verdict == "too large"
    return (
        max(_ORDER[one.verdict], 2 * too_large), device.power_w or math.inf,
        device.memory_bytes or math.inf, one.latency_us or math.inf,
    )  # fmt: skip
