"""How well does a machine that nobody calibrated answer, after 0, 1, 3, 10 whole networks?

    python experiments/new_machine.py [--pack DIR] [--loops FILE] [--draws 40]
    python experiments/new_machine.py --measure DIR [--minutes 7]

Records of a machine are played as those of a new one: its own composition, its model and its whole
networks are left out. It composes by the plain sum and what a machine lends, as `predict` does
where nobody trained; then networks drawn at random, the same for every count, are measured whole
with their cells, as its first estimates do, and constants and width become its own. Judged are all
other networks, each with every cell measured, so that nothing but the composition is on trial:

- *at the pace told*: against the network as it was measured, drift of the machine divided out;
- *as met*: against what single measuring processes saw, at whatever pace the machine then had. The
  interval holds the wandering that the processes of the machine's own first networks showed.

Without `--pack` the CPU pack that is shipped is played. It is the only machine that lends, so to
itself nothing is lent: the width that it starts with is the first guess that every machine has.
With `--pack` the records of another machine are played, and the shipped one lends. `--loops` are
latencies of the same networks as a loop around the engine alone found them: then they are what was
met, instead of the processes that measured the networks.

`--measure` makes such a pack of this machine, of networks that come along in the order below, as
many as there are minutes for, and the loops right afterwards (the median of at least 15 runs over
0.6 s behind five that warm up): DIR/records and DIR/loops.json.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from experiments.plain_loop import loop_us
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.machine import (
    Paces,
    SummedNetwork,
    machine_composition,
)
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior
from hybridlat.estimate.compose.target_composition import read_composition
from hybridlat.estimate.lookup.models import model_folders, readable
from hybridlat.estimate.lookup.target_data import RecordSource
from hybridlat.evaluation.dataset import Dataset, load
from hybridlat.graph.builder import null_network
from hybridlat.graph.signature import sign
from hybridlat.measuring.statistics import level_us
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.store.packs import PackLookup, shipped_packs

COUNTS = (0, 1, 3, 10)
CONFIDENCE = 0.9
NETWORKS = """\
squeezenet mobilenetv3_small_100 resnet18 shufflenet_v2 mnasnet_100 efficientnet_lite0 lcnet_100
inception_v1 regnetx_008 ghostnet_100 mobilenetv2_100 hgnetv2_b0 resnest14d fbnetc_100 repvgg_a0
starnet_s1 skresnet18 rexnet_100 mobilenetv3_large_100 resnet34 fasternet_t0
mobilenetv4_conv_small efficientnet_b0 convnext_atto regnety_008 ese_vovnet19b_dw mobileone_s1
selecsls42b shufflenet zfnet512 super_resolution mixnet_s deeplab_resnet18 fcn_mobilenetv2
ssdlite_mobilenetv2 resnet50 dla34 densenet121 bvlc_alexnet inception_v2 hrnet_w18_small unet
"""
"""Small and large ones of many families; written down before any was measured."""


@dataclass(frozen=True)
class Known:
    """A network of the machine: its cells as measured, its latency, and its records.

    ``met_us`` is what each measuring process saw, drift and all, as the level that records tell;
    or, ``in_loop``, the median of a loop's runs.
    """

    name: str
    latency_us: float
    cells: ErrorPosterior
    records: tuple[Measurement, ...]
    met_us: tuple[float, ...]
    in_loop: bool = False


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
    met_rmspe: float
    met_bias: float
    wander: float
    scale: float
    judged: int


def known_networks(
    dataset: Dataset, source: RecordSource, loops: Mapping[str, float] | None = None
) -> list[Known]:
    """The networks whose cells are all measured, those without a record left out.

    ``loops`` are µs that a loop met, by name, instead of what the processes did.
    """
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
            looped = (loops or {}).get(network.name)
            met = met_us(kept) if looped is None else (looped,)
            in_loop = looped is not None
            found.append(Known(network.name, network.latency_us, state, kept, met, in_loop))
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
    paces = Paces([r for n in own for r in n.records])
    found = paces.drift()
    wander = found.wander_share
    ratio = found.shown_ratio if others[0].in_loop else found.usual_pace
    moving = replace(composition, wander_share=wander, shown_ratio=ratio)
    errors, inside, met, halves, met_halves, met_errors = [], [], [], [], [], []
    for network in others:
        said, wide = composition.interval(network.cells), moving.interval(network.cells)
        errors.append(said.latency_us / network.latency_us - 1)
        inside.append(said.interval_us[0] <= network.latency_us <= said.interval_us[1])
        seen = network.met_us
        met.append(sum(wide.interval_us[0] <= us <= wide.interval_us[1] for us in seen) / len(seen))
        met_errors += [wide.latency_us / us - 1 for us in seen]
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
        100 * math.sqrt(statistics.fmean(e * e for e in met_errors)),
        100 * statistics.fmean(met_errors),
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
        "| own networks | scale | RMSPE % | bias % | inside % | width ±% | as met: RMSPE % "
        "| bias % | inside % | width ±% | wandering known % |",
        "|" + "---|" * 11,
    ]
    lines += [
        f"| {r.networks} | {r.scale:.3f} | {r.rmspe:.1f} | {r.bias:+.1f} | {r.coverage:.0f} "
        f"| {r.half_width:.1f} | {r.met_rmspe:.1f} | {r.met_bias:+.1f} | {r.met_coverage:.0f} "
        f"| {r.met_half_width:.1f} | {r.wander:.1f} |"
        for r in rows
    ]
    return "\n".join(lines)


def measure(folder: Path, minutes: float) -> None:
    """Networks whole with their cells, as first estimates measure them, then each in a loop."""
    from hybridlat import Predictor
    from hybridlat.measuring.schedule import ON_DEMAND

    end = time.monotonic() + 60 * minutes
    done: list[Path] = []
    store = folder / "store.db"
    with Predictor(store=str(store), settings=ON_DEMAND) as predictor:
        for name in NETWORKS.split():
            if time.monotonic() > end:
                break
            path = ROOT / "data" / "nets" / f"{name}.onnx"
            report = predictor.measure(path, what="both")
            done.append(path)
            print(f"{name}: {report.latency_us} µs, cells {report.sum_of_cells_us}", flush=True)
        target = predictor.target
    loops = {path.stem: loop_us(path) for path in done}
    (folder / "loops.json").write_text(json.dumps(loops, indent=1) + "\n")
    with Store(store) as opened:
        opened.export(
            folder / "records", target, source="measured by experiments/new_machine.py",
            licence="Apache-2.0",
        )  # fmt: skip


def main() -> int:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", type=Path, metavar="DIR")
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--pack", type=Path, help="records to play (default: the shipped CPU's)")
    parser.add_argument("--loops", type=Path)
    parser.add_argument("--draws", type=int, default=40)
    given = parser.parse_args()
    if given.measure is not None:
        given.measure.mkdir(parents=True, exist_ok=True)
        measure(given.measure, given.minutes)
        return 0
    home = next(p for p in shipped_packs() if p.target.engine == "onnxruntime")
    pack, lent, lender = home, None, "no other machine lends"
    if given.pack is not None:
        pack = PackLookup(given.pack)
        compositions = [readable(read_composition, f) for f in model_folders(home.target)]
        lent = next((c for c in compositions if c is not None), None)
        lender = f"lent by `{home.target}`"
    loops = json.loads(given.loops.read_text()) if given.loops is not None else {}
    networks = known_networks(load(pack.target, [pack]), pack, loops)
    overheads = pack.measurements(pack.target, "cell", sign(null_network(1)).hash)
    overhead_us = next((r.latency_us or 0.0 for r in overheads), 0.0)
    rows = play(networks, overhead_us, lent, given.draws)
    print(table(pack.target, lender, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
