"""The same device and engine at another version or precision.

A cell that was measured under the engine's last version, or at another precision, tells more of the
cell here than another device's does. It is believed as far as versions and precisions were found to
differ elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hybridlat.engines import registry
from hybridlat.estimate.compose.target_composition import composition_of
from hybridlat.estimate.lookup.models import model_folders, read_target, readable
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.lookup.whole_networks import WholeLatency
from hybridlat.estimate.partition.partition import Partition
from hybridlat.estimate.predict.roofline import roofline_us
from hybridlat.estimate.predict.source import (
    CellLatency,
    CellSource,
    NetworkCells,
    NetworkLaw,
    stated,
)
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target
from hybridlat.store import packs

VERSION_SPREAD = {"torch": 0.15, "torch-compile": 0.15}
OTHER_VERSION_SPREAD = 0.3
"""Root mean square of ln(ratio) of two versions: PyTorch 0.04 to 0.2, TensorRT 0.28 to 0.32 from
one to the next and 0.6 over both (its grouped convolutions; whole networks on RTX 3090, 4090 and
V100: experiments/25_versions_apart.py, 2026-11-22)."""
PRECISION_SPREAD = 0.75
"""Of ln(FP16 / FP32) of single convolutions about what roofline and launch say: 0.76, TensorRT on
the V100 (the same)."""


@dataclass(frozen=True, eq=False)
class OtherVersion:
    """A target that differs from ``here`` in version or precision alone, and what is known of it.

    ``spread`` is the standard error of ln(latency here / latency there), which all cells share.
    ``device`` None is one without a data sheet. Where a ``rival`` is surer of the network, this one
    leaves the cells to it. ``untrusted`` takes the model's word far from its training as well.
    """

    here: Target
    data: TargetData
    spread: float
    device: Device | None = None
    rival: CellSource | None = None
    untrusted: bool = False

    @property
    def target(self) -> Target:
        """Where the cells are known."""
        return self.data.target

    @property
    def device_there(self) -> Device | None:
        """The device as the model there knows it."""
        model = self.data.models.model
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

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        """See ``CellSource``: the records there, and for the rest the model there.

        Between precisions they scale as the roofline does; without a data sheet only targets of
        the same precision answer.
        """
        scales = self.device is not None or self.target.precision == self.here.precision
        law = None if self.rival is None else self.rival.law(cells)
        if not scales or (law is not None and self.spread >= law.spread_share):
            return [None] * len(positions)
        latencies = self._there(cells, positions)
        answered = [i for i, latency in zip(positions, latencies, strict=True) if latency]
        factors = iter(self._factors(cells.texts_at(answered)))
        return [latency and self._here(latency, next(factors)) for latency in latencies]

    def law(self, cells: NetworkCells) -> NetworkLaw | None:
        """See ``CellSource``: the rival's, else what a run costs there beside its cells."""
        if self.rival is not None:
            return self.rival.law(cells)
        return NetworkLaw(
            [0.0] * len(cells.signatures), composition_of(self.data).overhead_us, self.spread
        )

    def whole(self, signature: str) -> WholeLatency | None:
        """A network as it was measured there: evidence here, at the same precision alone."""
        if self.target.precision != self.here.precision:
            return None
        latency = self.data.whole(signature)
        if latency is None:
            return None
        noise = math.hypot(latency.noise_share, self.spread)
        basis = f"{latency.basis} as {self.target}"
        return replace(latency, noise_share=noise, is_exact=False, basis=basis)

    def _there(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        """The latencies as they are known there, with the reasons that they have here."""
        signatures = [cells.signatures[i] for i in positions]
        records = self.data.known(signatures)
        latencies: dict[str, CellLatency] = {}
        for signature, stats in records.items():
            if stats.latency_us is not None:
                reason = f"measured as {self.target}: {self.difference}"
                latencies[signature] = CellLatency(stats.latency_us, stats.spread_share, reason)
        rest = [i for i in positions if cells.signatures[i] not in latencies]
        model = self.data.models.model if rest else None
        guesses = model.predict(cells.texts_at(rest)) if model is not None else ()
        for i, guess in zip(rest, guesses, strict=False):
            if model is None or guess.latency_us is None:
                continue
            if guess.trusted or self.untrusted:
                reason = f"predicted by the model of {self.target}: {self.difference}"
                reason = ", ".join([reason, *([] if guess.trusted else [guess.reason])])
                own = replace(stated(guess, model.confidence), reason=reason)
                latencies[cells.signatures[i]] = own
        return [latencies.get(signature) for signature in signatures]

    def _here(self, there: CellLatency, factor: float) -> CellLatency:
        spread = math.hypot(self.spread, there.spread_share)
        return replace(there, latency_us=(there.latency_us or 0.0) * factor, spread_share=spread)

    def _factors(self, texts: Sequence[str]) -> list[float]:
        """Latency here / latency there of each cell."""
        if self.device is None or self.target.precision == self.here.precision or not texts:
            return [1.0] * len(texts)
        here, there = (
            roofline_us(texts, self.device, target.precision) for target in (self.here, self.target)
        )
        factors: list[float] = (here / there).tolist()
        return factors


def versions_of(data: TargetData) -> tuple[OtherVersion, ...]:
    """Other versions and precisions of a target's engine on its device, the surest first.

    Those that the store has records of, and those that have a model or a shipped pack. Precisions
    that share their cells anyway (see `registry.same_cell_targets`) are none.
    """
    return data.at_this_state("other versions", lambda: _versions_of(data))


def _versions_of(data: TargetData) -> tuple[OtherVersion, ...]:
    target = data.target
    known = {*data.store.targets(), *(pack.target for pack in packs.shipped_packs())}
    models = (readable(read_target, folder) for folder in model_folders(None))
    known.update(one for one in models if one is not None)
    same = (target.device, target.engine, target.threads)
    others = [
        other
        for other in sorted(known - {target, *registry.same_cell_targets(target)})
        if (other.device, other.engine, other.threads) == same
    ]
    spreads = {other: spread_between(target, other) for other in others}
    return tuple(
        OtherVersion(target, data.neighbour(other), spreads[other])
        for other in sorted(others, key=spreads.__getitem__)
    )


def whole_network(data: TargetData, partition: Partition) -> WholeLatency | None:
    """What is recorded of a network as a whole, here or on another version; None without any.

    The network is not signed where no record can be of it.
    """
    own = data.whole(partition.whole) if data.may_be_measured(partition) else None
    if own is not None:
        return own
    latencies = (version.whole(partition.whole) for version in versions_of(data))
    return next((one for one in latencies if one is not None), None)


def spread_between(here: Target, there: Target) -> float:
    """Standard error of ln(latency here / latency there) for two targets of one engine."""
    version = 0.0
    if here.version != there.version:
        version = VERSION_SPREAD.get(here.engine, OTHER_VERSION_SPREAD)
    return math.hypot(version, PRECISION_SPREAD * (here.precision != there.precision))
