"""One file per baseline; see base.Baseline for the contract.

Another package offers a baseline of its own, a class, under the entry point group
``hybridlat.baselines``.
"""

from __future__ import annotations

from typing import cast

from hybridlat.errors import InputError
from hybridlat.model.baselines.base import Baseline, TrainingRow
from hybridlat.schema.plugins import Plugins

__all__ = ["Baseline", "TrainingRow", "load", "names"]


BASELINES = Plugins(
    "hybridlat.baselines",
    {
        "flops_linear": f"{__name__}.flops_linear:FlopsLinear",
        "kernel_forest": f"{__name__}.kernel_forest:KernelForest",
        "layerwise_learned": f"{__name__}.layerwise_learned:LayerwiseLearned",
        "layerwise_measured": f"{__name__}.layerwise_measured:LayerwiseMeasured",
        "lookup_only": f"{__name__}.lookup_only:LookupOnly",
        "model_only": f"{__name__}.model_only:ModelOnly",
        "roofline": f"{__name__}.roofline:Roofline",
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
