"""The same device and engine at another version or precision: what is known there stands nearest.

A cell that was measured under the engine's last version, or at another precision, tells more of the
cell here than another device's does. It is believed as far as versions and precisions were found to
differ elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hybridlat.engines import registry
from hybridlat.estimate.composition import normal_quantile
from hybridlat.estimate.model_folders import model_folders, read_target, readable
from hybridlat.model.geometry import geometry
from hybridlat.model.kernel_view import View
from hybridlat.schema.device import Device
from hybridlat.schema.estimate import CellPrediction
from hybridlat.schema.target import Target

if TYPE_CHECKING:
    from hybridlat.estimate.target_data import TargetData
    from hybridlat.estimate.whole_networks import WholeLatency
    from hybridlat.store import Store

VERSION_SPREAD = {"torch": 0.15, "torch-compile": 0.15}
OTHER_VERSION_SPREAD = 0.3
"""Root mean square of ln(ratio) of two versions: PyTorch 0.04 to 0.2, TensorRT 0.28 to 0.32 from
one to the next and 0.6 over both (its grouped convolutions; whole networks on RTX 3090, 4090 and
V100: experiments/25_versions_apart.py, 2026-11-22)."""
PRECISION_SPREAD = 0.75
"""Of ln(FP16 / FP32) of single convolutions about what roofline and launch say: 0.76, TensorRT on
the V100 (the same)."""
UNKNOWN_SPREAD = 0.3
"""Of a prediction that comes without an interval."""
LAUNCH_US = {"gpu": 4.0, "cpu": 0.1}
"""Of a kernel, where the data sheet names no figure."""


@dataclass(frozen=True)
class NearTarget:
    """A target that differs from the one asked about in version or precision alone.

    ``spread`` is the standard error of ln(latency here / latency there), which all cells share.
    """

    here: Target
    data: TargetData
    spread: float

    @property
    def target(self) -> Target:
        """Where the cells are known."""
        return self.data.target

    @property
    def device(self) -> Device | None:
        """The device as the model there knows it."""
        model = self.data.trained.model
        return model.device if model is not None else None

    @property
    def difference(self) -> str:
        """What differs, in words."""
        parts = []
        if self.target.version != self.here.version:
            parts.append("version of the engine")
        if self.target.precision != self.here.precision:
            parts.append("precision")
        return f"another {' and '.join(parts)}"

    def cells(
        self,
        texts: Mapping[str, str],
        device: Device | None,
        confidence: float,
        *,
        untrusted: bool = False,
    ) -> dict[str, CellPrediction]:
        """Latencies here of those cells (signature → text) that are known there.

        Between precisions they scale as roofline and launch do; without a data sheet that is
        unknown, and only cells of the same precision answer. ``untrusted`` takes the model's word
        for cells far from its training as well.
        """
        if device is None and self.target.precision != self.here.precision:
            return {}
        hashes = list(texts)
        factor = dict(zip(hashes, self._factors(list(texts.values()), device), strict=True))
        z = normal_quantile(confidence)
        found = {}
        for hash_, stats in self.data.known(hashes).items():
            if stats.latency_us is not None:
                spread = math.hypot(self.spread, stats.spread_share)
                reason = f"measured as {self.target}: {self.difference}"
                found[hash_] = _prediction(stats.latency_us * factor[hash_], z * spread, reason)
        model = self.data.trained.model if len(found) < len(hashes) else None
        rest = [h for h in hashes if h not in found] if model is not None else []
        guesses = model.predict([texts[h] for h in rest]) if model is not None else ()
        for hash_, guess in zip(rest, guesses, strict=True):
            if guess.latency_us is None or model is None or not (guess.trusted or untrusted):
                continue
            own = _half_width(guess, model.confidence) / normal_quantile(model.confidence)
            reason = f"predicted by the model of {self.target}: {self.difference}"
            half = z * math.hypot(self.spread, own)
            made = _prediction(guess.latency_us * factor[hash_], half, reason)
            if not guess.trusted:
                made = replace(made, trusted=False, reason=f"{reason}, {guess.reason}")
            found[hash_] = made
        return found

    def whole(self, signature: str) -> WholeLatency | None:
        """A network as it was measured there: evidence here, at the same precision alone."""
        if self.target.precision != self.here.precision:
            return None
        found = self.data.own_whole(signature)
        if found is None:
            return None
        noise = math.hypot(found.noise_share, self.spread)
        basis = f"{found.basis} as {self.target}"
        return replace(found, noise_share=noise, is_exact=False, basis=basis)

    def _factors(self, texts: Sequence[str], device: Device | None) -> list[float]:
        if device is None or self.target.precision == self.here.precision:
            return [1.0] * len(texts)
        cells = geometry(texts)
        launch = device.launch_us or LAUNCH_US[device.kind]
        here, there = (
            np.bincount(cells.cell, View(cells, device, one).roofline_us + launch, cells.cells)
            for one in (self.here.precision, self.target.precision)
        )
        factors: list[float] = (here / there).tolist()
        return factors


def near_targets(target: Target, store: Store) -> tuple[NearTarget, ...]:
    """Other versions and precisions of a target's engine on its device, the surest first.

    Those that the store has records of, and those that have a model or a shipped pack. Precisions
    that share their cells anyway (see `registry.kin`) are none.
    """
    from hybridlat.estimate.target_data import TargetData
    from hybridlat.store import packs

    known = {*store.targets(), *(pack.target for pack in packs.shipped_packs())}
    models = (readable(read_target, folder) for folder in model_folders(None))
    known.update(one for one in models if one is not None)
    same = (target.device, target.engine, target.threads)
    others = [
        other
        for other in sorted(known - {target, *registry.kin(target)})
        if (other.device, other.engine, other.threads) == same
    ]
    spreads = {other: spread_between(target, other) for other in others}
    return tuple(
        NearTarget(target, TargetData(other, store), spreads[other])
        for other in sorted(others, key=spreads.__getitem__)
    )


def spread_between(here: Target, there: Target) -> float:
    """Standard error of ln(latency here / latency there) for two targets of one engine."""
    version = 0.0
    if here.version != there.version:
        version = VERSION_SPREAD.get(here.engine, OTHER_VERSION_SPREAD)
    return math.hypot(version, PRECISION_SPREAD * (here.precision != there.precision))


def _prediction(latency_us: float, half_width: float, reason: str) -> CellPrediction:
    factor = math.exp(half_width)
    return CellPrediction(latency_us, (latency_us / factor, latency_us * factor), True, reason)


def _half_width(guess: CellPrediction, confidence: float) -> float:
    if guess.interval_us is None or guess.interval_us[0] <= 0:
        return normal_quantile(confidence) * UNKNOWN_SPREAD
    low, high = guess.interval_us
    return math.log(high / low) / 2
