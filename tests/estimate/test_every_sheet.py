"""Every GPU with a data sheet answers every cell, none quicker than the sheet allows."""

import itertools
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np

from hybridlat.engines import device_sheets
from hybridlat.engines.registry import lower
from hybridlat.estimate.predict.family import Family
from hybridlat.estimate.predict.source import NetworkCells
from hybridlat.graph.cells import cut
from hybridlat.graph.network import Network
from hybridlat.graph.signature import sign
from hybridlat.model.family import shipped
from hybridlat.model.family.observations import kernel_set
from hybridlat.model.family.physics import table_of_texts
from hybridlat.model.geometry import View, geometry
from hybridlat.onnx_io import read_network
from hybridlat.schema.device import STRICT
from hybridlat.schema.target import Target

NETS = sorted((Path(__file__).parents[2] / "data/nets").glob("*.onnx"))
GPUS = [name for name in device_sheets.names() if device_sheets.load(name).kind == "gpu"]
WAYS = (
    *itertools.product(["tensorrt"], ("fp32", "fp32-strict", "fp16", "int8"), (1, 64)),
    *itertools.product(("torch", "torch-compile"), ("fp32", "amp", "fp16"), (1, 64)),
)


@cache
def network(net: Path, batch: int) -> Network:
    return read_network(net, batch)


@cache
def cells(net: Path, engine: str, precision: str, batch: int) -> NetworkCells:
    target = Target.parse(f"rtx-4090/{engine}/{precision}")  # all GPUs have an engine's cells
    found = cut(lower(network(net, batch), target))
    signatures = {signed.hash: signed.text for signed in (sign(c.network) for c in found)}
    counts = Counter(sign(c.network).hash for c in found)
    numbers = tuple(counts[h] for h in signatures)
    return NetworkCells(tuple(signatures), numbers, 0.9, lambda: signatures, lambda: 0.0)


Ways = Iterable[tuple[str, str, int]]


def wrong(gpus: Iterable[str], nets: Iterable[Path], ways: Ways) -> list[str]:
    """What is above 0.9 of what a sheet allows, or off the base by ten."""
    found = []
    for gpu, (engine, precision, batch), net in itertools.product(gpus, ways, nets):
        target = Target.parse(f"{gpu}/{engine}/{precision}")
        device, (folder,) = device_sheets.of_target(target), shipped.folders(engine, Path())
        family = Family(shipped.load(folder), device, target)
        asked = cells(net, engine, precision, batch)
        law = family.network(asked)
        each = np.array(law.cells_us)
        kernels = geometry(asked.texts)
        v = View(kernels, device, precision)
        tf32 = device.peak("tf32" if precision == "fp32" else precision)
        # Winograd's way needs 2.25 times fewer multiplications, on plain units.
        plain = np.where((v.k_h == 3) & (v.groups == 1), 2.25 * device.peak(STRICT), 0.0)
        best = v.flop / np.maximum(np.maximum(v.peak_flops, tf32), plain) * 1e6
        best_us = np.bincount(kernels.cell, best, len(each))
        every = kernel_set(table_of_texts(asked.texts, asked.counts), device, precision)
        ratio = (each @ asked.counts + law.beside_us) / (every.counts @ every.base_us)
        if not (each > 0).all() or (best_us > 0.9001 * each).any() or not 0.1 < ratio < 10:
            most = float((best_us / each).max())
            found.append(f"{target} {net.stem} {batch}: {most:.2f} of the peak, base x {ratio:.2f}")
    return found


def test_no_cell_is_quicker_than_a_sheet_allows() -> None:
    networks = [net for net in NETS if net.stem in ("repvgg_a0", "convnext_atto", "squeezenet")]
    assert len(NETS) == 60 and len(networks) == 3
    for (i, net), (j, way) in itertools.product(enumerate(networks), enumerate(WAYS)):
        assert not wrong(GPUS[(7 * i + j) % 20 :: 20], [net], [way])
    for i, net in enumerate(NETS[::7]):
        assert not wrong(GPUS[i::12], [net], [WAYS[2 * i + i % 2]])
