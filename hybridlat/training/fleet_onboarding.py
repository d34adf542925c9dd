"""All targets of a fleet made known at once, each by all of its devices."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hybridlat.errors import HybridlatError
from hybridlat.measuring.fleet import Fleet, FleetMeasurer
from hybridlat.measuring.fleet.unit import FarBackend
from hybridlat.schema.progress import OnMessage, silent
from hybridlat.schema.target import Target
from hybridlat.training.onboarding import (
    Collected,
    Onboarded,
    OnboardingOptions,
    collect,
    train_on,
)
from hybridlat.training.train import TrainingOptions


@dataclass(frozen=True)
class FleetLesson:
    """What came of one target: the onboarding, or why there is none."""

    target: Target
    onboarded: Onboarded | None
    problem: HybridlatError | None = None


def onboard_fleet(
    fleet: Fleet,
    budget_s: float,
    options: TrainingOptions,
    *,
    store: str | None = None,
    nets: Path | None = None,
    on_message: OnMessage = silent,
) -> list[FleetLesson]:
    """Measure on all targets of the fleet for about ``budget_s`` seconds each, at once, then train.

    Training waits until nothing is measured any more: this machine may be one of the devices. What
    goes wrong with one target costs that target alone.
    """
    import joblib

    def measured(target: Target) -> Collected | HybridlatError:
        try:
            return collect(
                FarBackend(target, fleet.lower), FleetMeasurer(fleet, target), chosen,
                on_message=on_message,
            )  # fmt: skip
        except HybridlatError as error:
            return error

    chosen = OnboardingOptions(budget_s, store, nets, options.device, options.seed)
    targets = fleet.file.targets
    # Threads that wait: the devices do the work.
    found: list[Collected | HybridlatError] = joblib.Parallel(
        n_jobs=len(targets), backend="threading"
    )(joblib.delayed(measured)(target) for target in targets)
    return [
        _trained(target, collected, options, store, on_message)
        for target, collected in zip(targets, found, strict=True)
    ]


def _trained(
    target: Target,
    collected: Collected | HybridlatError,
    options: TrainingOptions,
    store: str | None,
    on_message: OnMessage,
) -> FleetLesson:
    if isinstance(collected, HybridlatError):
        return FleetLesson(target, None, collected)
    try:
        return FleetLesson(target, train_on(collected, options, store, on_message))
    except HybridlatError as error:
        return FleetLesson(target, None, error)
