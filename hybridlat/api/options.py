"""How a predictor estimates, as the front door takes it and as sessions hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from hybridlat.engines.device_sheets import read
from hybridlat.errors import InputError
from hybridlat.schema.device import Device
from hybridlat.schema.progress import OnProgress

if TYPE_CHECKING:
    from hybridlat.measuring.schedule import MeasurementConfig
    from hybridlat.onnx_io import Shapes

MeasureMode = Literal["auto", "never", "always"]
"""Whether a call measures; see ``predict``."""
DEFAULT_TOLERANCE = 0.05


@dataclass(frozen=True)
class Options:
    """How a predictor estimates, whatever the target; InputError for what makes no sense."""

    tolerance: float | None = None
    confidence: float = 0.9
    measure: MeasureMode = "auto"
    device: Device | None = None
    settings: MeasurementConfig | None = None
    progress: OnProgress | None = None
    runtime: str = ""  # the target's as the user wrote it
    models: tuple[Path, ...] | None = None  # folders of the model, where nothing installed counts

    def __post_init__(self) -> None:
        for name, example in (("tolerance", "0.05 for 5 %"), ("confidence", "0.9 for 90 %")):
            share = getattr(self, name)
            # Beyond the digits of a float, the quantile of a confidence is none.
            if share is not None and not (
                isinstance(share, Real) and 0.5 < (1 + float(share)) / 2 < 1
            ):
                raise InputError(f"{name}={share!r} is no share between 0 and 1: write {example}")
        if self.measure not in ("auto", "never", "always"):
            raise InputError(f"measure={self.measure!r}: choose auto, never or always")

    @property
    def aim(self) -> float:
        """What the gate works towards: the tolerance, 5 % where none is given."""
        return DEFAULT_TOLERANCE if self.tolerance is None else self.tolerance


class PredictorOptions(TypedDict, total=False):
    """The keywords of ``Predictor``, of which ``hybridlat.predict`` says what each is."""

    store: str | None
    threads: int | None
    measure: MeasureMode
    tolerance: float | None
    confidence: float
    progress: OnProgress | None
    settings: MeasurementConfig | None
    device: str | Path | Device | None
    known: Mapping[Any, float] | None


class NetworkOptions(TypedDict, total=False):
    """Those of one network."""

    shapes: Shapes | None
    name: str | None
    describe: bool


class PredictOptions(PredictorOptions, NetworkOptions, total=False):
    """The keywords of ``hybridlat.predict``."""


def sheet_of(device: str | Path | Device | None, target: object) -> Device | None:
    """The data sheet that stands for the target's device."""
    if device is not None and target is None:
        raise InputError(
            "device is the data sheet of the target's device: give a target as well, as in "
            "target='l4/tensorrt/fp16'"
        )
    return read(device) if isinstance(device, str | Path) else device
