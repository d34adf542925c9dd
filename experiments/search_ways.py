"""Ways to know latencies in a search, the search, and how it came out; see ``budget_search.py``."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from experiments.search_space import Choice, MeasuredSpace, entropy
from hybridlat.estimate import gate
from hybridlat.estimate.block_space import BlockSpace
from hybridlat.estimate.predict.source import network_cost_s

CANDIDATES = 5000
POPULATION = 50
TOLD = 0.02
"""Nearer to the budget than this, a candidate is not told from it: nothing more is measured."""
LINE = 10
"""Networks measured whole that a line over FLOP goes through."""


@dataclass
class Way:
    """A way to know latencies: ``latency_us`` of a choice whose score is told beside it.

    ``spent_s`` is the device time so far; ``best`` the best score believed within the budget.
    """

    name: str
    space: MeasuredSpace
    budget_us: float
    seed: int
    spent_s: float = 0.0
    best: float = 0.0
    measured: list[str] = field(default_factory=list)
    believed: BlockSpace = field(init=False)

    def __post_init__(self) -> None:
        self.believed = self.space.predicted

    def latency_us(self, choice: Choice, score: float) -> float:
        raise NotImplementedError

    def take(self, choice: Choice, score: float) -> float:
        """The latency of a candidate as it is believed now."""
        latency_us = self.latency_us(choice, score)
        if latency_us <= self.budget_us:
            self.best = max(self.best, score)
        return latency_us

    def settle(self, choices: Sequence[Choice]) -> None:
        """The last thing that is done, with all candidates known."""

    def in_order(self, choices: Sequence[Choice]) -> list[Choice]:
        """Every candidate once, the best score first."""
        each = {tuple(choice.values()): choice for choice in choices}
        return sorted(each.values(), key=entropy, reverse=True)

    def measure(self, signatures: Sequence[str]) -> None:
        """Look up what measuring these cells came to, and count its device time."""
        self.believed = self.believed.observe({h: self.space.measured[h] for h in signatures})
        self.spent_s += self.space.cost_s(signatures)
        self.measured += signatures


class Everything(Way):
    """Every cell of every candidate is measured, once."""

    def latency_us(self, choice: Choice, score: float) -> float:
        cells = self.believed.cells_of(choice)
        unmeasured = [cells.priors[i].signature for i in cells.unmeasured]
        if unmeasured:
            self.measure(unmeasured)
        return self.believed.latency(choice).latency_us


class Prediction(Way):
    """Nothing is measured."""

    def latency_us(self, choice: Choice, score: float) -> float:
        return self.believed.latency(choice).latency_us


class Flop(Way):
    """A line over FLOP, through a few random networks measured whole."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rng = np.random.default_rng(self.seed)
        drawn = [self.space.whole[i] for i in rng.permutation(len(self.space.whole))[:LINE]]
        latencies = np.array([us for _, us in drawn])
        design = np.column_stack([np.ones(len(drawn)), [self.space.flop_of(c) for c, _ in drawn]])
        self.line = np.linalg.lstsq(design / latencies[:, None], np.ones(len(drawn)), rcond=None)[0]
        self.spent_s = sum(network_cost_s(us) for us in latencies.tolist())

    def latency_us(self, choice: Choice, score: float) -> float:
        return float(self.line @ [1.0, self.space.flop_of(choice)])


class Gate(Way):
    """What would be the best candidate so far is measured until it is told from the budget."""

    def latency_us(self, choice: Choice, score: float) -> float:
        while True:
            found = self.believed.latency(choice)
            low, high = found.interval_us
            if score <= self.best or not low <= self.budget_us <= high:
                return found.latency_us
            cells = self.believed.cells_of(choice)
            off = max(abs(found.latency_us / self.budget_us - 1), TOLD)
            step = gate.next_step(cells, self.believed.composition, off, fraction=0.25)
            if not step:
                return found.latency_us
            self.measure([cells.priors[i].signature for i in step.positions])

    def settle(self, choices: Sequence[Choice]) -> None:
        """The best is measured through, and the next one where it was over the budget."""
        for choice in self.in_order(choices):
            if self.believed.latency(choice).latency_us > self.budget_us:
                continue
            cells = self.believed.cells_of(choice)
            left = [cells.priors[i].signature for i in cells.unmeasured]
            if left:
                self.measure(left)
            if self.believed.latency(choice).latency_us <= self.budget_us:
                return


WAYS: dict[str, type[Way]] = {
    "everything": Everything, "gate": Gate, "prediction": Prediction, "flops": Flop,
}  # fmt: skip


# ---- searching ---------------------------------------------------------------------------------


def search(
    way: Way, storage: str | None = None, candidates: int = CANDIDATES
) -> list[tuple[Choice, float, float]]:
    """(choice, score, latency as it was believed at the time) of every candidate.

    With a ``storage`` of Optuna's the study goes on where it stopped, with what was measured then.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.NSGAIISampler(population_size=POPULATION, seed=way.seed)
    study = optuna.create_study(
        storage=storage,
        study_name=f"{way.name} below {way.budget_us:.0f} µs, seed {way.seed}",
        sampler=sampler,
        directions=["maximize", "minimize"],
        load_if_exists=True,
    )
    positions = way.believed.positions
    # Numbers instead of names: the same to this sampler, at half of its own time.
    spaces: dict[str, Any] = {
        position: optuna.distributions.IntDistribution(0, len(blocks) - 1)
        for position, blocks in positions.items()
        if len(blocks) > 1
    }

    def named(numbers: Mapping[str, int]) -> dict[str, str]:
        return {p: blocks[numbers.get(p, 0)] for p, blocks in positions.items()}

    done = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    found: list[tuple[Choice, float, float]] = []
    found += [(named(t.params), t.values[0], t.values[1]) for t in done]
    if done:
        way.measure(study.user_attrs.get("measured", []))
        way.best = max((s for _, s, us in found if us <= way.budget_us), default=0.0)
    for number in range(len(done), candidates):
        trial = study.ask(spaces)
        choice = named(trial.params)
        score, before = entropy(choice), len(way.measured)
        latency_us = way.take(choice, score)
        if len(way.measured) > before:
            study.set_user_attr("measured", way.measured)
        trial.set_constraint("over the budget", latency_us - way.budget_us)
        study.tell(trial, [score, latency_us])
        found.append((choice, score, latency_us))
        if storage and number % 500 == 499:
            print(f"{number + 1} candidates, {way.spent_s:.0f} s measured", file=sys.stderr)
    way.settle([choice for choice, _, _ in found])
    study.set_user_attr("measured", way.measured)
    return found


@dataclass(frozen=True)
class Outcome:
    """How a search came out: the best candidate that it believes within the budget, in truth.

    ``over`` is how far the first choice really is over the budget (0 where it is not), ``passed``
    how many better ones had to be passed over until one is within it, ``score`` that one's.
    """

    way: str
    budget_us: float
    seed: int
    device_s: float
    cells: int
    score: float
    over: float
    passed: int
    seconds: float


def judge(way: Way, truth: BlockSpace, seconds: float, met: Sequence[Any]) -> Outcome:
    """Hold a search against the latencies of all cells measured."""
    over, passed, score = -1.0, 0, 0.0
    for choice in way.in_order([choice for choice, _, _ in met]):
        # What was believed at the time may be known better by now.
        if way.latency_us(choice, -1.0) > way.budget_us:
            continue
        true_us = truth.latency(choice).latency_us
        if over < 0:
            over = max(true_us / way.budget_us - 1, 0.0)
        if true_us <= way.budget_us:
            score = entropy(choice)
            break
        passed += 1
    return Outcome(
        way.name, way.budget_us, way.seed, way.spent_s, len(way.measured), score, max(over, 0.0),
        passed, seconds,
    )  # fmt: skip


def random_choice(space: BlockSpace, rng: random.Random) -> dict[str, str]:
    """A network of the space, every block of a position equally likely."""
    return {position: rng.choice(blocks) for position, blocks in space.positions.items()}
