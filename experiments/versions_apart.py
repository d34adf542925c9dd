"""How far apart versions and precisions of one engine are on one device.

    python experiments/versions_apart.py [--data DIR] [--store FILE [--measure NET.onnx ...]]

``--data`` (``../shared/data``) holds ``whole_networks``. For each pair of targets that differ in
version or precision alone: the median ratio of their latencies over the same networks, the standard
deviation of its logarithm, and its root mean square.

``--store`` holds versions of one engine that were measured here, networks and cells. For each pair:
the parts of ln(ratio) of cells that are most likely, the noise of the measurements taken off, and
how networks differ beside their cells. Then the newest version is met after the one before.
``--measure`` measures networks and their cells into it, at the version of ONNX Runtime that is
installed: with an interpreter for each version by turns, a network at a time, what a machine does
meanwhile is in all versions alike.
``hybridlat/estimate/predict/ratios.py`` holds what all of that says of versions.
"""

import argparse
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.whole_networks_data import FAMILIES, read_rows
from hybridlat import onnx_io
from hybridlat.engines.registry import open_backend
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.estimate.predict.other_targets import pairs_of
from hybridlat.evaluation.dataset import load
from hybridlat.evaluation.other_regimes import first_met
from hybridlat.graph.cells import cut
from hybridlat.graph.signature import sign
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.schema.measurement import Breakdown
from hybridlat.schema.target import Target
from hybridlat.store import Store

LEAST = 8  # rows that two targets have in common
GRID = (0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12)
CONFIG = MeasurementConfig(rounds=1, processes=2, max_processes=2, network_visits=3)


def of_networks(folder: Path) -> None:
    """The table of pairs of targets in that of whole networks, by layout or copies."""
    known: dict[tuple[Target, str], dict[tuple[str, int], float]] = defaultdict(dict)
    for row in read_rows([folder], itertools.chain.from_iterable(FAMILIES.values())):
        if not row.suspect:
            alike = " ".join(filter(None, (row.layout, "with copies" if row.copies else "")))
            known[row.target, alike][row.onnx, row.batch] = row.latency_us
    print("| pair | rows | median ratio | sd of log | rms of log |\n|---|---|---|---|---|")
    for left, right in itertools.combinations(sorted(known), 2):
        (a, layout), (b, other) = left, right
        differs = (a.version != b.version) + (a.precision != b.precision)
        both = known[left].keys() & known[right].keys()
        same = (a.device, a.engine, layout) == (b.device, b.engine, other)
        if same and differs == 1 and len(both) >= LEAST:
            logs = np.log([known[right][k] / known[left][k] for k in sorted(both)])
            ratio, name = np.exp(np.median(logs)), f"{b} / {a} {layout}".strip()
            rms = np.sqrt(np.mean(logs**2))
            print(f"| {name} | {len(logs)} | {ratio:.2f} | {np.std(logs):.2f} | {rms:.2f} |")


def of_cells(there: TargetData, here: TargetData) -> str:
    """The parts of ln(ratio) of the cells of two versions, most likely by a normal law."""
    pairs = pairs_of(here, there)
    kinds = sorted({name for pair in pairs for name, _ in pair.kinds})
    shares = np.array([[dict(pair.kinds).get(name, 0.0) for name in kinds] for pair in pairs])
    logs, noise = (np.array([getattr(p, name) for p in pairs]) for name in ("log_ratio", "noise"))
    common = float(np.average(logs, weights=noise**-2.0))

    def likelihood(kind: float, cell: float) -> float:
        each = np.hypot(cell, noise)
        rest = np.clip(logs - common, -3 * each, 3 * each)
        root = np.linalg.cholesky(kind**2 * shares @ shares.T + np.diag(each**2))
        white = np.linalg.solve(root, rest)
        return float(-white @ white / 2 - np.log(np.diag(root)).sum())

    kind, cell = max(itertools.product(GRID, GRID), key=lambda both: likelihood(*both))
    far = np.abs(logs - common) > 3 * np.sqrt(kind**2 + cell**2 + noise**2)
    return (
        f"| {here.target} / {there.target} | {len(pairs)} | {common:+.3f} | {kind:.3f} | "
        f"{cell:.3f} | {np.median(noise):.3f} | {100 * far.mean():.0f} % |"
    )


def add_to(store: Store, networks: Sequence[Path]) -> None:
    """Networks and all their cells at the installed version; what is known is not measured again.

    Each is measured in two processes, and no answer of the other versions shortens that.
    """
    backend = open_backend("onnxruntime")
    known = {m.signature for m in store.measurements(backend.target) if m.latency_us}
    for path in networks:
        labels = {"network": path.stem}
        network = onnx_io.read_network(path)
        whole, uses = sign(network), Counter[str]()
        jobs = {whole.hash: Job(whole, network, "network", labels)}
        for cell in cut(backend.lower(network)):
            signature = sign(cell.network)
            uses[signature.hash] += 1
            jobs.setdefault(signature.hash, Job(signature, cell.network, "cell", labels))
        new = [job for name, job in jobs.items() if name not in known]
        store.add_signatures({job.signature.hash: job.signature.text for job in new})
        found = measure(backend, new, store, CONFIG)
        known |= {job.signature.hash for job in new}
        parts = tuple(uses.items())
        store.add_breakdowns([Breakdown(backend.target, path.stem, whole.hash, parts, (), labels)])
        print(f"{backend.target} {path.stem}: {len(found)} measured", file=sys.stderr)


def of_store(path: Path) -> None:
    """The table of a store, and the play."""
    print("| pair | cells | common | kind | cell | noise | beyond 3 |")
    print("|---|---|---|---|---|---|---|")
    with Store(path) as store:
        targets = sorted(store.targets(), key=str)
        for pair in itertools.combinations([TargetData(each, store) for each in targets], 2):
            print(of_cells(*pair))
        there, here = (load(target, [store]) for target in targets[-2:])
        print(f"\n{here.target} first met, {len(here.complete_networks)} networks:")
        for each in first_met(here, [store], there, [0.05]):
            error, device_s = each.score.rmspe, each.score.device_s
            ends = [p.interval_us[1] / p.predicted_us for p in each.predictions if p.interval_us]
            print(f"{each.regime} {each.method}: RMSPE {error:.1f} %, {device_s:.0f} s measured")
            if ends:
                holds = 100 * each.score.coverage
                print(f"    half-width {100 * np.mean(ends) - 100:.1f} %, holds {holds:.0f} %")


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--measure", type=Path, nargs="+", metavar="NET.onnx", default=())
    given = parser.parse_args()
    if given.measure and given.store:
        with Store(given.store) as store:
            add_to(store, given.measure)
    elif given.store:
        of_store(given.store)
    else:
        of_networks(given.data / "whole_networks")


if __name__ == "__main__":
    main()
