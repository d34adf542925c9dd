"""Measure networks by a plan: write it, run it here or far away, take its results into the store.

A plan lies in the user's cache folder while it runs, named by what it asks for, so that a call
that was cut off goes on where it stopped; it is gone once the store has all of it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat.errors import HybridlatError, MeasurementError
from hybridlat.graph.network import Network
from hybridlat.measuring import plans
from hybridlat.measuring.isolated import Progress
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

Run = Callable[[Path], None]
"""Measures the plan in a folder: ``results*.jsonl`` lie in it afterwards."""


@dataclass(frozen=True)
class Imported:
    """What came of a plan: its records, how many the store did not have, and for which targets."""

    records: tuple[Measurement, ...] = ()
    new: int = 0
    targets: tuple[Target, ...] = field(default=())


def take_in(folder: Path, store: Store, board_id: str | None = None) -> Imported:
    """Check the results in a plan's folder and add them to ``store``; StoreError, see plan."""
    signatures, measurements = plans.read_results(folder, board_id=board_id)
    store.add_signatures(signatures)
    new = store.add(measurements)
    store.add_breakdowns(plans.read_breakdowns(folder))
    targets = sorted({record.target for record in measurements}, key=str)
    return Imported(tuple(measurements), new, tuple(targets))


def measure_networks(
    networks: Sequence[tuple[str, Network]],
    target: Target,
    store: Store,
    run: Run,
    *,
    lower: plans.Lower | None = None,
    wanted: Callable[[str], bool] = lambda _: True,
    whole: bool = True,
    cells: bool = True,
    rounds: int = 3,
) -> Imported:
    """Measure ``networks`` and those of their cells that are ``wanted``, by ``run``.

    What was measured before ``run`` raised is kept all the same. Nothing that is wanted gives an
    empty result. Raises what ``run`` raises, and StoreError for results that make no sense.
    """
    draft = plans.draft_for(
        networks, target, lower=lower, wanted=wanted, whole=whole, cells=cells, rounds=rounds
    )
    if not draft.has_tasks:
        return Imported()
    folder = plans_folder() / f"{target.folder}-{draft.manifest()['plan']}"
    draft.write(folder)
    try:
        run(folder)
    except HybridlatError:
        if any(folder.glob("results*.jsonl")):
            take_in(folder, store)
        raise
    found = take_in(folder, store)
    shutil.rmtree(folder)
    return found


def plans_folder() -> Path:
    """Where plans lie while they are measured."""
    import platformdirs

    folder = platformdirs.user_cache_path("hybridlat", appauthor=False) / "plans"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_here(
    run_plan: Callable[[Path, Callable[[int, int, str], None]], None],
    progress: Callable[[Progress], None] | None,
) -> Run:
    """``run_plan`` of a backend as something that measures a folder, with the time left told."""

    def run(folder: Path) -> None:
        began = time.monotonic()

        def tell(done: int, total: int, label: str) -> None:
            if progress is not None:
                left = (time.monotonic() - began) / done * (total - done)
                progress(Progress(done, total, label, left))

        run_plan(folder, tell)
        if not any(folder.glob("results*.jsonl")):
            raise MeasurementError(f"nothing came of the plan in {folder}")

    return run
