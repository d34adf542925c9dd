"""How good is a machine's model after 2, 5, 10 and 20 minutes, and what makes it so?

The committed records of one CPU are played as a machine that nobody knows: a measurement is one
visit drawn from those recorded, and takes as long as a visit does. Half of the networks may be
measured, the others are judged: no model, nor the one transferred from, has seen their cells or
kernels. ``--prior`` is a pack of another machine with the same engine; the model transferred from
is trained on it here, without the judged networks.

    python experiments/17_onboarding_curve.py --prior FOLDER [--half report] [--seeds 0 1 2]

Networks and kernels in the order drawn, once each, with and without transfer; "kernels alone"
measures no networks. Settings were chosen with ``--half choose``, which judges the other half.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hybridlat.estimate.compose.composition import fit_constants
from hybridlat.evaluation.cross_fitting import even_folds
from hybridlat.evaluation.dataset import Dataset, MeasuredCell, WholeNetwork, load
from hybridlat.measuring.schedule import HEAVY_BYTES, REPLICAS
from hybridlat.measuring.statistics import SINGLE_VISIT_SPREAD, combine
from hybridlat.model.cell_model import CellModel, read_device
from hybridlat.model.fit import fit_model
from hybridlat.model.geometry import CONTEXTS, geometry
from hybridlat.model.training_problem import FitConfig
from hybridlat.schema.device import Device
from hybridlat.store.packs import PackLookup
from hybridlat.training.onboarding import DEAREST_SHARE, NETWORK_SHARE, measuring_s, run_s

PACK = ROOT / "data" / "packs" / "epyc-26-2_onnxruntime-1.31_fp32_1t"
MODEL = ROOT / "models" / PACK.name
MINUTES = (2.0, 5.0, 10.0, 20.0)
STARTING_S = 2.5  # a measuring process: its engine, its references
DRAWING_S = 0.02  # one kernel of the sweep drawn and lowered
LOWERING_S = 0.5  # one network read and lowered
NETWORK_VISIT_S, NETWORK_BUILD_S, NETWORK_VISITS = 0.1, 0.15, 2
VISIT_S = 0.01  # how long a cell is run in one visit
FIXED_S = 0.02  # two runs of the reference, messages
REPLICA_S = 0.0016  # building one copy
BYTE_S = 12e-9  # making a byte of weights and building the engine's copy of it
AROUND_RUNS = 1.2  # what comes on top of the runs themselves, as a factor
HEAVY_REPLICAS = 3


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
    """Seconds of one visit of each cell, from its true latency; seen on a virtual machine."""
    hashes = sorted(dataset.cells)
    cells = geometry([dataset.cells[h].text for h in hashes])
    latencies_us = np.array([dataset.cells[h].latency_us for h in hashes])
    weight_bytes = np.bincount(cells.cell, cells.column("weight_bytes"), cells.cells)
    context = np.zeros(cells.cells)
    context[cells.cell] = cells.column("context")
    copies = np.empty(cells.cells)
    for name, (most, least, together) in REPLICAS.items():
        mine = context == CONTEXTS[name]
        copies[mine] = np.clip(np.ceil(together / np.maximum(weight_bytes[mine], 1)), least, most)
    copies = np.where(weight_bytes > HEAVY_BYTES, HEAVY_REPLICAS, copies)
    once_s = copies * latencies_us * 1e-6
    running_s = AROUND_RUNS * (once_s + np.maximum(VISIT_S, once_s))
    seconds = FIXED_S + copies * (REPLICA_S + BYTE_S * weight_bytes) + running_s
    return dict(zip(hashes, seconds.tolist(), strict=True))


@dataclass
class Played:
    """What an onboarding has measured so far; ``aside`` is what no model may learn from."""

    cells: dict[str, float] = field(default_factory=dict)
    aside: dict[str, float] = field(default_factory=dict)
    networks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """One way to spend a budget."""

    name: str
    transfer: bool
    networks: bool = True


ARMS = (Arm("transfer", True), Arm("none", False), Arm("kernels alone", True, networks=False))


def play(world: World, arm: Arm, budget_s: float, seed: int) -> Played:
    """Spend a budget on the recorded machine the way ``onboard`` does."""
    rng = random.Random(f"onboarding {seed}")
    played = Played()
    kernels = list(world.kernels)
    random.Random(f"sweep {seed}").shuffle(kernels)
    networks = sorted(world.open_networks, key=lambda n: n.name[::-1])
    rng.shuffle(networks)
    # Reading all networks must not eat a small budget.
    networks = networks[: max(4, int(0.1 * budget_s / LOWERING_S))]
    end_s = measuring_s(budget_s)
    clock = LOWERING_S * len(networks)
    networks_s = kernels_s = 0.0
    while clock < end_s:
        began, span_s = clock, min(run_s(end_s), end_s - clock)
        clock += STARTING_S
        dearest_s = DEAREST_SHARE * (end_s - clock)
        chosen = next_networks(world, networks, played, span_s, dearest_s) if arm.networks else []
        if chosen and networks_s <= NETWORK_SHARE * (networks_s + kernels_s):
            for network in chosen:
                clock += measure_network(world, played, network, rng)
            networks_s += clock - began
            continue
        while kernels and clock < min(end_s, began + span_s):
            new = [h for h in (kernels.pop(0),) if h not in played.cells]
            clock += DRAWING_S + measure_cells(world, new, rng, played.cells)
        kernels_s += clock - began
    return played


def next_networks(
    world: World, networks: Sequence[WholeNetwork], played: Played, span_s: float, dearest_s: float
) -> list[WholeNetwork]:
    """Networks in the order drawn, for about ``span_s`` seconds."""
    chosen: list[WholeNetwork] = []
    spent_s = 0.0
    for network in networks:
        new = [h for h, _ in network.cells if h not in played.cells]
        cost_s = whole_s(network) + sum(world.cost_s[h] for h in new)
        if network.name in played.networks or cost_s > dearest_s or spent_s >= span_s:
            continue
        chosen.append(network)
        spent_s += cost_s
    return chosen


def whole_s(network: WholeNetwork) -> float:
    """Seconds that measuring a network whole takes."""
    return NETWORK_BUILD_S + NETWORK_VISITS * (NETWORK_VISIT_S + 2e-6 * network.latency_us)


def measure_network(
    world: World, played: Played, network: WholeNetwork, rng: random.Random
) -> float:
    """Visit a network and its cells; the seconds that takes."""
    hidden = set(world.judged_cells)
    hashes = [h for h, _ in network.cells]
    new = [h for h in hashes if h not in played.cells and h not in hidden]
    shared = [h for h in hashes if h in hidden and h not in played.aside]
    seconds = measure_cells(world, new, rng, played.cells)
    seconds += measure_cells(world, shared, rng, played.aside)
    visits = rng.choices(world.whole_visits[network.name], k=NETWORK_VISITS)
    played.networks[network.name] = statistics.median(visits)
    return seconds + whole_s(network)


def measure_cells(
    world: World, cells: Sequence[str], rng: random.Random, into: dict[str, float]
) -> float:
    """Visit cells; the seconds that takes."""
    into.update((h, rng.choice(world.visits[h])) for h in cells)
    return sum(world.cost_s[h] for h in cells)


def dataset_of(world: World, played: Played) -> Dataset:
    """What the new machine's store would hold."""
    cells = {
        h: MeasuredCell(
            world.text(h), us, SINGLE_VISIT_SPREAD, world.cost_s[h], world.dataset.cells[h].labels
        )
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
