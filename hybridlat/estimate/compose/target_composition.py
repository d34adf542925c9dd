"""The composition of one target: the trained one, else its machine's own beside a lent one.

Records are on the scale of one pace: that of the quick side of the machine's first run. A visit's
``drift`` says how much slower the machine was then. A latency is shown at the usual pace of the
processes on record, as the median of runs, where records hold a low quantile.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat.estimate.compose.composition import (
    FAR_OUT,
    Composition,
    SummedNetwork,
    machine_composition,
    undisturbed,
)
from hybridlat.estimate.compose.posterior import convolves
from hybridlat.estimate.lookup import models
from hybridlat.estimate.lookup.target_data import TargetData, per_state
from hybridlat.schema.files import all_readable
from hybridlat.schema.measurement import Measurement, was_busy

CALIBRATING = 5
"""So many whole networks are measured beside their cells, whatever the tolerance."""
MOST_NOISE_SHARE = 0.1
"""A network that was measured worse than this, as on a busy machine, tells no constants."""
_MOST_NETWORKS = 200
LARGE_SHARE = 0.03
"""From here on an estimate says that the machine's pace varies."""
_LEAST_VISITS = 2  # a process with fewer says more of single visits than of the machine
_USUAL_PROCESSES = 2
_LEAST_USUAL = 0.01
_STEADY_SHARE = 0.015
_OF_FLICKER = 0.6
"""Processes are first taken to differ by the hypotenuse of these two, this one a part of how much
single visits of one process do. A steady machine had 1.5 % among visits, 2.5 among the paces of
processes, and 1.7 between two that run one network; a shared one 5.5, 3.6 and 3.5 %."""
_MOST_MEDIAN_RATIO = 1.03  # quiet machines show 1.00 to 1.03; what lies above is other work


@per_state
def composition_of(data: TargetData) -> Composition:
    """The target's composition, with the pace drift of its machine."""
    composition, (lender, lent) = own_composition(data), lent_composition(data)
    if lender in map(str, data.related):
        composition = lent  # the same machine's: its constants hold too
    if composition is None:
        others = [_of_version(data, there) for there in data.other_versions]
        known = [_machine_composition(data), *filter(None, others)]
        composition = max(known, key=lambda one: one.networks)
    return on_this_machine(data, composition)


def _of_version(data: TargetData, there: TargetData) -> Composition | None:
    """The composition of another version here, if of enough networks, with the overhead here."""
    composition = own_composition(there) or _machine_composition(there)
    if composition.networks < CALIBRATING:
        return None
    here_us, there_us = data.dispatch_overhead_us, there.dispatch_overhead_us
    more_us = here_us - there_us if here_us and there_us else 0.0
    overhead_us = max(composition.overhead_us + more_us, 0.0)
    return on_this_machine(there, replace(composition, overhead_us=overhead_us))


@per_state
def own_composition(data: TargetData) -> Composition | None:
    """The trained one, unless training had too few networks: those of the store tell more."""
    each = all_readable(read_composition, data.model_folders, data.model_warnings)
    trained = next(each, None)
    return None if trained is None or trained.networks < CALIBRATING else trained


@per_state
def lent_composition(data: TargetData) -> tuple[str, Composition | None]:
    """The composition of the same engine elsewhere, where this target has none, and whose it is.

    The same machine's goes first, then one whose precision and threads agree.
    """
    if own_composition(data) is not None:
        return "", None
    here = data.target
    alike = [(o, f) for f, o in models.models_with_targets() if o.engine == here.engine]
    alike.sort(key=lambda one: (one[0].precision != here.precision, one[0].threads != here.threads))
    for other, folder in sorted(alike, key=lambda one: one[0] not in data.related):
        for composition in all_readable(read_composition, [folder]):
            if composition.networks:
                return str(other), composition
    return "", None


def on_this_machine(data: TargetData, composition: Composition) -> Composition:
    """A composition with the pace drift of the machine's own records, if there are any."""
    drift = pace_drift(data)
    if not drift.processes:
        return composition
    return replace(composition, wander_share=drift.wander_share, shown_ratio=drift.shown_ratio)


@per_state
def pace_drift(data: TargetData) -> PaceDrift:
    """The drift of the machine's pace, by its newest records."""
    newest = data.store.recent
    return data.cached("wandering", PaceDrift, lambda: pace_drift_of(newest(data.target)))


def is_calibrating(data: TargetData) -> bool:
    """Whether the machine has too few whole networks to compose by its own."""
    return composition_of(data).networks < CALIBRATING


def summed_networks(data: TargetData, unconvolved_ratio: float = 1.0) -> list[SummedNetwork]:
    """Networks in the store that were measured whole and with every cell, 200 at most.

    Cells without a convolution count ``unconvolved_ratio`` times.
    """
    breakdowns = {b.signature: b for b in data.store.breakdowns(data.target)}
    measured = data.store.latencies(data.target, breakdowns, "network")
    signatures = [h for h in sorted(measured) if measured[h].latency_us is not None]
    chosen = [breakdowns[signature] for signature in signatures[:_MOST_NETWORKS]]
    cells = data.known({h for breakdown in chosen for h, _ in breakdown.cells})
    each_us = {h: us for h, stats in cells.items() if (us := stats.latency_us) is not None}
    if unconvolved_ratio != 1:
        texts = data.store.signature_texts(each_us)
        each_us |= {h: each_us[h] * unconvolved_ratio for h in texts if not convolves(texts[h])}
    networks = []
    for breakdown in chosen:
        whole = data.recorded(breakdown.signature)
        if whole is None or not whole.is_exact or whole.noise_share > MOST_NOISE_SHARE:
            continue
        if all(h in each_us for h, _ in breakdown.cells):
            sum_us = sum(each_us[h] * count for h, count in breakdown.cells)
            networks.append(SummedNetwork(whole.latency_us, sum_us))
    return networks


def read_composition(folder: Path) -> Composition | None:
    """The composition of a model, if it has one; StoreError for a damaged one."""
    path = folder / models.COMPOSITION_FILE
    if not path.exists():
        return None
    models.check(path)
    stored = models.read_json(path)
    with models.using(path):
        return Composition.from_json(stored)


def _machine_composition(data: TargetData) -> Composition:
    _, lent = lent_composition(data)

    def fitted() -> Composition:
        overhead_us = data.dispatch_overhead_us
        ratio = lent.unconvolved_ratio if lent is not None else 1.0
        networks = undisturbed(summed_networks(data, ratio), overhead_us)
        return machine_composition(networks, overhead_us, lent)

    besides = None if lent is None else lent.to_json()
    return data.cached("composition", Composition, fitted, besides)


# ---- how the pace of a machine drifts ----


@dataclass(frozen=True, slots=True)
class PaceDrift:
    """How far processes were from the machine's usual pace.

    ``share`` is the root mean square of ln(pace / usual) over ``processes``, pooled with two usual
    ones; 0 without any. ``usual_pace`` is their median, in that of records. The median of samples
    lies ``median_ratio`` above the level of records, and processes that run one network at one pace
    are ``process_share`` apart.
    """

    share: float = 0.0
    processes: int = 0
    usual_pace: float = 1.0
    median_ratio: float = 1.0
    process_share: float = 0.0

    @property
    def wander_share(self) -> float:
        """Standard error of ln(latency) between a user's process and the records."""
        return math.hypot(self.share, self.process_share)

    @property
    def shown_ratio(self) -> float:
        return self.usual_pace * self.median_ratio


def pace_drift_of(records: Iterable[Measurement]) -> PaceDrift:
    """The drift that the visits of a machine's records show.

    Failures and what a busy machine measured tell nothing. A process is known by its run's end, to
    the minute, and its number.
    """
    drifts: dict[tuple[str, int], list[float]] = defaultdict(list)
    ratios, apart = list[float](), list[float]()
    for record in records:
        if record.failure is not None or record.labels.get("role") or was_busy(record.environment):
            continue
        middles: dict[int, list[float]] = defaultdict(list)
        for visit in record.visits:
            drifts[record.measured_at[:16], visit.process].append(math.log(visit.drift))
            if visit.samples_us and record.kind == "network":
                middle_us = statistics.median(visit.samples_us) / visit.drift
                middles[visit.process].append(middle_us)
        if middles and record.latency_us:
            each_us = [statistics.median(of_process) for of_process in middles.values()]
            above_us = statistics.median(itertools.chain(*middles.values()))
            ratios.append((above_us - record.overhead_us) / record.latency_us)
            apart += [math.log(a / b) / math.sqrt(2) for a, b in itertools.pairwise(each_us)]
    median_ratio = min(max(statistics.median(ratios or [1.0]), 1.0), _MOST_MEDIAN_RATIO)
    logs = [own for _, own in sorted(drifts.items()) if len(own) >= _LEAST_VISITS]
    if not logs:
        return PaceDrift(median_ratio=median_ratio)
    paces = [math.exp(statistics.median(own)) for own in logs]
    steps = [abs(x - math.log(p)) for own, p in zip(logs, paces, strict=True) for x in own]
    likely = math.hypot(_STEADY_SHARE, _OF_FLICKER * 1.4826 * statistics.median(steps))
    usual = statistics.median(paces)
    share = _pooled([math.log(pace / usual) for pace in paces], likely)
    process_share = _pooled(apart, likely) if apart else likely
    return PaceDrift(share, len(paces), usual, median_ratio, process_share)


def _pooled(logs: Sequence[float], likely: float) -> float:
    """The root mean square, clipped, pooled with a few that are ``likely``."""
    sizes = [abs(x) for x in logs]
    most = FAR_OUT * max(1.4826 * statistics.median(sizes), _LEAST_USUAL)
    squares = math.fsum(min(size, most) ** 2 for size in sizes) + _USUAL_PROCESSES * likely**2
    return math.sqrt(squares / (len(sizes) + _USUAL_PROCESSES))
