"""Answers by data sheets: none quicker than its sheet or mode allows, intervals as calibrated."""

import itertools
import math
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hybridlat import Predictor, predict
from hybridlat.engines import device_sheets
from hybridlat.engines.registry import lower
from hybridlat.estimate.lookup.named_target import newest_on_record, targets_on_record
from hybridlat.estimate.predict.family import Family
from hybridlat.estimate.predict.source import NetworkCells
from hybridlat.graph.cells import cut
from hybridlat.graph.signature import sign
from hybridlat.model.family import shipped
from hybridlat.model.family.model import FamilyModel, half_width, interval_us
from hybridlat.model.family.observations import KernelSet, Observation, kernel_set
from hybridlat.model.family.physics import KernelTable, table_of_texts
from hybridlat.model.family.tasks import Task
from hybridlat.model.geometry import View, geometry
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import STRICT, Device, Target
from tests.networks import NETS

TARGETS = (
    "t4/tensorrt/fp16",
    "orin-nano-7w/tensorrt/fp16",
    "v100/paddle-tensorrt-8.0/fp16",  # of host to host
    "v100/torch-ngc/amp",  # whose hosts take most of the time at batch 1
    "a2/torch/fp32",  # of which nothing was measured
    "rtx-4090/torch-compile-2.4/amp",
)


def kernels_of(net: str, target: Target, copies: bool, batch: int = 1) -> KernelSet:
    network = read_network(NETS / f"{net}.onnx", batch)
    texts = [sign(cell.network).text for cell in cut(lower(network, shipped.timed_as(target)))]
    copied = network.copied_bytes if copies else 0.0
    table = table_of_texts(texts, [1.0] * len(texts), copied)
    return kernel_set(table, device_sheets.of_target(target), target.precision)


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("text", TARGETS)
def test_the_interval_served_is_the_calibrated_one(text: str, batch: int, tmp_path: Path) -> None:
    target = Target.parse(text)
    (folder,) = shipped.folders(shipped.FAMILY_OF[target.engine])
    model = shipped.load(folder)
    architecture = device_sheets.load(target.device).architecture
    task = shipped.task_of(target, model.tasks, model.seen, architecture)
    predictor = Predictor(target, store=f"sqlite:///{tmp_path}/s.db", measure="never")
    for net in ("mobilenetv2_100", "resnet18"):
        one = model.predict(kernels_of(net, target, task.copies, batch), task)
        estimate = predictor.predict(NETS / f"{net}.onnx", batch=batch)
        assert estimate.latency_us == pytest.approx(one.median_us, rel=1e-3)
        expected = interval_us(model.calibration, one, task)
        assert estimate.interval_us == pytest.approx(expected, rel=1e-3)
        for confidence, _ in estimate.reaches:  # the budget's probability is the calibrated one too
            end_us = one.median_us * math.exp(half_width(model.calibration, one, task, confidence))
            assert estimate.probability_below(end_us * 1.001) == pytest.approx(
                0.5 + confidence / 2, abs=0.01
            )


def test_known_networks_count_each_as_one_architecture_as_they_are_judged(tmp_path: Path) -> None:
    target, known = Target.parse("a2/torch/fp32"), {"mobilenetv2_100": 2e4, "resnet34": 3e4}
    (folder,) = shipped.folders("torch")
    model = shipped.load(folder)
    architecture = device_sheets.load(target.device).architecture
    task = shipped.task_of(target, model.tasks, model.seen, architecture)
    sets = {net: kernels_of(net, target, task.copies) for net in (*known, "resnet18")}
    rows = [Observation(sets[net], task, us, net) for net, us in known.items()]
    one = model.condition(rows).predict(sets["resnet18"], task)
    given = {NETS / f"{net}.onnx": us for net, us in known.items()}
    estimate = predict(NETS / "resnet18.onnx", target, known=given, store="sqlite://")
    assert estimate.latency_us == pytest.approx(one.median_us, rel=1e-3)
    expected = interval_us(model.calibration, one, task)
    assert estimate.interval_us == pytest.approx(expected, rel=1e-3)


NAMES = (
    "bvlc_alexnet efficientnet_b0 lcnet_100 mobilenetv2_100 mobilenetv3_small_100 resnet18 "
    "resnet50 shufflenet_v2 squeezenet yolo_cross_stage"
)
TEN = [NETS / f"{name}.onnx" for name in NAMES.split()]
ALL: dict[str, list[Device]] = defaultdict(list)
for _name in device_sheets.names():
    _sheet = device_sheets.load(_name)
    if _sheet.shares_memory and _sheet.kind == "gpu":
        ALL[Task(_name.removesuffix("-super"), "", "").board].append(_sheet.under("tensorrt"))
BOARDS = {board: modes for board, modes in ALL.items() if len(modes) > 1}
STEADY = 1.03  # what waves leave where two modes differ by a memory clock alone
PAIRS = [pair for modes in BOARDS.values() for pair in itertools.permutations(modes, 2)]


def rates(mode: Device) -> tuple[float, ...]:
    return mode.peak("fp32"), mode.bandwidth_bytes_per_s, 1 / (mode.launch_us or 1)


def is_above(more: Device, less: Device) -> bool:
    return all(a >= b for a, b in zip(rates(more), rates(less), strict=True))


@cache
def cells(net: Path, engine: str, precision: str, batch: int = 1) -> NetworkCells:
    target = Target.parse(f"rtx-4090/{engine}/{precision}")  # all GPUs have an engine's cells
    signed = [sign(cell.network) for cell in cut(lower(read_network(net, batch), target))]
    counts, texts = Counter(one.hash for one in signed), {one.hash: one.text for one in signed}
    uses = tuple(counts.values())
    return NetworkCells(tuple(counts), tuple(texts[h] for h in counts), uses, lambda: 0.0)


@cache
def table(net: Path, precision: str, batch: int = 1) -> KernelTable:
    of_net = cells(net, "tensorrt", precision, batch)
    return table_of_texts(of_net.texts, of_net.counts)


def model() -> FamilyModel:
    (folder,) = shipped.folders("tensorrt")
    return shipped.load(folder)


@cache
def runtime_on_record(mode: str, precision: str) -> str:
    return newest_on_record(Target(mode, "tensorrt", precision), targets_on_record(None)).runtime


@cache
def latencies_us(mode: str, runtime: str, precision: str) -> NDArray[np.float64]:
    sheet = device_sheets.load(mode).under("tensorrt")
    task = shipped.task_of(
        Target(mode, runtime, precision), model().tasks, model().seen, sheet.architecture
    )
    sets = [kernel_set(table(net, precision), sheet, precision) for net in TEN]
    return np.array([one.median_us for one in model().predict_all(sets, [task] * len(sets))])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("board", BOARDS)
def test_no_mode_is_quicker_than_one_that_has_more(board: str, precision: str) -> None:
    modes = [mode for mode in BOARDS[board] if precision in mode.peak_flops]
    known = {t.engine for t in model().tasks if (t.board, t.precision) == (board, precision)}
    slower = []
    for less, more in itertools.permutations(modes, 2):
        for version in (*known, "") if is_above(more, less) else ():
            less_us, more_us = (
                latencies_us(name, version or runtime_on_record(name, precision), precision)
                for name in (less.name, more.name)
            )
            for i in np.flatnonzero(more_us > STEADY * less_us):
                slower.append((less.name, more.name, version or "no version", TEN[i].stem))
    assert slower == []


def test_more_power_means_more_of_everything() -> None:
    assert not [
        (less.name, more.name)
        for less, more in PAIRS
        if (less.power_w or 0) < (more.power_w or 0) and not is_above(more, less)
    ]


GPUS = [name for name in device_sheets.names() if device_sheets.load(name).kind == "gpu"]
FIVE = [TEN[i] for i in (1, 3, 5, 6, 9)]


def base_us(gpu: str, precision: str, batch: int) -> list[float]:
    sheet = device_sheets.load(gpu).under("tensorrt")
    sets = (kernel_set(table(net, precision, batch), sheet, precision) for net in FIVE)
    return [float(one.counts @ one.base_us) for one in sets]


def figures(gpu: str) -> NDArray[np.float64]:
    """Those of a sheet, and each rate of one multiprocessor: a kernel of few tiles goes by that."""
    sheet = device_sheets.load(gpu).under("tensorrt")
    ways = ("fp32", STRICT, "tf32", "fp16", "int8")
    peaks = [sheet.peak(way) * share for way in ways for share in (1, sheet.sustained_share(way))]
    others = [sheet.units, sheet.clock_hz, *sheet.cache_bytes, *rates(sheet)[1:]]
    return np.array([*peaks, *(peak / sheet.units for peak in peaks), *others])


@pytest.mark.parametrize("batch", [1, 8])
def test_a_gpu_that_is_better_in_every_figure_is_no_slower_before_the_law(batch: int) -> None:
    """Within a generation; and FP16 is no slower than FP32. What was learned has exceptions."""
    every = {way: np.array([base_us(gpu, way, batch) for gpu in GPUS]) for way in ("fp32", "fp16")}
    sheets, of = [device_sheets.load(gpu) for gpu in GPUS], [figures(gpu) for gpu in GPUS]
    has_fp16 = [sheet.peak("fp16") > sheet.peak("fp32") for sheet in sheets]
    assert (every["fp16"] <= every["fp32"])[has_fp16].all()
    pairs = itertools.permutations(range(len(GPUS)), 2)
    alike = ((i, j) for i, j in pairs if sheets[i].architecture == sheets[j].architecture)
    better = [(i, j) for i, j in alike if (of[j] >= of[i]).all()]
    assert len(better) > 1000
    for us in every.values():
        assert not [(GPUS[i], GPUS[j]) for i, j in better if (us[j] > 1.0001 * us[i]).any()]


WAYS = (
    *itertools.product(["tensorrt"], ("fp32", "fp32-strict", "fp16", "int8"), (1, 64)),
    *itertools.product(("torch", "torch-compile"), ("fp32", "amp", "fp16"), (1, 64)),
)


def is_beyond_sheet(gpu: str, net: Path, engine: str, precision: str, batch: int) -> bool:
    """Whether a cell is above 0.9 of what a sheet allows, or the network off the base by ten."""
    target = Target.parse(f"{gpu}/{engine}/{precision}")
    device, (folder,) = device_sheets.of_target(target), shipped.folders(engine)
    of_net = cells(net, engine, precision, batch)
    law = Family(shipped.load(folder), device, target).network(of_net)
    each = np.array(law.cells_us)
    kernels = geometry(of_net.texts)
    v = View(kernels.values, device, precision)
    tf32 = device.peak("tf32" if precision == "fp32" else precision)
    # Winograd's way needs 2.25 times fewer multiplications, on plain units.
    plain = np.where((v.k_h == 3) & (v.groups == 1), 2.25 * device.peak(STRICT), 0.0)
    best = v.flop / np.maximum(np.maximum(v.peak_flops, tf32), plain) * 1e6
    best_us = np.bincount(kernels.cell, best, len(each))
    every = kernel_set(table_of_texts(of_net.texts, of_net.counts), device, precision)
    ratio = (each @ of_net.counts + law.beside_us) / (every.counts @ every.base_us)
    return bool(not (each > 0).all() or (best_us > 0.9001 * each).any() or not 0.1 < ratio < 10)


def test_no_cell_is_quicker_than_a_sheet_allows() -> None:
    drawn = [
        (gpu, NETS / f"{net}.onnx", *way)
        for (i, net), (j, way) in itertools.product(
            enumerate(("convnext_atto", "repvgg_a0", "squeezenet")), enumerate(WAYS)
        )
        for gpu in GPUS[(7 * i + j) % 40 :: 40]
    ]
    for i, net in enumerate(sorted(NETS.glob("*.onnx"))[::7]):
        drawn += [(gpu, net, *WAYS[2 * i + i % 2]) for gpu in GPUS[i::12]]
    assert len(drawn) > 250
    assert not [one for one in drawn if is_beyond_sheet(*one)]
