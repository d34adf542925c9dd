"""Make a new device known: measure what there is time for, then train.

Everything is measured once, in the order drawn and in runs of some seconds: two fifths of the time
go to the networks that come with hybridlat, whole and with all their cells, the rest to random
kernels. What is measured is in the store at once: a second run goes on where the first stopped.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat.engines.base import Backend
from hybridlat.errors import HybridlatError, InputError
from hybridlat.evaluation.cross_fitting import device_of
from hybridlat.measuring.fleet import Fleet, FleetMeasurer
from hybridlat.measuring.measurer import BackendMeasurer, Measurer
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.model.training_problem import check_installed
from hybridlat.schema.device import Device
from hybridlat.schema.plugins import shipped
from hybridlat.schema.progress import OnMessage, OnProgress, silent
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.kernel_sampler import Engine
from hybridlat.training.train import Trained, TrainingOptions, train_target
from hybridlat.training.workload import Bench, Item, random_kernels, read_networks

SETTINGS = MeasurementConfig(
    rounds=1, processes=1, max_processes=3, spread_share=0.1, visit_ms=10.0,
    network_visit_ms=100.0, network_visits=2, differential_rounds=1,
)  # fmt: skip
"""Many cells once are worth more than few often; what was disturbed is visited once more."""
NETWORK_SHARE = 0.4
"""Part of the measuring time that goes to whole networks with their cells, while there are some."""
READING_SHARE = 0.1
"""Part of the budget that reading networks may take before anything is measured."""
RUNS = 10
"""How many runs a budget falls into, within these limits."""
LEAST_RUN_S, MOST_RUN_S = 15.0, 60.0
DEAREST_SHARE = 0.25
"""A network that is expected to take more of the time left is left out."""
LEAST_CELLS = 60
"""Fewer are not trained on."""
_OVER = 1.5  # how far networks may go over the time of a run
_LONGEST = 2.0  # after so many times its length a run is cut off: the rest is measured later
_STARTING_S = 3.0  # a measuring process: what is left of a budget must be more than that
_TRAINING_S, _TRAINING_SHARE = 60.0, 0.2
_DRAWN_AT_ONCE = 20


@dataclass(frozen=True)
class OnboardingOptions:
    """What to measure for how long.

    ``budget_s`` holds training too. ``nets`` is a folder of ONNX files, by default those that come
    with hybridlat; ``device`` overrides the data sheet.
    """

    budget_s: float
    store: str | None = None
    nets: Path | None = None
    device: Device | None = None
    seed: int = 0
    settings: MeasurementConfig = SETTINGS
    most_kernels: int = 100_000


@dataclass(frozen=True)
class Onboarded:
    """What an onboarding did of one target.

    ``networks`` are known whole and with their cells, ``kernels`` were measured now; ``cells``
    counts what the store knows. ``trained`` is None where there was too little to learn from, and
    before training; a ``problem`` ended it all.
    """

    target: Target
    networks: int = 0
    cells: int = 0
    kernels: int = 0
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = ()
    trained: Trained | None = None
    problem: HybridlatError | None = None


def measuring_s(budget_s: float) -> float:
    """What a budget leaves for measuring: training takes a fifth of it, and a minute at least.

    On what ten minutes measured, it took two and a half on the slower of two machines.
    """
    return max(budget_s - max(_TRAINING_S, _TRAINING_SHARE * budget_s), 0.5 * budget_s)


def run_s(budget_s: float) -> float:
    """How long a run of a measuring budget is, in seconds."""
    return min(max(budget_s / RUNS, LEAST_RUN_S), MOST_RUN_S)


def onboard_target(
    backend: Backend,
    backend_options: Mapping[str, int | str],
    options: OnboardingOptions,
    training: TrainingOptions,
    progress: OnProgress | None = None,
    on_message: OnMessage = silent,
) -> Onboarded:
    """Measure on ``backend`` (``backend_options`` start it anew) within the budget, and train.

    Raises InputError for a budget that is not above 0.
    """
    measurer = BackendMeasurer(backend, backend_options)
    measured = measure_target(backend, measurer, options, progress, on_message)
    return train_on(measured, training, options.store, on_message)


def onboard_fleet(
    fleet: Fleet,
    options: OnboardingOptions,
    training: TrainingOptions,
    on_message: OnMessage = silent,
) -> list[Onboarded]:
    """Onboard all targets of a fleet at once, each by all of its devices within the budget.

    Training waits until nothing is measured any more: this machine may be one of the devices. What
    goes wrong with one target costs that target alone.
    """

    def measured(target: Target) -> Onboarded:
        devices = FleetMeasurer(fleet, target)
        try:
            result = measure_target(devices, devices, options, on_message=on_message)
        except HybridlatError as error:
            return Onboarded(target, problem=error)
        return replace(result, notes=(*result.notes, *map(str, devices.problems)))

    def trained(onboarded: Onboarded) -> Onboarded:
        if onboarded.problem is not None:
            return onboarded
        try:
            return train_on(onboarded, training, options.store, on_message)
        except HybridlatError as error:
            return replace(onboarded, problem=error)

    return [trained(one) for one in fleet.for_each_target(measured)]


def measure_target(
    engine: Engine,
    measurer: Measurer,
    options: OnboardingOptions,
    progress: OnProgress | None = None,
    on_message: OnMessage = silent,
) -> Onboarded:
    """The first half of :func:`onboard_target`: measure, and leave time to train.

    ``engine`` says what the target is and how it lowers, ``measurer`` measures. Raises
    MissingExtra where nothing could be trained on what would be measured.
    """
    if not options.budget_s > 0:
        raise InputError(f"a budget of {options.budget_s} s measures nothing: give for example 10m")
    check_installed()
    began, target = time.monotonic(), engine.target
    with Store(options.store) as store:
        device = options.device or device_of(target, store)
        bench = Bench(target, measurer, store, options.settings, device, progress)
        folder = options.nets or networks_folder()
        files = sorted(folder.glob("*.onnx")) if folder is not None else []
        budget_s = measuring_s(options.budget_s)
        networks = read_networks(files, engine, options.seed, began + READING_SHARE * budget_s)
        kernels = random_kernels(engine, measurer.needs_network, options.seed)
        # However slow reading was: one run is made.
        end = max(began + budget_s, time.monotonic() + run_s(budget_s))
        count = _measure(
            bench, networks.items, kernels, options.most_kernels, run_s(budget_s), end, on_message
        )
        open_names = {item.name for item in networks.items if not bench.is_complete(item)}
        left = len(open_names - bench.refused) + networks.unread
        notes = [*networks.notes, *bench.notes]
        if left:
            notes.append(f"{left} network{'s' * (left > 1)} did not fit into the budget")
        cells = sum(stats.cells for stats in store.stats() if stats.target == target)
    done = len(networks.items) - len(open_names)
    return Onboarded(target, done, cells, count, time.monotonic() - began, tuple(notes))


def train_on(
    onboarded: Onboarded,
    training: TrainingOptions,
    store: str | None = None,
    on_message: OnMessage = silent,
) -> Onboarded:
    """The second half of :func:`onboard_target`: train on what the store knows of the target."""
    target, cells = onboarded.target, onboarded.cells
    if cells < LEAST_CELLS:
        note = (
            f"{cells} cells are too few to train on (at least {LEAST_CELLS}): "
            "run it again with a larger budget, it goes on where it stopped"
        )
        return replace(onboarded, notes=(*onboarded.notes, note))
    on_message(f"{target}: training on {cells} cells")
    began = time.monotonic()
    trained = train_target(target, training, store=store, on_message=on_message)
    elapsed_s = onboarded.elapsed_s + time.monotonic() - began
    return replace(onboarded, elapsed_s=elapsed_s, trained=trained)


def networks_folder() -> Path | None:
    """The networks that come with hybridlat; None where none do."""
    folder = shipped("data", "nets")
    return folder if any(folder.glob("*.onnx")) else None


def _measure(
    bench: Bench,
    networks: Sequence[Item],
    kernels: Iterator[Item],
    most_kernels: int,
    span_s: float,
    end: float,
    on_message: OnMessage,
) -> int:
    """Runs until ``end`` or until nothing is left; how many random kernels were measured."""
    networks_s = kernels_s = 0.0
    measured = 0
    bench.look_up(networks)
    while (left_s := end - time.monotonic()) > (_STARTING_S if bench.tried else 0.0):
        run_span_s = bench.measurer.devices * min(span_s, left_s)
        turn_of_networks = networks_s <= NETWORK_SHARE * (networks_s + kernels_s)
        chosen = _next_networks(bench, networks, run_span_s, left_s) if turn_of_networks else []
        if not chosen:
            most = most_kernels - measured
            chosen = _next_kernels(bench, kernels, run_span_s, most, end)
        if not chosen and not turn_of_networks:
            chosen = _next_networks(bench, networks, run_span_s, left_s)
        if not chosen:
            break
        on_message(bench.sentence(chosen, left_s))
        took_s = bench.run(chosen, min(end, time.monotonic() + _LONGEST * span_s))
        if chosen[0].breakdown is not None:
            networks_s += took_s
        else:
            kernels_s += took_s
            measured += sum(bench.knows_any(item) for item in chosen)
    return measured


def _next_networks(
    bench: Bench, networks: Sequence[Item], span_s: float, left_s: float
) -> list[Item]:
    """The next networks that are not complete, for about ``span_s`` seconds."""
    chosen: list[Item] = []
    spent_s = 0.0
    for item in networks:
        if item.name in bench.refused or bench.is_complete(item):
            continue
        cost_s = bench.expected_s(item)
        if cost_s > DEAREST_SHARE * left_s or (chosen and spent_s + cost_s > _OVER * span_s):
            continue
        chosen.append(item)
        spent_s += cost_s
        if spent_s >= span_s:
            break
    return chosen


def _next_kernels(
    bench: Bench, kernels: Iterator[Item], span_s: float, most: int, end: float
) -> list[Item]:
    """The next kernels that were not tried, for about ``span_s`` seconds."""
    chosen: list[Item] = []
    spent_s = 0.0
    while spent_s < span_s and len(chosen) < most and time.monotonic() < end:
        drawn = list(itertools.islice(kernels, min(_DRAWN_AT_ONCE, most - len(chosen))))
        if not drawn:
            break
        bench.look_up(drawn)
        new = [item for item in drawn if not bench.is_complete(item)]
        chosen += new
        spent_s += sum(bench.expected_s(item) for item in new)
    return chosen
