"""How fast cells are predicted: ``python tests/benchmarks/bench_model.py [--model FOLDER]``.

Prints times; asserts nothing, since they depend on the machine. Without a model it fits one to
3,000 rows of a made-up accelerator. The limits it is held against on one quiet core: 300 cells in
3 ms, 100,000 cells in 1 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from hybridlat.model import geometry
from hybridlat.model.fit import fit_model
from hybridlat.model.model_files import load_model
from hybridlat.model.training_problem import FitConfig
from tests.model.rows import DEVICE, latencies_us, texts


def best(work: Callable[[], object], repeats: int) -> float:
    """Shortest of several runs, in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path)
    folder = parser.parse_args().model
    cells = texts(100_000, top=512)
    if folder is None:
        model = fit_model(cells[:3000], latencies_us(cells[:3000]), cells[:3000], FitConfig(DEVICE))
    else:
        print(f"load: {best(lambda: load_model(folder), 5):.1f} ms")
        model = load_model(folder)
    few = cells[:300]

    def cold() -> None:
        geometry._memo.clear()
        model.predict(few)

    print(f"300 texts, never seen: {best(cold, 30):.2f} ms")
    print(f"300 texts, seen before: {best(lambda: model.predict(few), 30):.2f} ms")
    ready = geometry.geometry(few)
    print(f"300 cells as geometry: {best(lambda: model.predict_geometry(ready), 30):.2f} ms")
    geometry._memo.clear()
    print(f"100,000 texts scanned: {best(lambda: geometry.geometry(cells), 1):.0f} ms")
    many = geometry.geometry(cells)
    print(f"100,000 cells as geometry: {best(lambda: model.predict_geometry(many), 3):.0f} ms")
    print(f"100,000 texts, seen before: {best(lambda: model.predict(cells), 3):.0f} ms")


if __name__ == "__main__":
    main()
