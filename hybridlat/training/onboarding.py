"""Make a new device known: measure what there is time for, then train.

Everything is measured once, in the order drawn and in runs of some seconds: two fifths of the time
go to the networks that come with hybridlat, whole and with all their cells, the rest to random
kernels. What is measured is in the store at once: a second run goes on where the first stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from hybridlat.measuring.measurer import Measurer
from hybridlat.measuring.schedule import MeasurementConfig
from hybridlat.model.fit import check_installed
from hybridlat.schema.plugins import shipped
from hybridlat.schema.progress import OnMessage, OnProgress, silent
from hybridlat.schema.shown import count_text
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training.train import Trained, TrainingOptions, train_target
from hybridlat.training.workload import Bench, random_kernels

SETTINGS = MeasurementConfig(
    rounds=1, processes=1, max_processes=3, spread_share=0.1, visit_ms=10.0,
    network_visit_ms=100.0, network_visits=2,
)  # fmt: skip
"""Many cells once are worth more than few often; what was disturbed is visited once more."""
READING_SHARE = 0.1
"""Part of the budget that reading networks may take before anything is measured."""
RUNS = 10
"""How many runs a budget falls into, within these limits."""
LEAST_RUN_S, MOST_RUN_S = 15.0, 60.0
LEAST_CELLS = 60
"""Fewer are not trained on."""
_TRAINING_S, _TRAINING_SHARE = 60.0, 0.2


@dataclass(frozen=True)
class OnboardingOptions:
    """What to measure for how long.

    ``budget_s``, above 0, holds training too. ``nets`` is a folder of ONNX files, by default those
    that come with hybridlat.
    """

    budget_s: float
    store: str | None = None
    nets: Path | None = None
    seed: int = 0
    settings: MeasurementConfig = SETTINGS
    most_kernels: int = 100_000


@dataclass(frozen=True)
class Onboarded:
    """What an onboarding did of one target.

    ``networks`` are known whole and with their cells, ``kernels`` were measured now; ``cells``
    counts what the store knows. ``trained`` is None where there was too little to learn from, and
    before training. ``by`` is another version of the engine that answers here too, so that nothing
    was trained. ``accepted``: a model is in use, or no answer is wide.
    """

    target: Target
    networks: int = 0
    cells: int = 0
    kernels: int = 0
    elapsed_s: float = 0.0
    notes: tuple[str, ...] = ()
    trained: Trained | None = None
    by: Target | None = None
    accepted: bool = False


def measure_target(
    measurer: Measurer,
    options: OnboardingOptions,
    progress: OnProgress | None = None,
    on_message: OnMessage = silent,
) -> Onboarded:
    """Measure the measurer's target, and leave time to train.

    Raises MissingExtra where nothing could be trained on what would be measured.
    """
    check_installed()
    began, target = time.monotonic(), measurer.backend.target
    # Of what ten minutes measured, the slower of two machines learned in two and a half.
    training_s = max(_TRAINING_S, _TRAINING_SHARE * options.budget_s)
    budget_s = max(options.budget_s - training_s, 0.5 * options.budget_s)
    run_s = min(max(budget_s / RUNS, LEAST_RUN_S), MOST_RUN_S)
    with Store(options.store) as store:
        bench = Bench(measurer, store, options.settings, progress)
        nets = options.nets or shipped("data", "nets")
        bench.read(nets.glob("*.onnx"), options.seed, began + READING_SHARE * budget_s)
        kernels = random_kernels(measurer, options.most_kernels, options.seed)
        # However slow reading was: one run is made.
        end = max(began + budget_s, time.monotonic() + run_s)
        count = bench.measure(kernels, run_s, end, on_message)
        rest = {item.request.name for item in bench.networks if bench.things(item)}
        left = len(rest - bench.refused) + bench.unread
        if left:
            bench.notes.append(f"{count_text(left, 'network')} did not fit into the budget")
        cells = sum(stats.cells for stats in store.stats() if stats.target == target)
    done, elapsed_s = len(bench.networks) - len(rest), time.monotonic() - began
    return Onboarded(target, done, cells, count, elapsed_s, tuple(bench.notes))


def train_on(
    onboarded: Onboarded, training: TrainingOptions, store: str | None, on_message: OnMessage
) -> Onboarded:
    """Train on what the store knows of a target that was measured."""
    target, cells = onboarded.target, onboarded.cells
    if cells < LEAST_CELLS:
        note = (
            f"{count_text(cells, 'cell')} of at least {LEAST_CELLS} to train on: "
            "run it again with a larger budget, it goes on where it stopped"
        )
        return replace(onboarded, notes=(*onboarded.notes, note))
    on_message(f"{target}: training on {count_text(cells, 'cell')}")
    began = time.monotonic()
    trained = train_target(target, training, store=store, on_message=on_message)
    elapsed_s = onboarded.elapsed_s + time.monotonic() - began
    accepted = trained.folder is not None
    return replace(onboarded, elapsed_s=elapsed_s, trained=trained, accepted=accepted)
