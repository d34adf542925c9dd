"""Networks without places where a single tensor is live: do the cells cut in between sum up?

    python experiments/26_cells_of_runs.py NET.onnx... --store sqlite:///runs.db

Each network is measured on this machine's CPU in one run: whole, by the runs between single live
tensors, as it was cut before, and by the cells of those runs. Nothing is fitted.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hybridlat.engines.base import Backend
from hybridlat.engines.registry import open_backend
from hybridlat.graph.cells import cells_of_run, run_positions
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.measuring.replicas import measure
from hybridlat.measuring.schedule import Job, MeasurementConfig
from hybridlat.onnx_io import read_network
from hybridlat.store import Store

TRUTH = MeasurementConfig(rounds=2, processes=2, max_processes=3)


def row(backend: Backend, store: Store, name: str, network: Network) -> tuple[str, float, float]:
    """The line of one network, and how far its runs and its cells are from it, as shares."""
    lowered = backend.lower(network).network
    runs = run_positions(lowered)
    cells = [cell for run in runs for cell in cells_of_run(lowered, run)]
    whole = Job(sign(network), network, "network", {"network": name})
    parts = {part: lowered.subnetwork(part) for part in (*runs, *cells)}
    jobs = {part: Job(sign(cell), cell, "cell", whole.labels) for part, cell in parts.items()}
    records = measure(backend, {"threads": 1}, [whole, *jobs.values()], store, TRUTH)
    us = {record.signature: record.latency_us or math.nan for record in records}
    whole_us = us[whole.signature.hash]
    far = [sum(us[jobs[p].signature.hash] for p in ps) / whole_us - 1 for ps in (runs, cells)]
    counts = f"{len(runs)} | {len(cells)} | {max(map(len, runs))}"
    return f"| {name} | {whole_us:.0f} | {counts} | {far[0]:+.1%} | {far[1]:+.1%} |", *far


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="+", type=Path)
    parser.add_argument("--store", required=True)
    chosen = parser.parse_args()
    backend = open_backend("onnxruntime", {"threads": 1})
    print("| network | µs | runs | cells | kernels of the longest run | runs | cells |")
    rows = []
    with Store(chosen.store) as store:
        for path in chosen.networks:
            rows.append(row(backend, store, path.stem, read_network(path)))
            print(rows[-1][0], flush=True)
    for far in ([each[1] for each in rows], [each[2] for each in rows]):
        rmspe = math.sqrt(sum(share**2 for share in far) / len(far))
        print(f"RMSPE {rmspe:.1%}, farthest {max(far, key=abs):+.1%}")


if __name__ == "__main__":
    main()
