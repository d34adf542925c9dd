"""Baselines, each a class that keeps the contract of ``base.Baseline``.

Another package offers a baseline of its own, a class, under the entry point group
``hybridlat.baselines``.
"""

from __future__ import annotations

from typing import cast

from hybridlat.errors import InputError
from hybridlat.model.baselines.base import Baseline, Problem, Sums, Unit
from hybridlat.schema.plugins import Plugins

__all__ = ["PARTS_OF_HYBRIDLAT", "Baseline", "Problem", "Sums", "Unit", "load", "names"]

PARTS_OF_HYBRIDLAT = ("lookup_only", "model_only")
"""Baselines that show what one part of hybridlat does alone; the others know nothing of it."""
BASELINES = Plugins(
    "hybridlat.baselines",
    {
        "flops_linear": f"{__name__}.regressions:FlopsLinear",
        "kernel_forest": f"{__name__}.regressions:KernelForest",
        "layerwise_learned": f"{__name__}.regressions:LayerwiseLearned",
        "layerwise_measured": f"{__name__}.known:LayerwiseMeasured",
        "lookup_only": f"{__name__}.known:LookupOnly",
        "model_only": f"{__name__}.known:ModelOnly",
        "per_kind_linear": f"{__name__}.regressions:PerKindLinear",
        "roofline": f"{__name__}.regressions:Roofline",
        "wave_model": f"{__name__}.wave_model:WaveModel",
    },
)


def names() -> tuple[str, ...]:
    """The baselines there are, in alphabetical order."""
    return BASELINES.names()


def load(name: str) -> type[Baseline]:
    """The baseline class of that name; InputError names the choices."""
    try:
        return cast(type[Baseline], BASELINES.load(name))
    except KeyError:
        choices = BASELINES.choices()
        raise InputError(f"{name!r} is not a baseline: choose one of {choices}") from None
