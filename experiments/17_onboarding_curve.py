"""How good is a machine's model after 2, 5, 10 and 20 minutes, and what makes it so?

The committed records of one CPU are played as a machine that nobody knows: a measurement is one
visit drawn from those recorded, and takes as long as a visit does. Half of the networks may be
measured, the others are judged: no model, nor the one transferred from, has seen their cells or
kernels. ``--prior`` is a pack of another machine with the same engine; the model transferred from
is trained on it here, without the judged networks.

    python experiments/17_onboarding_curve.py --prior FOLDER [--half report] [--seeds 0 1 2]

Networks and kernels in the order drawn, once each, with and without transfer; "kernels at random"
takes the kernels in the order drawn and no networks; "any cell" draws from all cells that were
heard of, each alike, and measures no network whole; "as before" measures each cell in six visits,
the smallest networks first, then random kernels. Settings were chosen with
``--half choose``, which judges the other half of the networks.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hybridlat.estimate.composition import fit_constants
from hybridlat.evaluation.dataset import Dataset, MeasuredCell, WholeNetwork, load
from hybridlat.evaluation.splits import even_folds
from hybridlat.measuring.statistics import SINGLE_VISIT_SPREAD, combine
from hybridlat.model.cell_model import CellModel, read_device
from hybridlat.model.doubt import KernelSpace
from hybridlat.model.fit import fit_model
from hybridlat.model.geometry import geometry
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.device import Device
from hybridlat.store.packs import PackLookup
from hybridlat.training.curriculum import Curriculum, Ground, Outline, Portion, portion_s
from hybridlat.training.onboarding import measuring_s
from hybridlat.training.visit_costs import cell_visit_s

PACK = ROOT / "data" / "packs" / "epyc-26-2_onnxruntime-1.31_fp32_1t"
MODEL = ROOT / "models" / PACK.name
MINUTES = (2.0, 5.0, 10.0, 20.0)
STARTING_S = 2.5  # a measuring process: its engine, its references
DRAWING_S = 0.02  # one kernel of the sweep drawn and lowered
LOWERING_S = 0.5  # one network read and lowered
NETWORK_VISIT_S, NETWORK_BUILD_S = 0.1, 0.15
VISITS_BEFORE = 6


@dataclass
class World:
    """The machine that is played: what visits of it say, and what is true."""

    dataset: Dataset
    visits: dict[str, list[float]]
    whole_visits: dict[str, list[float]]
    device: Device
    cost_s: dict[str, float]
    judged: tuple[WholeNetwork, ...]
    open_networks: tuple[WholeNetwork, ...]
    kernels: tuple[str, ...]

    def text(self, cell: str) -> str:
        return self.dataset.cells[cell].text

    @property
    def judged_cells(self) -> list[str]:
        return sorted({h for n in self.judged for h, _ in n.cells})


def read_world(half: str) -> World:
    """The recorded machine, split by the names of its networks."""
    pack = PackLookup(PACK)
    dataset = load(pack.target, [pack])
    visits: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    by_signature = {b.signature: b.network for b in pack.breakdowns(pack.target)}
    for record in pack.measurements(pack.target):
        found = [max(combine([v]).latency_us - record.overhead_us, 0.05) for v in record.visits]
        if record.kind == "cell":
            visits.setdefault(record.signature, []).extend(found)
        elif record.kind == "network":
            whole.setdefault(by_signature[record.signature], []).extend(found)
    named = [n for n in dataset.complete_networks if not n.name.startswith("nasbench201")]
    place = even_folds((n.name for n in named), 2)
    judged = tuple(n for n in named if place[n.name] == (half == "report"))
    others = tuple(n for n in named if n not in judged)
    hidden = dataset.forbidden(judged)
    kernels = tuple(
        sorted(h for h, c in dataset.cells.items() if "sweep" in c.labels and h not in hidden)
    )
    device = read_device(MODEL)
    assert device is not None
    return World(dataset, visits, whole, device, costs_of(dataset), judged, others, kernels)


def costs_of(dataset: Dataset) -> dict[str, float]:
    """Seconds of one visit of each cell, from its true latency."""
    hashes = sorted(dataset.cells)
    cells = geometry([dataset.cells[h].text for h in hashes])
    latencies = np.array([dataset.cells[h].latency_us for h in hashes])
    return dict(zip(hashes, cell_visit_s(cells, latencies).tolist(), strict=True))


@dataclass
class Played:
    """What an onboarding has measured so far."""

    cells: dict[str, float] = field(default_factory=dict)
    aside: dict[str, float] = field(default_factory=dict)
    networks: dict[str, float] = field(default_factory=dict)
    spent_s: list[float] = field(default_factory=lambda: [0.0, 0.0])
    repeats: int = 1


@dataclass(frozen=True)
class Arm:
    """One way to spend a budget."""

    name: str
    transfer: bool
    before: bool = False
    kernels_only: bool = False
    alike: bool = False


ARMS = (
    Arm("transfer", True),
    Arm("no transfer", False),
    Arm("kernels at random", True, kernels_only=True),
    Arm("any cell", True, alike=True),
    Arm("as before (six visits, no transfer)", False, True),
)


def play(world: World, arm: Arm, budget_s: float, seed: int) -> Played:
    """Spend a budget on the recorded machine the way ``onboard`` does."""
    rng = random.Random(f"onboarding {seed}")
    played = Played(repeats=VISITS_BEFORE if arm.before else 1)
    order = list(world.kernels)
    random.Random(f"sweep {seed}").shuffle(order)
    hidden = {h for n in world.judged for h, _ in n.cells}
    nets = {n.name: n for n in world.open_networks}
    outlines = []
    for n in world.open_networks:
        uses = [h for h, _ in n.cells if h not in hidden]
        visits_s = played.repeats * (NETWORK_VISIT_S + 2e-6 * n.latency_us)
        outlines.append(Outline(n.name, tuple(uses), NETWORK_BUILD_S + visits_s))
    # Reading all networks must not eat a small budget.
    order_of_reading = sorted(outlines, key=lambda n: n.name[::-1])
    rng.shuffle(order_of_reading)
    if not arm.before:
        outlines = order_of_reading[: max(4, int(0.1 * budget_s / LOWERING_S))]
    end_s = measuring_s(budget_s)
    clock = 0.0 if arm.before else LOWERING_S * len(outlines)
    curriculum = None
    if not arm.before:
        texts = {h: world.text(h) for n in outlines for h in n.cells}
        space = KernelSpace.over(list(texts.values()), world.device)
        ground = Ground(space)
        ground.learn_of(texts)
        curriculum = Curriculum(ground, outlines, world.cost_s)
    drawn = 0
    while clock < end_s:
        span = min(portion_s(budget_s), end_s - clock)
        if curriculum is not None:
            more = int(span / 0.12)
            clock += DRAWING_S * len(order[drawn : drawn + more])
            ground.learn_of({h: world.text(h) for h in order[drawn : drawn + more]})
            drawn += more
            noise = dict.fromkeys(played.cells, SINGLE_VISIT_SPREAD)
            pool = [h for h in order[:drawn] if h not in played.cells]
            chooser = replace(curriculum, dearest_s=0.25 * (end_s - clock))
            if arm.alike or arm.kernels_only:
                chooser = replace(chooser, networks=())
            if arm.alike:  # the networks' cells among the others
                left = [h for h in dict.fromkeys([*texts, *pool]) if h not in played.cells]
                pool = rng.sample(left, len(left))
            portion = chooser.portion(
                noise, played.networks, pool, (played.spent_s[0], played.spent_s[1]), span
            )
        else:
            portion = smallest_first(world, outlines, order, played, span)
        if portion.is_empty:
            break
        clock += STARTING_S
        before = clock
        for name in portion.networks:
            network = nets[name]
            clock += LOWERING_S if arm.before else 0.0
            new = [h for h, _ in network.cells if h not in played.cells and h not in hidden]
            clock += measure_cells(world, played, new, rng)
            shared = [h for h, _ in network.cells if h in hidden and h not in played.aside]
            clock += measure_cells(world, played, shared, rng, played.aside)
            played.networks[name] = statistics.median(
                rng.choices(world.whole_visits[name], k=2 * played.repeats)
            )
            clock += NETWORK_BUILD_S + 2 * played.repeats * (
                NETWORK_VISIT_S + 2e-6 * network.latency_us
            )
        played.spent_s[0] += clock - before
        before = clock
        for place in range(0, len(portion.kernels), 20):
            if clock >= end_s:
                break
            clock += measure_cells(world, played, portion.kernels[place : place + 20], rng)
        played.spent_s[1] += clock - before
    return played


def smallest_first(
    world: World, outlines: Sequence[Outline], order: Sequence[str], played: Played, span_s: float
) -> Portion:
    """A portion as it was before: the smallest networks, then kernels at random."""
    left = sorted(
        (n for n in outlines if n.name not in played.networks), key=lambda n: len(n.cells)
    )
    allowed = 0.6 * (sum(played.spent_s) + span_s) - played.spent_s[0]
    networks: list[str] = []
    spent = 0.0
    while left and spent < allowed:
        network = left.pop(0)
        cost = network.whole_s + played.repeats * sum(
            world.cost_s[h] for h in network.cells if h not in played.cells
        )
        networks.append(network.name)
        spent += cost
    kernels: list[str] = []
    for h in order:
        if spent >= span_s:
            break
        if h not in played.cells:
            kernels.append(h)
            spent += played.repeats * world.cost_s[h] + DRAWING_S
    return Portion(tuple(networks), tuple(kernels), spent)


def measure_cells(
    world: World, played: Played, cells: Sequence[str], rng: random.Random,
    into: dict[str, float] | None = None,
) -> float:  # fmt: skip
    """Visit cells; the seconds that takes. ``into`` keeps what no model may learn from."""
    seconds = 0.0
    for h in cells:
        (played.cells if into is None else into)[h] = statistics.median(
            rng.choices(world.visits[h], k=played.repeats)
        )
        seconds += played.repeats * world.cost_s[h]
    return seconds


def dataset_of(world: World, played: Played) -> Dataset:
    """What the new machine's store would hold."""
    noise = SINGLE_VISIT_SPREAD / math.sqrt(played.repeats)
    cells = {
        h: MeasuredCell(world.text(h), us, noise, world.cost_s[h], world.dataset.cells[h].labels)
        for h, us in played.cells.items()
    }
    networks = tuple(
        replace(n, latency_us=played.networks[n.name], repeats_us=(played.networks[n.name],))
        for n in world.open_networks
        if n.name in played.networks
    )
    return Dataset(world.dataset.target, cells, {}, networks)


def judge(
    world: World, played: Played, priors: tuple[CellModel, ...], seed: int
) -> dict[str, float]:
    """Errors on the judged networks and cells of a model of what was measured."""
    known = dataset_of(world, played)
    groups = known.groups()
    hashes = sorted(known.cells)
    model = fit_model(
        [known.cells[h].text for h in hashes],
        np.array([known.cells[h].latency_us for h in hashes]),
        [groups[h] for h in hashes],
        FitConfig(world.device, seed=seed, priors=priors),
        [known.cells[h].spread_share for h in hashes],
    )  # fmt: skip
    whole = known.networks
    measured = {**played.aside, **played.cells}
    sums = np.array([sum(c * measured[h] for h, c in n.cells) for n in whole])
    truth = np.array([n.latency_us for n in whole])
    overhead, scale = fit_constants(sums, truth) if whole else (0.0, 1.0)
    cells = world.judged_cells
    said = dict(zip(cells, (p.latency_us for p in model.predict([world.text(h) for h in cells])),
                    strict=True))  # fmt: skip
    errors = []
    for network in world.judged:
        parts = [said[h] for h, _ in network.cells]
        if any(p is None for p in parts):
            continue
        total = sum(c * (said[h] or 0.0) for h, c in network.cells)
        errors.append((overhead + scale * total) / network.latency_us - 1)
    of_cells = [
        (said[h] or 0) / world.dataset.cells[h].latency_us - 1 for h in cells if said[h] is not None
    ]
    e = np.array(errors)
    return {
        "networks": 100 * float(np.sqrt(np.mean(e**2))),
        "bias": 100 * float(np.mean(e)),
        "answered": len(errors),
        "cells": 100 * float(np.sqrt(np.mean(np.clip(of_cells, -1, 2) ** 2))),
        "cells_median": 100 * float(np.median(np.abs(of_cells))),
        "measured_cells": len(known.cells),
        "measured_networks": len(known.networks),
    }


def read_prior(folder: Path, world: World, seed: int) -> CellModel:
    """A model of the other machine that has not seen the judged networks."""
    pack = PackLookup(folder)
    dataset = load(pack.target, [pack])
    names = {n.name for n in world.judged}
    hidden = dataset.forbidden([n for n in dataset.networks if n.name in names])
    hidden |= world.dataset.forbidden(world.judged)
    hashes = sorted(set(dataset.cells) - hidden)
    groups = dataset.groups()
    return fit_model(
        [dataset.cells[h].text for h in hashes],
        np.array([dataset.cells[h].latency_us for h in hashes]),
        [groups[h] for h in hashes],
        FitConfig(world.device, seed=seed),
        [dataset.cells[h].spread_share for h in hashes],
    )


def main() -> None:
    """Play every arm, and print the curve as a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prior", type=Path, required=True)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--minutes", type=float, nargs="+", default=MINUTES)
    parser.add_argument("--arms", nargs="+", help="beginnings of names of arms")
    given = parser.parse_args()
    world = read_world(given.half)
    print(f"{len(world.open_networks)} networks to measure, {len(world.judged)} judged, "
          f"{len(world.kernels)} kernels of the sweep")  # fmt: skip
    prior = read_prior(given.prior, world, 0) if given.prior.exists() else None
    arms = [a for a in ARMS if not given.arms or a.name.startswith(tuple(given.arms))]
    head = "minutes", "arm", "networks, RMSPE %", "cells, RMSPE %", "cells, median %"
    print("| " + " | ".join((*head, "networks", "cells measured")) + " |")
    print("|---|---|---|---|---|---|---|")
    for minutes in given.minutes:
        for arm in arms:
            found = []
            for seed in given.seeds:
                played = play(world, arm, 60 * minutes, seed)
                priors = (prior,) if arm.transfer and prior is not None else ()
                found.append(judge(world, played, priors, seed))
            mean = {k: statistics.fmean(f[k] for f in found) for k in found[0]}
            spread = " ".join(f"{f['networks']:.1f}" for f in found)
            row = (
                f"{minutes:g}", arm.name, f"{mean['networks']:.1f} ({spread})",
                f"{mean['cells']:.1f}", f"{mean['cells_median']:.1f}",
                f"{mean['measured_networks']:.0f}", f"{mean['measured_cells']:.0f}",
            )  # fmt: skip
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
