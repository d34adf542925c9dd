"""Which GPU keeps a budget: every device, mode and precision that a family of engines predicts."""

from __future__ import annotations

import fnmatch
import math
import time
from contextlib import suppress
from dataclasses import replace

from hybridlat.api.options import Options
from hybridlat.api.session import Session, estimate
from hybridlat.api.sources import Item, Query, Source, checked_shapes, one_batch
from hybridlat.engines import registry
from hybridlat.errors import InputError, UnavailableError
from hybridlat.estimate.belief import cells_of
from hybridlat.estimate.lookup.asked_target import newest_on_record, targets_on_record
from hybridlat.estimate.lookup.target_list import by_data_sheet
from hybridlat.estimate.partition import Partition, known_file
from hybridlat.estimate.predict.chain import family_law
from hybridlat.estimate.predict.family import foresee
from hybridlat.onnx_io import Shapes
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.shown import Estimates
from hybridlat.schema.target import Target
from hybridlat.store import Store

_ORDER = {"within": 0, None: 0, "unsure": 1, "over": 2}


def recommend(
    source: Source,
    pattern: str = "*",
    *,
    max_latency_us: float | None = None,
    fps: float | None = None,
    batch: int | None = None,
    shapes: Shapes | None = None,
    precision: str | None = None,
    confidence: float = 0.9,
    store: str | None = None,
) -> Estimates[Estimate]:
    """The estimate of a network on every GPU, mode and precision, the first to choose first.

    Those that keep the budget come before those that may and those that do not, each by the power
    of the board, then by its memory. Answers are those of ``predict`` with ``measure="never"``.

    Args:
        source: a network, as ``predict`` takes it; so are batch, shapes, confidence and store.
        pattern: of devices (``orin-*``) under TensorRT, or of whole targets (``l4/torch/*``).
        max_latency_us: the budget of one batch; ``fps`` is one in images a second instead.
        precision: this one alone, such as ``"fp16"``.

    Raises InputError where the pattern fits nothing, and what ``predict`` raises for the network.
    """
    started, query = time.perf_counter(), Query(one_batch(batch), checked_shapes(shapes))
    every = [info.target for info in by_data_sheet(())]
    named = fnmatch.filter(every, pattern if "/" in pattern else f"{pattern}/tensorrt/*")
    chosen = [t for t in map(Target.parse, named) if precision in (None, t.precision)]
    if not chosen:
        at = f" at {precision}" if precision else ""
        raise InputError(f"{pattern!r} fits no target{at}: write it as 'orin-*' or 'l4/torch/*'")
    estimates, sessions = list[Estimate](), list[tuple[Session, Partition]]()
    with Store(store) as kept:
        opened = Item(source).opened(query, lambda digest: known_file(kept, digest))
        known, partitions = targets_on_record(kept), dict[tuple[str, str], Partition]()
        for target in chosen:
            options = Options(confidence=confidence, measure="never", runtime=target.runtime)
            newest = newest_on_record(target, known)
            session = Session(registry.ResolvedEngine(newest), newest, options, kept)
            with suppress(UnavailableError):  # an engine that is not here
                key = registry.lowering_identity(newest), target.precision
                if key not in partitions:
                    partition, texts = session.partition(opened), session.data.texts
                    signatures = [use.signature for use in partition.uses]
                    partitions[key] = replace(partition, texts=texts(partition, signatures))
                sessions.append((session, partitions[key]))
        by_family = []
        for session, partition in sessions:
            if law := family_law(session.data):
                cells = cells_of(session.data, partition, confidence, opened.network)
                by_family.append((law, cells))
        foresee(by_family)
        for session, partition in sessions:
            estimates.append(estimate(session, opened, started, partition=partition))
    if (max_latency_us, fps) != (None, None):
        estimates = [one.against(max_latency_us, fps=fps) for one in estimates]
    return Estimates(sorted(estimates, key=_rank))


def _rank(one: Estimate) -> tuple[float, ...]:
    memory, order = one.memory, _ORDER[one.verdict]
    order = 2 if memory is not None and memory.verdict == "too large" else order
    most = (memory and memory.device_bytes) or math.inf
    return order, one.power_w or math.inf, most, one.latency_us or math.inf
