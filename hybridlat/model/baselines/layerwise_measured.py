"""Every operator of the file measured alone and unfused, and added up."""

from __future__ import annotations

from typing import ClassVar, Literal

from hybridlat.model.baselines.lookup_only import LookupOnly


class LayerwiseMeasured(LookupOnly):
    """The look-up on layers instead of cells; NaN for a layer that was not measured."""

    name: ClassVar[str] = "layerwise_measured"
    unit: ClassVar[Literal["cell", "layer"]] = "layer"
