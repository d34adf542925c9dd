"""How wide and how right are intervals of cells that hold an operator without training?

Each operator of the CPU's pack is left out of training in turn, by a model of 2,000 of the other
rows, and the cells of several kernels that hold it are predicted.
"""

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from hybridlat.evaluation.cross_fitting import device_of
from hybridlat.evaluation.dataset import load
from hybridlat.evaluation.evaluate import sources_of
from hybridlat.model.fit import FitConfig, fit_model
from hybridlat.model.geometry import geometry
from hybridlat.schema.target import Target
from hybridlat.schema.workers import steady_fits
from hybridlat.store import Store

TARGET = Target.parse("epyc-26-2/onnxruntime-1.31/fp32/1t")
ROWS = 2000


@steady_fits()
def main() -> None:
    """One line an operator, then the means."""
    with Store("sqlite://") as store:
        dataset = load(TARGET, sources_of(TARGET, store))
        config = FitConfig(device_of(TARGET, store), TARGET.precision)
    hashes, groups, random = sorted(dataset.cells), dataset.groups(), np.random.default_rng(1)
    kernels = {h: geometry([dataset.cells[h].text]) for h in hashes}
    ops = {h: {cell.op(row) for row in range(len(cell.values))} for h, cell in kernels.items()}
    shares, halves = [], list[float]()
    for op in sorted(set().union(*ops.values())):
        rest = [h for h in hashes if op not in ops[h]]
        tested = [h for h in hashes if op in ops[h] and len(kernels[h].values) > 1]
        if len(tested) < 2 or len(rest) < ROWS:
            continue
        rest = [rest[i] for i in np.sort(random.permutation(len(rest))[:ROWS])]
        records = [dataset.cells[h] for h in rest]
        texts, spreads = [r.text for r in records], [r.spread_share for r in records]
        latencies_us = [r.latency_us for r in records]
        model = fit_model(texts, latencies_us, [groups[h] for h in rest], config, spreads)
        half, error = list[float](), list[float]()
        made = model.predict([dataset.cells[h].text for h in tested])
        for h, prediction in zip(tested, made, strict=True):
            if prediction.latency_us is not None and prediction.interval_us is not None:
                low_us, high_us = prediction.interval_us
                half.append(math.log(high_us / low_us) / 2)
                error.append(abs(math.log(dataset.cells[h].latency_us / prediction.latency_us)))
        if half:
            shares.append(float(np.mean(np.array(error) < half)))
            halves += half
            medians = f"half-width {np.median(half):.2f}, error {np.median(error):.2f}"
            print(f"{op}: {len(half)} cells, {shares[-1]:.0%} held, {medians} (logarithms)")
    means = f"{np.mean(shares):.0%} held, half-width {np.median(halves):.2f}"
    print(f"{len(halves)} cells of {len(shares)} operators: {means}")


if __name__ == "__main__":
    main()
