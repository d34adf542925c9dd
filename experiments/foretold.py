"""Foretells shipped networks and some of NAS-Bench-201 on cards before we measure them.

    python experiments/foretold.py [--target TARGET ...] [--limit N]

One CSV a target in experiments/foretold/: network, latency and its 90 % interval, from the shipped
family model alone (no store). They are committed before the card is measured, to be held against it
on the day there is one, whatever comes out.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from onnx import ModelProto

from experiments import nasbench201
from hybridlat import Predictor

TARGETS = tuple(
    f"{card}/tensorrt-8.6/{precision}"
    for card in ("h100", "h200")
    for precision in ("fp32", "fp16")
)
NAS_SAMPLE = 24
FOLDER = ROOT / "experiments" / "foretold"


def networks(limit: int | None) -> Iterator[tuple[str, Path | ModelProto]]:
    """The shipped networks and a seeded sample of NAS-Bench-201, without cells of zeros alone."""
    for file in sorted((ROOT / "data" / "nets").glob("*.onnx"))[:limit]:
        yield file.stem, file
    draw, left = random.Random(201), NAS_SAMPLE if limit is None else limit
    while left:
        index = draw.randrange(nasbench201.ARCHITECTURES)
        architecture = nasbench201.arch_from_index(index)
        if nasbench201.live_edges(architecture):
            left -= 1
            yield f"nas{index}", nasbench201.build(architecture)


def foretell(target: str, limit: int | None) -> list[tuple[str, float, float, float]]:
    """(network, latency, low, high), all in us, of every network."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Predictor(target, store=f"{folder}/none.db", measure="never") as predictor,
    ):
        for name, model in networks(limit):
            estimate = predictor.predict(model)
            if estimate.latency_us is None or estimate.interval_us is None:
                raise SystemExit(f"{name} has no latency on {target}")
            rows.append((name, estimate.latency_us, *estimate.interval_us))
    return rows


def main() -> None:
    """All targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", nargs="*", default=list(TARGETS))
    parser.add_argument("--limit", type=int, default=None)
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for target in given.target:
        path = FOLDER / f"{target.replace('/', '_')}.csv"
        with path.open("w", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(("network", "latency_us", "low_us", "high_us"))
            for name, *values in foretell(target, given.limit):
                writer.writerow((name, *(f"{value:.1f}" for value in values)))
        print(path.relative_to(ROOT), flush=True)


if __name__ == "__main__":
    main()
