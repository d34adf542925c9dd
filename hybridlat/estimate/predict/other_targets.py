"""What another target under the same engine tells of cells here: another version, another CPU.

Latencies there times a ratio (see ratios.py), which cells known on both sides tell, are those here.
A network measured whole there also tells what it takes beside its cells, which it takes here too.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hybridlat.estimate.compose.composition import MOST_EXCESS_SHARE
from hybridlat.estimate.compose.target_composition import composition_of
from hybridlat.estimate.lookup import whole_networks
from hybridlat.estimate.lookup.models import models_with_targets
from hybridlat.estimate.lookup.target_data import TargetData, per_state, version_gap
from hybridlat.estimate.lookup.whole_networks import LEAST_NOISE_SHARE, WholeLatency
from hybridlat.estimate.predict import source
from hybridlat.estimate.predict.ratios import RATIOS, Pair, RatioPrior, Ratios
from hybridlat.estimate.predict.source import CellLatency, NetworkCells, NetworkLaw, Origin
from hybridlat.schema.shown import count_text
from hybridlat.store import LatencyStats

LEAST_US = 20.0
"""Cells below that tell more of clocks than of ratios."""
MOST_PAIRS = 1000
_ALIKE_PAIRS = 10  # so many cells that agree make two machines of one name one
_ALIKE_SHARE, _MOST_NOISE_SHARE = 0.03, 0.1
"""By how much one machine differs from itself on other days, and what is too noisy to tell."""
MOST_NETWORK_PAIRS = 100


@dataclass(frozen=True, eq=False)
class OtherTarget(source.CellSource):
    """What is known ``there``, times the ratio of latencies.

    ``differs`` names the row of `ratios.RATIOS`. A ``rival`` that is surer of the network gets its
    cells. ``checks``: a cell of every large kind of kernel that was never compared is measured.
    """

    here: TargetData
    there: TargetData
    differs: Literal["version", "cpu"] = "version"
    rival: source.CellSource | None = None
    checks: bool = False
    learns = True

    @property
    def prior(self) -> RatioPrior:
        """What is believed of the ratios before a cell is known on both sides."""
        here, there = self.here.target, self.there.target
        seen = RATIOS.get((self.differs, here.engine)) or RATIOS[self.differs, ""]
        if self.differs == "cpu":
            threads = math.log((here.threads or 1) / (there.threads or 1))
            return replace(seen, common=math.hypot(seen.common, threads))
        if here == there:
            return RATIOS["machine", ""]
        seen = seen.over(version_gap(here, there))
        return seen.and_also(RATIOS["machine", ""]) if self.there.is_of_another_machine else seen

    @property
    def _ratios(self) -> tuple[Ratios, str]:
        """The ratios by all cells and whole networks that both know, and how many, in words."""

        def compare() -> tuple[Ratios, str]:
            cells, networks = (of(self.here, self.there) for of in (pairs_of, network_pairs_of))
            numbers = (len(cells), "cell"), (len(networks), "network")
            counts = " and ".join([count_text(n, name) for n, name in numbers if n])
            return Ratios(self.prior, [*cells, *networks]), counts and f", {counts} compared"

        return self.here.at_this_state(("ratios", self.there.target), compare)

    @property
    def origin(self) -> Origin:
        there, (_, compared) = self.there.target, self._ratios
        if self.differs == "version":
            few = "Few" if compared else "No"
            what = "of this machine" if there == self.here.target else "for this version"
            whose = ", as another machine measured it" if self.there.is_of_another_machine else ""
            text = f"{few} data {what}, taken from {there}{whose}{compared}."
            return Origin("other-version", text)
        how = compared or ": how the two compare is a guess"
        return Origin("other-device", f"Learned from another CPU, {there.device}{how}.")

    def predict(self, cells: NetworkCells, positions: Sequence[int]) -> list[CellLatency | None]:
        rival = None if self.rival is None else self.rival.law(cells)
        if rival is not None and self.prior.spread >= rival.spread_share:
            return [None] * len(positions)
        return [self._law(cells).known[i] for i in positions]

    def law(self, cells: NetworkCells) -> NetworkLaw | None:
        return self._law(cells) if self.rival is None else self.rival.law(cells)

    def whole(self, cells: NetworkCells) -> WholeLatency | None:
        """The network as it was measured there, as evidence here."""
        whole = self._whole(cells)
        if whole is None:
            return None
        noise = math.hypot(whole.noise_share, self.prior.spread)
        basis = f"{whole.basis}, {self.there.target}"
        return replace(whole, noise_share=noise, is_exact=False, basis=basis)

    def _whole(self, cells: NetworkCells) -> WholeLatency | None:
        tells = self.differs == "version" and self.there.networks
        return self.there.whole(cells.read_hash()) if tells else None

    def _law(self, cells: NetworkCells) -> NetworkLaw:
        return cells.law_of(self.there, self._network)

    def _network(self, cells: NetworkCells) -> NetworkLaw:
        texts = dict(zip(cells.signatures, cells.texts, strict=True))
        there = latencies_of(self.there, texts)
        rest = [i for i, signature in enumerate(texts) if signature not in there]
        nearest = other_cpu(self.there) if rest and self.differs == "version" else None
        if nearest is not None:  # a last resort
            guesses = zip(rest, nearest.predict(cells, rest), strict=True)
            there |= {cells.signatures[i]: replace(g, trusted=False) for i, g in guesses if g}
        answers = {i: there[h] for i, h in enumerate(texts) if h in there}
        posterior = composition_of(self.there).start(source.priors_of(cells, answers))
        composition, composed = (
            composition_of(d).for_cells(posterior) for d in (self.there, self.here)
        )
        whole = self._whole(cells) if posterior.complete else None
        if whole is not None:
            posterior = composition.after_whole(posterior, whole.latency_us, whole.noise_share)
            missed = math.log(whole.latency_us / composition.latency_us(posterior.sum_us))
            noise = math.hypot(whole.noise_share, self.prior.network)
            if abs(missed) < math.log1p(MOST_EXCESS_SHARE):  # else one of the two was disturbed
                composed = composed.after_residual(missed, noise)
        kinds, (ratios, _) = [source.kinds_of(text) for text in cells.texts], self._ratios
        unchecked = ratios.unchecked(kinds, posterior.uses_us.tolist()) if self.checks else ()
        means, covariance = ratios.of(kinds)
        covariance = covariance + posterior.covariance
        here_us = (posterior.latencies_us * np.exp(means)).tolist()
        spreads = np.sqrt(covariance.diagonal()).tolist()
        known: list[CellLatency | None] = [None] * len(texts)
        for i, answer in answers.items():
            known[i] = self._stated(answer, here_us[i], spreads[i], i in unchecked)
        terms = composed, covariance, known, whole is not None
        return NetworkLaw(here_us, composed.overhead_us, max(spreads), *terms)

    def _stated(self, there: CellLatency, us: float, spread: float, unchecked: bool) -> CellLatency:
        kind = "another version of the engine" if self.differs == "version" else "another device"
        kind = "another machine" if self.here.target == self.there.target else kind
        how = "measured as" if there.source == "measured" else "predicted as"
        doubt = "" if there.trusted else f", {there.reason}"
        doubt = ", and no kernel of its kind was compared yet" if unchecked else doubt
        reason = f"{how} {self.there.target}: {kind}{self._ratios[1]}{doubt}"
        return CellLatency(us, spread, reason, there.trusted and not unchecked)


def of_record(stats: LatencyStats) -> CellLatency:
    """What is on record of a cell: a failure is an answer too."""
    if stats.latency_us is None:
        reason = stats.failure or "it could not be measured"
        return CellLatency(None, 1.0, reason, False, "unsupported")
    return CellLatency(stats.latency_us, stats.spread_share, source="measured")


def latencies_of(data: TargetData, texts: Mapping[str, str]) -> dict[str, CellLatency]:
    """What a target knows of cells: its records, for the rest its model, whatever the distance."""
    records = data.known(texts).items()
    known = {h: of_record(stats) for h, stats in records if stats.latency_us is not None}
    rest = [h for h in texts if h not in known]
    model = data.model if rest else None
    if model is not None:
        guesses = zip(rest, model.predict([texts[h] for h in rest]), strict=True)
        level = model.confidence
        known |= {h: source.stated(g, level) for h, g in guesses if g.latency_us is not None}
    return known


def pairs_of(here: TargetData, there: TargetData) -> list[Pair]:
    """Cells in the store that were measured here and are known there, the largest first."""
    targets = (here.target, *here.related)
    hashes = {h for target in targets for h in here.store.signatures(target, "cell")}
    measured = {
        h: (stats.latency_us, stats.spread_share)
        for h, stats in here.known(hashes).items()
        if stats.latency_us is not None and stats.latency_us >= LEAST_US
    }
    recorded = there.known(measured)
    order = sorted(measured, key=lambda h: (h not in recorded, -measured[h][0], h))[:MOST_PAIRS]
    texts = here.store.signature_texts(order)
    known, pairs = latencies_of(there, texts), []
    for h in order:
        if (other := known.get(h)) is not None and other.latency_us is not None:
            us, spread = measured[h]
            noise = math.hypot(spread, other.spread_share, LEAST_NOISE_SHARE)
            pairs.append(Pair(source.kinds_of(texts[h]), math.log(us / other.latency_us), noise))
    return pairs


@per_state
def is_alike(here: TargetData) -> bool:
    """Whether enough cells measured here agree with what is known of this target elsewhere."""
    pairs = [] if here.elsewhere is None else pairs_of(here, here.elsewhere)
    sound = [
        (r, math.hypot(noise, _ALIKE_SHARE)) for _, r, noise in pairs if noise < _MOST_NOISE_SHARE
    ]
    return len(sound) >= _ALIKE_PAIRS and math.fsum((r / s) ** 2 for r, s in sound) <= len(sound)


def network_pairs_of(here: TargetData, there: TargetData) -> list[Pair]:
    """Networks in the store that were measured whole here, against what is known of them there."""
    networks = whole_networks.measured_networks(here.store, here.target, MOST_NETWORK_PAIRS)
    texts = {h: text for one in networks for h, text in zip(one.cells, one.texts, strict=True)}
    known = {h: cell for h, cell in latencies_of(there, texts).items() if cell.latency_us}
    pairs, composition = [], composition_of(there)
    for network in networks:
        if not known.keys() >= set(network.cells):
            continue
        cells = NetworkCells(network.cells, network.texts, network.counts, float)
        posterior = composition.start(
            source.priors_of(cells, {i: known[h] for i, h in enumerate(network.cells)})
        )
        own, sum_us, shares = composition.for_cells(posterior), posterior.sum_us, Counter[str]()
        for text, us in zip(network.texts, posterior.uses_us.tolist(), strict=True):
            shares.update({kind: share * us / sum_us for kind, share in source.kinds_of(text)})
        ratio = network.latency_us / own.latency_us(sum_us)
        _, variance = own.variances(posterior.variance_share, sum_us)
        noise = math.hypot(math.sqrt(variance), LEAST_NOISE_SHARE)
        pairs.append(Pair(tuple(sorted(shares.items())), math.log(ratio), noise))
    return pairs


def versions_of(data: TargetData, checks: bool = False) -> list[OtherTarget]:
    """The other versions of a target's engine on its device, the nearest first."""
    return [OtherTarget(data, there, checks=checks) for there in data.other_versions]


@per_state
def other_cpu(data: TargetData) -> OtherTarget | None:
    """The model of another CPU, with the engine and cells of the target; None without one.

    GPUs differ by more than a factor could tell: they have families. Of several models the one
    whose precision and threads agree, then the user's own, then the first by name.
    """
    target, known = data.target, [target for _, target in models_with_targets()]
    others = [o for o in known if o.device != target.device and o.engine == target.engine]
    others = [o for o in others if o.precision in data.precisions]
    others.sort(key=lambda o: (o.precision != target.precision, o.threads != target.threads))
    for other in others:
        there = data.neighbour(other)
        if there.model is not None and there.model.device.kind == "cpu":
            return OtherTarget(data, there, "cpu")
    return None
