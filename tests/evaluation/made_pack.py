"""A store of made-up records: convolutions whose time follows a formula, and networks of them."""

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from experiments.public_data.convolutions import Convolution, conv_cell
from hybridlat.graph.signature import Signature
from hybridlat.model.geometry import Geometry
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.structure import CellPrediction
from hybridlat.schema.target import Device, Target
from hybridlat.store import Store

TARGET = Target("made", "maker-1.0", "fp32", 1)
DEVICE = Device("made", "cpu", {"fp32": 80e9}, 10e9, 1, 2e9, (32768, 1 << 20, 32 << 20))
LAUNCH_US = 2.0


class FlatModel:
    """A model that says 100 µs of everything: where what is tested is not the model."""

    confidence = 0.9

    device, precision = DEVICE, "fp32"

    def predict(self, texts: Sequence[str]) -> list[CellPrediction]:
        return [CellPrediction(100.0, (50.0, 200.0), True) for _ in texts]

    def predict_geometry(self, cells: Geometry) -> SimpleNamespace:
        return SimpleNamespace(latency_us=np.full(cells.cells, 100.0))


def conv(
    c_in: int, size: int, c_out: int, kernel: int, groups: int = 1, fused: bool = True
) -> Signature:
    sides, window, pads = (size, size), (kernel, kernel), (kernel // 2,) * 4
    shape = Convolution(1, c_in, sides, c_out, window, 1, pads, groups, bias=fused)
    made = conv_cell(shape, "Relu" if fused else "")
    assert made is not None
    return made


def formula_us(c_in: int, size: int, c_out: int, kernel: int, groups: int, twist: float) -> float:
    """Launch, roofline with 70 % of the peak, and a step where channels do not fill 16 lanes."""
    flop = 2.0 * size * size * c_out * (c_in // groups) * kernel * kernel
    moved = 4.0 * size * size * (c_in + c_out)
    fill = c_out / (16 * math.ceil(c_out / 16))
    return LAUNCH_US + twist * max(flop / (0.7 * 80e3 * fill), moved / 10e3)


def random_shape(rng: np.random.Generator) -> tuple[int, int, int, int, int]:
    size = int(rng.choice([7, 14, 28, 56]))
    c_in = int(rng.choice([16, 24, 32, 64, 96, 128]))
    if rng.random() < 0.25:
        return c_in, size, c_in, 3, c_in
    return c_in, size, int(rng.choice([16, 24, 32, 64, 96, 128])), int(rng.choice([1, 3])), 1


def fill(store: Store, networks: int, sweep: int, poisoned: bool = False) -> None:
    """Add the records; ``poisoned`` shuffles the latencies among the cells."""
    rng = np.random.default_rng([0, 0])
    texts, cells, layers = dict[str, str](), dict[str, float](), dict[str, float]()
    twist = {True: 1.3, False: 1.0}

    def add(shape: tuple[int, int, int, int, int]) -> tuple[str, str]:
        fused, lone = conv(*shape), conv(*shape, fused=False)
        texts[fused.hash], texts[lone.hash] = fused.text, lone.text
        if fused.hash not in cells:
            ideal = formula_us(*shape, twist[shape[4] > 1])
            cells[fused.hash] = ideal * math.exp(rng.normal(0, 0.02))
            layers[lone.hash] = 1.15 * cells[fused.hash] + LAUNCH_US
        return fused.hash, lone.hash

    for place in range(networks):
        pairs = sorted({add(random_shape(rng)) for _ in range(int(rng.integers(5, 10)))})
        counts = [int(rng.integers(1, 4)) for _ in pairs]
        total = sum(n * cells[h] for n, (h, _) in zip(counts, pairs, strict=True))
        truth = (5.0 + 1.03 * total) * math.exp(rng.normal(0, 0.01))
        name, key = f"net{place:03d}", f"{place:032x}"
        fused, lone = (tuple(zip(h, counts, strict=True)) for h in zip(*pairs, strict=True))
        store.add_breakdowns([Breakdown(TARGET, name, key, fused, lone)])
        store.add(
            Measurement(
                TARGET, key, "network", truth * math.exp(rng.normal(0, 0.01)), 0.01,
                labels={"repeat": str(k), "network": name}, measured_at=f"2026-01-0{k + 1}",
            )
            for k in range(2)
        )  # fmt: skip
    for _ in range(sweep):
        add(random_shape(rng))
    values = list(cells.values())
    if poisoned:
        values = [values[i] for i in rng.permutation(len(values))]
    store.add_signatures(texts)
    of_cells = zip(cells, values, strict=True)
    store.add(Measurement(TARGET, h, "cell", us, 0.01) for h, us in of_cells)
    store.add(Measurement(TARGET, h, "layer", us, 0.01) for h, us in layers.items())


def gone(*_: object, **__: object) -> None:
    """Stands for a call of MLflow's that fails."""
    raise ConnectionError("the server is gone")


def made_store(folder: Path, *, networks: int, sweep: int, poisoned: bool = False) -> str:
    """A filled store in ``folder``; its URL."""
    with Store(folder / "store.db") as store:
        fill(store, networks, sweep, poisoned)
    return store.url
