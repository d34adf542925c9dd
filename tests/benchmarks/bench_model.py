"""How fast cells are predicted: ``python tests/benchmarks/bench_model.py --model FOLDER``.

Prints times; asserts nothing, since they depend on the machine. The limits that they are held
against on one quiet core: 300 cells in 3 ms, 100,000 cells in 1 s.
"""

import argparse
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from hybridlat.model import geometry
from hybridlat.model.model_files import load_model
from tests.model.rows import texts


def show(what: str, work: Callable[[], object], repeats: int) -> None:
    """Print the shortest of several runs."""
    print(f"{what}: {1e3 * min(timeit.repeat(work, number=1, repeat=repeats)):.2f} ms")


def main() -> None:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    folder = parser.parse_args().model
    show("load", lambda: load_model(folder), 5)
    model = load_model(folder)
    cells = texts(100_000, top=512)
    show("300 texts, never seen", lambda: model.predict(cells[:300]), 1)
    show("300 texts, seen before", lambda: model.predict(cells[:300]), 30)
    few = geometry.geometry(cells[:300])
    show("300 cells as geometry", lambda: model.predict_geometry(few), 30)
    many = geometry.geometry(cells)
    show("100,000 cells as geometry", lambda: model.predict_geometry(many), 3)


if __name__ == "__main__":
    main()
