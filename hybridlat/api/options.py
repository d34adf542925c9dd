"""How a predictor estimates: the keywords of the front door, and what sessions hold of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from hybridlat.engines.device_sheets import read
from hybridlat.errors import InputError
from hybridlat.schema.shown import number_of
from hybridlat.schema.target import Device
from hybridlat.schema.workers import OnProgress

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
        shares = {"confidence": (self.confidence, "0.9 for 90 %")}
        if self.tolerance is not None:
            shares["tolerance"] = (self.tolerance, "0.05 for 5 %")
        for name, (share, example) in shares.items():
            # Beyond the digits of a float, the quantile of a confidence is none.
            if not 0.5 < (1 + number_of(share)) / 2 < 1:
                raise InputError(f"{name}={share!r} is no share between 0 and 1: write {example}")
            object.__setattr__(self, name, number_of(share))  # JSON takes no other kind
        if self.measure not in ("auto", "never", "always"):
            raise InputError(f"measure={self.measure!r}: choose auto, never or always")
        if not (self.progress is None or callable(self.progress)):
            raise InputError(f"progress={self.progress!r} cannot be called: give a function")
        if self.settings is not None:
            from hybridlat.measuring.schedule import MeasurementConfig  # few calls measure

            if not isinstance(self.settings, MeasurementConfig):
                raise InputError(f"settings={self.settings!r}: give a hybridlat.MeasurementConfig")

    @property
    def aim(self) -> float:
        """What the gate works towards: the tolerance, 5 % where none is given."""
        return DEFAULT_TOLERANCE if self.tolerance is None else self.tolerance


class Sizes(TypedDict, total=False):
    """The sizes that a network is predicted at; see ``hybridlat.predict``."""

    batch: int | None
    shapes: Shapes | None


class ManyOptions(Sizes, total=False):
    """The keywords of ``Predictor.predict_many``, but for ``errors``."""

    describe: bool
    jobs: int | None
    dedupe: bool


class OneBatch(Sizes, total=False):
    """The keywords of ``Predictor.predict`` for an estimate."""

    name: str | None
    describe: bool


class Batches(TypedDict, total=False):
    """The keywords of ``Predictor.predict`` for a list of estimates."""

    batch: Required[Sequence[int]]
    shapes: Shapes | None
    name: str | None
    describe: bool


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


class PredictOptions(PredictorOptions, OneBatch, total=False):
    """The keywords of ``hybridlat.predict`` for an estimate."""


class PredictBatches(PredictorOptions, Batches, total=False):
    """The keywords of ``hybridlat.predict`` for a list of estimates."""


class SizedOptions(PredictorOptions, Sizes, total=False):
    """The keywords of ``hybridlat.compare`` and ``measure``."""


def sheet_of(device: object, target: object) -> Device | None:
    """The data sheet that stands for the target's device."""
    if device is not None and target is None:
        raise InputError(
            "device is the data sheet of the target's device: give a target as well, as in "
            "target='l4/tensorrt/fp16'"
        )
    if not (device is None or isinstance(device, str | os.PathLike | Device)):
        raise InputError(f"device={device!r}: give a hybridlat.Device or the path of a data sheet")
    return read(os.fspath(device)) if isinstance(device, str | os.PathLike) else device
