"""What to measure next on a new machine: portions of networks and kernels, as they are drawn.

Chance decides what is drawn. Choosing what a stand-in of the model doubts most, for what it costs,
was tried: the same minutes gave a model 1 to 2 points worse (experiments/onboarding.md).

Values and pure functions: the same that ``onboard`` follows are played on recorded machines by
``experiments/17_onboarding_curve.py``. Everything is measured once: noise of some percent is little
beside what a young model does not know, and it is a weight in the fit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hybridlat.measuring.statistics import SINGLE_VISIT_SPREAD
from hybridlat.model.doubt import CellPoints, Doubt, KernelSpace

NETWORK_SHARE = 0.4
"""Part of the measuring time that goes to whole networks with their cells, while there are some."""
LEAST_PORTION_S, MOST_PORTION_S = 15.0, 60.0
PORTIONS = 10
"""How many portions a budget falls into, within those limits: the doubt is new after each."""
_FEW_CELLS = 20
_OVER = 1.5  # how far networks may go over their share of a portion


@dataclass(frozen=True)
class Outline:
    """A network that may be measured: its cells by signature hash, and what its own visits cost."""

    name: str
    cells: tuple[str, ...]
    whole_s: float


@dataclass(frozen=True)
class Portion:
    """What is measured in one go.

    ``expected_s`` is what it is expected to take, ``networks_s`` its networks alone.
    """

    networks: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    expected_s: float = 0.0
    networks_s: float = 0.0

    @property
    def is_empty(self) -> bool:
        return not self.networks and not self.kernels


@dataclass
class Ground:
    """All cells heard of, as points."""

    space: KernelSpace
    row: dict[str, int] = field(default_factory=dict)
    points: CellPoints | None = None

    def learn_of(self, texts: Mapping[str, str]) -> None:
        """Place cells (hash → signature text) that were not heard of before."""
        new = {h: text for h, text in texts.items() if h not in self.row}
        if not new:
            return
        placed = self.space.place(list(new.values()))
        before, start = self.points, len(self.row)
        self.row.update((h, start + i) for i, h in enumerate(new))
        self.points = placed if before is None else CellPoints(
            np.concatenate([before.vectors, placed.vectors]),
            np.concatenate([before.fresh, placed.fresh]),
        )  # fmt: skip

    def of(self, hashes: Collection[str]) -> CellPoints:
        if self.points is None:
            raise ValueError("no cell was heard of")
        return self.points.take([self.row[h] for h in hashes])


@dataclass(frozen=True)
class Curriculum:
    """Takes portions of networks and kernels in the order given.

    ``costs_s`` is what measuring a cell once is expected to take, by hash; networks that take more
    than ``dearest_s`` are left out.
    """

    ground: Ground
    networks: Sequence[Outline]
    costs_s: Mapping[str, float]
    dearest_s: float = math.inf

    def portion(
        self,
        known: Mapping[str, float],
        done: Collection[str],
        kernels: Sequence[str],
        spent_s: tuple[float, float],
        portion_s: float,
    ) -> Portion:
        """The next ``portion_s`` seconds.

        ``known`` are measured cells with their noise shares, ``done`` the networks measured,
        ``kernels`` the cells of the sweep to choose from, ``spent_s`` what networks and kernels
        have taken so far.
        """
        of_networks, of_all = spent_s[0], sum(spent_s)
        allowed = NETWORK_SHARE * (of_all + portion_s) - of_networks if kernels else portion_s
        allowed = min(allowed, portion_s)
        now = dict(known)
        networks: list[str] = []
        spent = 0.0
        for network in self.networks:
            cost = self.cost_s(network, now)
            if spent >= allowed:
                break
            if network.name in done or cost > self.dearest_s:
                continue
            if networks and spent + cost > _OVER * allowed:
                continue
            networks.append(network.name)
            spent += cost
            now.update(dict.fromkeys(network.cells, SINGLE_VISIT_SPREAD))
        networks_s = spent
        chosen: list[str] = []
        for h in kernels:
            if h in now or spent + self.costs_s[h] > portion_s:
                continue
            chosen.append(h)
            spent += self.costs_s[h]
        return Portion(tuple(networks), tuple(chosen), spent, networks_s)

    def cost_s(self, network: Outline, known: Collection[str]) -> float:
        """What measuring a network and those of its cells takes that are not known."""
        return network.whole_s + sum(self.costs_s[h] for h in network.cells if h not in known)

    def expected_share(self, known: Mapping[str, float], kernels: Sequence[str] = ()) -> float:
        """Standard error (share) that the process expects of a typical cell that is not known.

        Of the networks' cells, and of ``kernels`` where hardly any of those is left.
        """
        cells = sorted({h for n in self.networks for h in n.cells if h not in known})
        if len(cells) < _FEW_CELLS:
            cells += [h for h in kernels if h not in known]
        if not cells:
            return 0.0
        doubt = Doubt.after(self.ground.of(known), np.array(list(known.values())))
        return float(np.sqrt(np.mean(doubt.spread_shares(self.ground.of(cells)) ** 2)))


def portion_s(budget_s: float) -> float:
    """How long a portion of a budget is."""
    return min(max(budget_s / PORTIONS, LEAST_PORTION_S), MOST_PORTION_S)
