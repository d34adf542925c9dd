"""One model per layer type on unfused layers, added up: layer-wise prediction as it is common."""

from __future__ import annotations

from typing import ClassVar, Literal

from hybridlat.model.baselines.kernel_forest import KernelForest


class LayerwiseLearned(KernelForest):
    """Forests per operator of the *file*, trained on layers measured alone and unfused.

    Data that has no unfused layers gives it the cells: then it is what a layer-wise method would
    make of them.
    """

    name: ClassVar[str] = "layerwise_learned"
    unit: ClassVar[Literal["cell", "layer"]] = "layer"
