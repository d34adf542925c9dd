"""How unsteady is this machine, and would another reading of its pace divide more of it out?

    python experiments/27_pace.py trace  --to DIR [--seconds 25]
    python experiments/27_pace.py visits --to DIR [--seconds 230]
    python experiments/27_pace.py show   --to DIR

``trace`` runs the reference network without a pause. ``visits`` visits networks of ``data/nets``
and some of their cells in a shuffled order, round after round, as measuring does, with the
reference read for 25 ms on each side. ``show`` prints how far means of windows of the trace differ,
and, for several readings of the pace, how far single visits of a thing are from the median of its
others: ``short`` is what the protocol reads (11 runs), ``k`` the part of the drift that is divided
out.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
NETS = ROOT / "data" / "nets"

Floats = NDArray[np.float64]
WINDOWS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.0)
NETWORKS, CELLS_EACH = 12, 5
READ_S = 0.025
SHORT_RUNS = 11
LEAST_ROUNDS = 4


def trace(folder: Path, seconds: float) -> None:
    """Start and duration (ns) of every run of the reference network."""
    from hybridlat import Predictor
    from hybridlat.graph.reference_networks import reference_network

    with Predictor(store=str(folder / "store.db")) as predictor:
        assert predictor.backend is not None
        session = predictor.backend.build(reference_network(), seed=9, lowered=False)
        session.run_us(2000)
        began, taken = [], []
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            for sample_us in session.run_us(1):
                began.append(now)
                taken.append(sample_us)
    np.savez(folder / "trace.npz", began_s=np.array(began), taken_us=np.array(taken))


def visits(folder: Path, seconds: float) -> None:
    """A line of JSON for each visit: what, how long, and the reference before and after."""
    from hybridlat import Predictor
    from hybridlat.api.sources import open_source
    from hybridlat.measuring.schedule import Job, replicas_for
    from hybridlat.measuring.visiting import WARM_RUNS, References, rotate

    predictor = Predictor(store=str(folder / "store.db"))
    rng = random.Random(7)
    paths = sorted(NETS.glob("*.onnx"))
    rng.shuffle(paths)
    jobs: list[Job] = []
    for path in paths[:NETWORKS]:
        opened = open_source(path, None, 1, None)
        partition = predictor.sessions.first.partition(opened)
        jobs.append(Job(partition.whole, opened.file.network(1, None), "network"))
        hashes = [use.signature for use in partition.uses]
        rng.shuffle(hashes)
        cells = predictor.sessions.first.measuring().cells(partition, hashes[:CELLS_EACH])
        jobs += [Job(h, n) for h, n in cells.items()]
    backend = predictor.backend
    assert backend is not None
    references = References(backend)

    def read() -> list[float]:
        references._session.run_us(WARM_RUNS)
        found: list[float] = []
        end = time.perf_counter() + READ_S
        while time.perf_counter() < end or len(found) < SHORT_RUNS:
            found += references._session.run_us(1)
        return found

    end, round_ = time.perf_counter() + seconds, 0
    with (folder / "visits.jsonl").open("w") as file:
        while time.perf_counter() < end:
            random.Random(round_).shuffle(jobs)
            for job in jobs:
                if job.kind == "network":
                    sessions = [backend.build(job.network, seed=1 + round_, lowered=False)]
                else:
                    count = replicas_for(job.network)
                    sessions = backend.build_replicas(
                        job.network, count=count, seed=1 + round_, lowered=True
                    )
                before = read()
                samples = rotate(sessions, 100.0 if job.kind == "network" else 25.0)
                after = read()
                for session in sessions:
                    session.close()
                line = {"key": job.key, "samples": samples, "before": before, "after": after}
                file.write(json.dumps(line) + "\n")
            round_ += 1


def show_trace(path: Path) -> None:
    """How far the means of windows differ."""
    found = np.load(path)
    at, logs = found["began_s"] - found["began_s"][0], np.log(found["taken_us"])
    for window_s in WINDOWS_S:
        which = (at / window_s).astype(int)
        counts = np.bincount(which)
        means = (np.bincount(which, logs) / np.maximum(counts, 1))[counts > 0]
        print(f"windows of {1e3 * window_s:5.0f} ms: {100 * means.std():5.1f} %")


def show_visits(path: Path) -> None:
    """How far single visits are from the median of the others of the same thing."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [line for line in lines if line["samples"] and line["before"] and line["after"]]
    middle, low = np.median, lambda values: np.quantile(values, 0.2)
    levels = {name: _logs(lines, f, "samples") for name, f in (("low", low), ("median", middle))}
    paces: dict[str, Floats] = {"none": np.zeros(len(lines))}
    for length, runs in (("short", SHORT_RUNS), ("long", None)):
        for name, f in (("median", middle), ("low", low)):
            paces[f"{length} {name}"] = _pace(lines, f, runs)
    paces["smoothed"] = np.array([
        np.median(paces["short median"][max(0, i - 1) : i + 2]) for i in range(len(lines))
    ])  # fmt: skip
    things: dict[str, list[int]] = {}
    for place, line in enumerate(lines):
        things.setdefault(line["key"], []).append(place)
    things = {key: places for key, places in things.items() if len(places) >= LEAST_ROUNDS}
    print("| level | pace | k | cells % | networks % |\n|---|---|---|---|---|")
    for level, logs in levels.items():
        for pace, divided in paces.items():
            for k in (1.0, 0.5) if pace != "none" else (0.0,):
                told = logs - k * divided
                spread = [_spread(told, things, kind) for kind in ("cell", "network")]
                print(f"| {level} | {pace} | {k} | {spread[0]:.1f} | {spread[1]:.1f} |")


def _logs(lines: list[dict[str, Any]], level: Callable[[list[float]], Any], key: str) -> Floats:
    return np.log([float(level(line[key])) for line in lines])


def _pace(
    lines: list[dict[str, Any]], level: Callable[[list[float]], Any], runs: int | None
) -> Floats:
    both = [level(line["before"][:runs]) + level(line["after"][:runs]) for line in lines]
    return np.log(np.array(both) / 2)


def _spread(told: Floats, things: dict[str, list[int]], kind: str) -> float:
    """Root mean square in %, what is far out drawn in to 50 %."""
    off = [
        told[place] - np.median([told[other] for other in places if other != place])
        for key, places in things.items()
        if key.startswith(kind)
        for place in places
    ]
    return 100 * float(np.sqrt(np.mean(np.clip(off, -0.5, 0.5) ** 2)))


def main() -> None:
    """One of the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("step", choices=("trace", "visits", "show"))
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--seconds", type=float)
    given = parser.parse_args()
    given.to.mkdir(parents=True, exist_ok=True)
    if given.step == "trace":
        trace(given.to, given.seconds or 25.0)
    elif given.step == "visits":
        visits(given.to, given.seconds or 230.0)
    else:
        show_trace(given.to / "trace.npz")
        show_visits(given.to / "visits.jsonl")


if __name__ == "__main__":
    main()
