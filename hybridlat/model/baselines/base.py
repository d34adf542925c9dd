"""The contract of a baseline: what hybridlat is judged against, on the same rows."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from hybridlat.schema.device import Device

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One measured thing to learn from: its signature text, latency and the network it is from."""

    text: str
    latency_us: float
    group: str = ""


class Baseline(abc.ABC):
    """A method that predicts latencies of signature texts after seeing rows.

    ``unit`` says which texts it is given, at fit and at predict: the ``cell``s of the lowered
    network, or the unfused ``layer``s of the file; a network's latency is the sum over its texts.
    ``learns`` is False for a pure look-up, which answers NaN to what it has not seen.
    """

    name: ClassVar[str]
    unit: ClassVar[Literal["cell", "layer"]] = "cell"
    learns: ClassVar[bool] = True

    def __init__(self, device: Device, precision: str, seed: int = 0) -> None:
        self.device = device
        self.precision = precision
        self.seed = seed

    @abc.abstractmethod
    def fit(self, rows: Sequence[TrainingRow]) -> None:
        """Learn from ``rows``; calling it again forgets the rows before."""

    @abc.abstractmethod
    def predict(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Latency in microseconds of each text, NaN where the baseline has no answer."""
