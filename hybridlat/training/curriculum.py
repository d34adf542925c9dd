"""What to measure next on a new machine: portions of networks and kernels, by the model's doubt.

Values and pure functions: the same that ``onboard`` follows are played on recorded machines by
``experiments/17_onboarding_curve.py``. Everything is measured once: noise of some percent is little
beside what a young model does not know, and it is a weight in the fit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hybridlat.evaluation.splits import FOLDS, fold_of
from hybridlat.measuring.statistics import SINGLE_VISIT_SPREAD
from hybridlat.model.doubt import CellPoints, Doubt, KernelSpace, second_moment
from hybridlat.model.gaussian_process import Array

NETWORK_SHARE = 0.4
"""Part of the measuring time that goes to whole networks with their cells, while there are some."""
LEAST_PORTION_S, MOST_PORTION_S = 15.0, 60.0
PORTIONS = 10
"""How many portions a budget falls into, within those limits: the doubt is new after each."""
_TYPICAL_SHARE = 0.5
_FEW_CELLS = 20
_OVER = 1.5  # how far networks may go over their share of a portion


@dataclass(frozen=True)
class Outline:
    """A network that may be measured: its cells by signature hash, and what its own visits cost.

    ``shares`` are the cells' parts of its latency, equal where none are given.
    """

    name: str
    cells: tuple[str, ...]
    whole_s: float
    shares: tuple[float, ...] = ()

    @property
    def is_judge(self) -> bool:
        """Whether training holds this network out: it teaches the model nothing, and judges it."""
        return fold_of(self.name) == 0


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
    """All cells heard of, as points; ``wanted`` weighs those that real networks consist of."""

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
    """Chooses portions.

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
        wanted = self._wanted()
        doubt = Doubt.after(self.ground.of(known), np.array(list(known.values())))
        of_networks, of_all = spent_s[0], sum(spent_s)
        allowed = NETWORK_SHARE * (of_all + portion_s) - of_networks if kernels else portion_s
        allowed = min(allowed, portion_s)
        left = [
            n
            for n in self.networks
            if n.name not in done and self.cost_s(n, known) <= self.dearest_s
        ]
        taken: list[Outline] = []
        spent = 0.0
        now = dict(known)
        while left and spent < allowed:
            best = self._best_network(left, now, doubt, wanted, len(done) + len(taken))
            cost = self.cost_s(best, now)
            left.remove(best)
            if taken and spent + cost > _OVER * allowed:
                continue
            taken.append(best)
            spent += cost
            new = [h for h in best.cells if h not in now]
            now.update(dict.fromkeys(new, SINGLE_VISIT_SPREAD))
            if new and not best.is_judge:
                doubt = Doubt.after(self.ground.of(now), np.array(list(now.values())))
        chosen = [h for h in kernels if h not in now]
        networks_s, rest = spent, portion_s - spent
        if chosen and rest > 0:
            costs = np.array([self.costs_s[h] for h in chosen])
            picks = doubt.choose(self.ground.of(chosen), wanted, costs, rest, SINGLE_VISIT_SPREAD)
            chosen = [chosen[i] for i in picks]
            spent += float(costs[picks].sum())
        else:
            chosen = []
        return Portion(tuple(n.name for n in taken), tuple(chosen), spent, networks_s)

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

    def _wanted(self) -> Array:
        """What is to be known: the latencies of networks, and in equal part those of their cells.

        A network's relative error is that of its cells by their shares of its latency. Errors of
        cells that are alike do not average out, so the sum is wanted as a sum; single cells are
        wanted too, since other networks hold others of them.
        """
        sums: list[Array] = []
        weights: dict[str, float] = {}
        for network in self.networks:
            if not network.cells:
                continue
            shares = np.array(network.shares or [1.0] * len(network.cells))
            shares /= shares.sum()
            sums.append(shares @ self.ground.of(network.cells).vectors)
            for h, share in zip(network.cells, shares, strict=True):
                weights[h] = weights.get(h, 0.0) + float(share)
        if not sums:  # nothing but kernels: all of them alike
            every = self.ground.of(self.ground.row)
            return second_moment(every, np.ones(len(every)))
        hashes = sorted(weights)
        cells = second_moment(self.ground.of(hashes), np.array([weights[h] for h in hashes]))
        networks = np.array(sums)
        return (cells + networks.T @ networks / len(sums)) / 2

    def _best_network(
        self, left: Sequence[Outline], known: Mapping[str, float], doubt: Doubt,
        wanted: Array, count: int,
    ) -> Outline:  # fmt: skip
        """The network that teaches most for its cost; in one of five turns one that judges."""
        judging = count % FOLDS == 1
        turn = [n for n in left if n.is_judge == judging] or list(left)
        if judging:  # it need not teach, only stand for the others: a cheap one
            ordered = sorted(turn, key=lambda n: (self.cost_s(n, known), n.name))
            return ordered[int(_TYPICAL_SHARE * (len(ordered) - 1))]

        def worth(network: Outline) -> float:
            new = [h for h in network.cells if h not in known]
            if not new:
                return 0.0
            fall = doubt.worth(self.ground.of(new), wanted, SINGLE_VISIT_SPREAD)
            return fall / self.cost_s(network, known)

        return max(turn, key=lambda n: (worth(n), n.name))


def portion_s(budget_s: float) -> float:
    """How long a portion of a budget is."""
    return min(max(budget_s / PORTIONS, LEAST_PORTION_S), MOST_PORTION_S)
