"""A search under a latency budget, and what it costs to know the latencies: experiments/search.md.

    python experiments/12_search.py measure                 # real time, minutes: writes the space
    python experiments/12_search.py search [--storage URL]  # one search, resumed where it stopped
    python experiments/12_search.py report [--write]        # all ways to know latencies, all seeds

Optuna's NSGA-II searches 5,000 networks of ``MOBILENET`` (``block_spaces.py``) for the best score
under a budget. The score is a stand-in for accuracy that costs nothing (``search_space.entropy``).
``measure`` measures every cell of the space once on this machine, and some networks whole; both
other commands play from that file: what a gate asks to measure is looked up there.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np

from experiments import search_page, search_space
from experiments.block_spaces import MOBILENET
from experiments.search_space import Choice, MeasuredSpace, entropy
from experiments.search_ways import CANDIDATES, WAYS, Outcome, Way, judge, random_choice, search
from hybridlat.estimate.block_space import BlockSpace
from hybridlat.estimate.priors import network_cost_s

SPACE = ROOT / "experiments" / "search" / "space.json"
PAGE = ROOT / "experiments" / "search.md"
PICTURE = ROOT / "experiments" / "figures" / "search.png"
SEEDS = (1, 2, 3, 4, 5)
"""Seed 0 chose the settings."""
BUDGETS = (0.25, 0.5)
"""Shares of random networks that are faster than the budget."""
WHOLE = 24


def budgets_of(space: MeasuredSpace) -> list[float]:
    """The budgets in µs: quantiles of random networks."""
    rng, truth = random.Random(0), space.truth
    latencies = [truth.latency(random_choice(truth, rng)).latency_us for _ in range(1000)]
    return [float(np.quantile(latencies, share)) for share in BUDGETS]


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
            wanted = gate.choose(cells, self.believed.composition, off, fraction=0.25)
            if not wanted:
                return found.latency_us
            self.measure([cells.priors[i].signature for i in wanted])


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
    sampler = optuna.samplers.NSGAIISampler(
        population_size=POPULATION,
        seed=way.seed,
        constraints_func=lambda trial: [trial.user_attrs["latency_us"] - way.budget_us],
    )
    study = optuna.create_study(
        storage=storage,
        study_name=f"{way.name} below {way.budget_us:.0f} µs, seed {way.seed}",
        sampler=sampler,
        directions=["maximize", "minimize"],
        load_if_exists=True,
    )
    positions = way.believed.positions
    spaces = {
        position: optuna.distributions.CategoricalDistribution(blocks)
        for position, blocks in positions.items()
        if len(blocks) > 1
    }
    fixed = {position: blocks[0] for position, blocks in positions.items() if len(blocks) == 1}
    done = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
    found = [({**fixed, **t.params}, t.values[0], t.values[1]) for t in done]
    if done:
        way.measure(study.user_attrs.get("measured", []))
        way.best = max((s for _, s, us in found if us <= way.budget_us), default=0.0)
    for number in range(len(done), candidates):
        trial = study.ask(spaces)
        choice = {**fixed, **trial.params}
        score, before = entropy(choice), len(way.measured)
        latency_us = way.take(choice, score)
        if len(way.measured) > before:
            study.set_user_attr("measured", way.measured)
        trial.set_user_attr("latency_us", latency_us)
        study.tell(trial, [score, latency_us])
        found.append((choice, score, latency_us))
        if storage and number % 500 == 499:
            print(f"{number + 1} candidates, {way.spent_s:.0f} s measured", file=sys.stderr)
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
    # What was believed at the time may be known better by now.
    by_score = sorted({json.dumps(c): (s, c) for c, s, _ in met}.values(), key=lambda p: -p[0])
    over, passed, score = -1.0, 0, 0.0
    for s, choice in by_score:
        if way.latency_us(choice, -1.0) > way.budget_us:
            continue
        true_us = truth.latency(choice).latency_us
        if over < 0:
            over = max(true_us / way.budget_us - 1, 0.0)
        if true_us <= way.budget_us:
            score = s
            break
        passed += 1
    return Outcome(
        way.name, way.budget_us, way.seed, way.spent_s, len(way.measured), score, max(over, 0.0),
        passed, seconds,
    )  # fmt: skip


def random_choice(space: BlockSpace, rng: random.Random) -> dict[str, str]:
    """A network of the space, every block of a position equally likely."""
    return {position: rng.choice(blocks) for position, blocks in space.positions.items()}


def budgets_of(space: MeasuredSpace) -> list[float]:
    """The budgets in µs: quantiles of random networks."""
    rng, truth = random.Random(0), space.truth
    latencies = [truth.latency(random_choice(truth, rng)).latency_us for _ in range(1000)]
    return [float(np.quantile(latencies, share)) for share in BUDGETS]


def measure(store: str, target: str | None) -> None:
    """Measure the space on this machine, and write it down."""
    rng = random.Random(0)
    choices = []
    for _ in range(WHOLE):
        words = MOBILENET.words(MOBILENET.sample(rng))[1:]
        choices.append(dict(zip(MOBILENET.positions[1:], words, strict=True)))
    networks = [
        ({"stem": "stem", **choice, "head": "head"},
         MOBILENET.writer([str(search_space.IMAGE), *choice.values()], 1))
        for choice in choices
    ]  # fmt: skip
    space, table = search_space.measure(store, target, networks)
    search_space.write(SPACE, space, table)
    print(f"{len(space.measured)} cells; sums beside whole networks: {sums_off(space)}")
    print(f"sums of blocks beside networks drawn at random: {table.check}")


def report(space: MeasuredSpace) -> dict[str, Any]:
    """Every way at every budget from every seed; the fronts of the first seed at the last budget."""
    truth = space.truth
    outcomes: list[Outcome] = []
    fronts: dict[str, list[dict[str, Any]]] = {}
    for budget_us in budgets_of(space):
        for seed in SEEDS:
            for name, kind in WAYS.items():
                way = kind(name, space, budget_us, seed)
                began = time.perf_counter()
                met = search(way)
                outcomes.append(judge(way, truth, time.perf_counter() - began, met))
                print(outcomes[-1], file=sys.stderr, flush=True)
                if seed == SEEDS[0] and name != "flops":
                    fronts[name] = front_of(way, truth, [choice for choice, _, _ in met])
    return {
        "target": space.predicted.target,
        "cells": len(space.measured),
        "blocks": len(space.predicted.blocks),
        "networks": float(np.prod([len(b) for b in space.predicted.positions.values()])),
        "all_cells_s": space.cost_s(list(space.measured)),
        "network_s": float(np.mean([network_cost_s(us) for _, us in space.whole])),
        "sums": sums_off(space),
        "check": json.loads(SPACE.read_text(encoding="utf-8"))["check"],
        "shares": BUDGETS,
        "outcomes": [vars(outcome) for outcome in outcomes],
        "fronts": fronts,
    }


def sums_off(space: MeasuredSpace) -> dict[str, float]:
    """RMSPE in % of the networks measured whole: predicted, measured, and the share held."""
    found: dict[str, float] = {"networks": len(space.whole)}
    for name, believed in (("predicted", space.predicted), ("measured", space.truth)):
        said = [(believed.latency(choice), us) for choice, us in space.whole]
        off = [interval.latency_us / us - 1 for interval, us in said]
        held = [i.interval_us[0] <= us <= i.interval_us[1] for i, us in said]
        found[name] = 100 * float(np.sqrt(np.mean(np.square(off))))
        found[f"{name}_held"] = float(np.mean(held))
    return found


def front_of(way: Way, truth: BlockSpace, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """The candidates that none beats in both, as the way believes in the end; with the truth."""
    told = sorted(
        ((way.believed.latency(c), entropy(c), c) for c in choices),
        key=lambda row: (row[0].latency_us, -row[1]),
    )
    best, front = 0.0, []
    for interval, score, choice in told:
        if score > best:
            best = score
            front.append(
                {
                    "score": score,
                    "latency_us": interval.latency_us,
                    "interval_us": interval.interval_us,
                    "true_us": truth.latency(choice).latency_us,
                }
            )
    return front


def main() -> None:
    """Measure the space, search it once, or report on every way."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["measure", "search", "report"])
    parser.add_argument("--target", help="of measure; this machine's CPU unless given")
    parser.add_argument("--store", default="sqlite://", help="of measure: where records go")
    parser.add_argument("--storage", help="of search: Optuna's database, as sqlite:///search.db")
    parser.add_argument("--way", choices=list(WAYS), default="gate", help="of search")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="of search")
    parser.add_argument("--seed", type=int, default=0, help="of search")
    parser.add_argument("--write", action="store_true", help="of report: write page and picture")
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.store, given.target)
        return
    space = search_space.read(SPACE)
    if given.command == "search":
        began = time.perf_counter()
        way = WAYS[given.way](given.way, space, budgets_of(space)[-1], given.seed)
        met = search(way, given.storage, given.candidates)
        print(judge(way, space.truth, time.perf_counter() - began, met))
        return
    answers = report(space)
    for row in search_page.rows_of(answers):
        print(row)
    if given.write:
        search_page.draw(answers, PICTURE)
        PAGE.write_text(search_page.page(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
