"""The composition of one target: the trained one, else its machine's own beside a lent one."""

from dataclasses import replace
from pathlib import Path

from hybridlat.estimate.compose import machine
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.machine import PaceDrift
from hybridlat.estimate.compose.posterior import convolves
from hybridlat.estimate.lookup import models
from hybridlat.estimate.lookup.target_data import TargetData, per_state
from hybridlat.schema.files import all_readable

_MOST_NETWORKS = 200


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
    if composition.networks < machine.CALIBRATING:
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
    return None if trained is None or trained.networks < machine.CALIBRATING else trained


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
    return data.cached("wandering", PaceDrift, lambda: machine.pace_drift_of(newest(data.target)))


def is_calibrating(data: TargetData) -> bool:
    """Whether the machine has too few whole networks to compose by its own."""
    return composition_of(data).networks < machine.CALIBRATING


def summed_networks(
    data: TargetData, unconvolved_ratio: float = 1.0
) -> list[machine.SummedNetwork]:
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
        if whole is None or not whole.is_exact or whole.noise_share > machine.MOST_NOISE_SHARE:
            continue
        if all(h in each_us for h, _ in breakdown.cells):
            sum_us = sum(each_us[h] * count for h, count in breakdown.cells)
            networks.append(machine.SummedNetwork(whole.latency_us, sum_us))
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
        networks = machine.undisturbed(summed_networks(data, ratio), overhead_us)
        return machine.machine_composition(networks, overhead_us, lent)

    besides = None if lent is None else lent.to_json()
    return data.cached("composition", Composition, fitted, besides)
