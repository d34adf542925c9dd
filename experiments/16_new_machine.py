"""How well does a machine that nobody calibrated answer, after 0, 1, 3, 10 whole networks?

    python experiments/16_new_machine.py [--target T] [--store URL] [--draws 200] [--json FILE]

Records of a machine are played as those of a new one: its own composition, its model and its whole
networks are left out. It composes by the plain sum and what a machine lends, as `predict` does
where nobody trained; then networks drawn at random, the same for every count, are measured whole
with their cells, as its first estimates do, and constants and width become its own. Judged are all
other networks, each with every cell measured, so that nothing but the composition is on trial:

- *at the pace told*: against the network as it was measured, drift of the machine divided out;
- *as met*: against what single measuring processes saw, at whatever pace the machine then had. The
  interval holds the wandering that the processes of the machine's own first networks showed.

Without `--target` the CPU pack that is shipped is played. It is the only machine that lends, so to
itself nothing is lent: the width that it starts with is the first guess that every machine has.
With `--target` and `--store` the records of a store are played, and the shipped machine lends.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hybridlat.estimate.composition import Composition
from hybridlat.estimate.machine import SummedNetwork, machine_composition
from hybridlat.estimate.model_folders import model_folders, read_composition, readable
from hybridlat.estimate.posterior import CellPrior, ErrorPosterior
from hybridlat.estimate.wandering import paces_of, wandering_of
from hybridlat.evaluation.dataset import Dataset, Source, load
from hybridlat.graph.reference_networks import null_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.statistics import level_us
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.packs import shipped_packs

COUNTS = (0, 1, 3, 10)
CONFIDENCE = 0.9


@dataclass(frozen=True)
class Known:
    """A network of the machine: its cells as measured, its latency, and its records.

    ``met_us`` is what each measuring process saw, drift and all.
    """

    name: str
    latency_us: float
    cells: ErrorPosterior
    records: tuple[Measurement, ...]
    met_us: tuple[float, ...]


def met_us(records: Sequence[Measurement]) -> tuple[float, ...]:
    """The level of each process, not divided by its drift."""
    levels: dict[tuple[int, int], list[float]] = {}
    for place, record in enumerate(records):
        for visit in record.visits:
            levels.setdefault((place, visit.process), []).append(level_us(visit.samples_us))
    return tuple(statistics.median(found) for found in levels.values())


@dataclass(frozen=True)
class Row:
    """What a machine with so many networks of its own answers; errors and widths in percent."""

    networks: int
    rmspe: float
    bias: float
    coverage: float
    half_width: float
    met_coverage: float
    met_half_width: float
    wander: float
    scale: float
    judged: int


def known_networks(dataset: Dataset, source: Source) -> list[Known]:
    """The networks whose cells are all measured, by name, without those that came to nothing."""
    records: dict[str, list[Measurement]] = {}
    for record in source.measurements(dataset.target, "network"):
        if record.latency_us is not None:
            records.setdefault(record.signature, []).append(record)
    hashes = {b.network: b.signature for b in source.breakdowns(dataset.target)}
    found = []
    for network in dataset.complete_networks:
        cells = tuple(
            CellPrior(h, n, dataset.cells[h].latency_us, dataset.cells[h].spread_share,
                      source="measured")
            for h, n in network.cells
        )  # fmt: skip
        kept = tuple(records.get(hashes[network.name], ()))
        if kept:
            state = ErrorPosterior.start(cells)
            found.append(Known(network.name, network.latency_us, state, kept, met_us(kept)))
    return found


def play(
    networks: Sequence[Known], dispatch_overhead_us: float, lent: Composition | None, draws: int
) -> list[Row]:
    """A row for each count of own networks, the mean over random draws of them."""
    rows: dict[int, list[Row]] = {count: [] for count in COUNTS}
    for draw in range(draws):
        order = list(networks)
        random.Random(draw).shuffle(order)
        for count in COUNTS:
            if len(order) - count >= 1:
                own, others = order[:count], order[max(COUNTS) :] or order[count:]
                rows[count].append(_judged(own, others, dispatch_overhead_us, lent))
    return [_mean(count, found) for count, found in rows.items() if found]


def _judged(
    own: Sequence[Known],
    others: Sequence[Known],
    dispatch_overhead_us: float,
    lent: Composition | None,
) -> Row:
    summed = [SummedNetwork(n.latency_us, n.cells.sum_us) for n in own]
    composition = machine_composition(summed, dispatch_overhead_us, lent).at(CONFIDENCE)
    wander = wandering_of(paces_of([r for n in own for r in n.records])).share
    moving = replace(composition, wander_share=wander)
    errors, inside, met, halves, met_halves = [], [], [], [], []
    for network in others:
        said, wide = composition.interval(network.cells), moving.interval(network.cells)
        errors.append(said.latency_us / network.latency_us - 1)
        inside.append(said.interval_us[0] <= network.latency_us <= said.interval_us[1])
        seen = network.met_us
        met.append(sum(wide.interval_us[0] <= us <= wide.interval_us[1] for us in seen) / len(seen))
        halves.append(said.half_width_share)
        met_halves.append(wide.half_width_share)
    return Row(
        len(own),
        100 * math.sqrt(statistics.fmean(e * e for e in errors)),
        100 * statistics.fmean(errors),
        100 * statistics.fmean(inside),
        100 * statistics.fmean(halves),
        100 * statistics.fmean(met),
        100 * statistics.fmean(met_halves),
        100 * wander,
        composition.scale,
        len(others),
    )


def _mean(count: int, rows: Sequence[Row]) -> Row:
    bodies = [asdict(row) for row in rows]
    mean = {name: statistics.fmean(body[name] for body in bodies) for name in bodies[0]}
    return Row(**{**mean, "networks": count, "judged": rows[0].judged})


def table(target: Target, lender: str, rows: Sequence[Row]) -> str:
    """Markdown."""
    lines = [
        f"`{target}` played as a new machine; {lender}. Judged on {rows[0].judged} other networks, "
        f"interval {100 * CONFIDENCE:.0f} %.",
        "",
        "| own networks | RMSPE % | bias % | scale | inside % | width ±% | as met: inside % "
        "| as met: width ±% | wandering known % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.networks} | {r.rmspe:.1f} | {r.bias:+.1f} | {r.scale:.3f} | {r.coverage:.0f} "
        f"| {r.half_width:.1f} | {r.met_coverage:.0f} | {r.met_half_width:.1f} | {r.wander:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", help="a target of the store (default: the shipped CPU pack)")
    parser.add_argument("--store", help="the store with its records")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    packs = [pack for pack in shipped_packs() if pack.target.runtime.startswith("onnxruntime")]
    lent: Composition | None = None
    lender = "no other machine lends"
    source: Source = packs[0]
    target = packs[0].target
    if given.target is not None:
        target, source = Target.parse(given.target), Store(given.store)
        if target != packs[0].target:
            found = [readable(read_composition, f) for f in model_folders(packs[0].target)]
            lent = next((c for c in found if c is not None), None)
            lender = f"lent by `{packs[0].target}`"
    networks = known_networks(load(target, [source]), source)
    entry = source.measurements(target, "cell", sign(null_network(1)).hash)
    dispatch_overhead_us = next((r.latency_us or 0.0 for r in entry), 0.0)
    rows = play(networks, dispatch_overhead_us, lent, given.draws)
    print(table(target, lender, rows))
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
