"""A Jetson in a mode with more clock, memory and host is never slower, whatever was measured."""

import itertools
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hybridlat.engines import device_sheets
from hybridlat.engines.registry import lower
from hybridlat.estimate.lookup.named_target import newest_on_record, targets_on_record
from hybridlat.graph.cells import cut
from hybridlat.graph.signature import sign
from hybridlat.model.family import shipped
from hybridlat.model.family.model import FamilyModel
from hybridlat.model.family.observations import kernel_set
from hybridlat.model.family.physics import KernelTable, table_of_texts
from hybridlat.model.family.tasks import Task
from hybridlat.onnx_io import read_network
from hybridlat.schema.device import Device
from hybridlat.schema.target import Target

NAMES = (
    "bvlc_alexnet efficientnet_b0 lcnet_100 mobilenetv2_100 mobilenetv3_small_100 resnet18 "
    "resnet50 shufflenet_v2 squeezenet yolo_cross_stage"
)
NETS = [Path(__file__).parents[2] / f"data/nets/{name}.onnx" for name in NAMES.split()]
ALL: dict[str, list[Device]] = defaultdict(list)
for _name in device_sheets.names():
    _sheet = device_sheets.load(_name)
    if _sheet.shares_memory and _sheet.kind == "gpu":
        ALL[Task(_name.removesuffix("-super"), "", "").board].append(_sheet.under("tensorrt"))
BOARDS = {board: modes for board, modes in ALL.items() if len(modes) > 1}
STEADY = 1.02  # what waves leave where two modes differ by a memory clock alone
PAIRS = [pair for modes in BOARDS.values() for pair in itertools.permutations(modes, 2)]
LESS_CLOCK_FOR_MORE_POWER = {("orin-nx-15w", "orin-nx-25w")}  # 612 and 408 MHz, more cores


def rates(mode: Device) -> tuple[float, ...]:
    return mode.peak("fp32"), mode.bandwidth_bytes_per_s, 1 / (mode.launch_us or 1)


def is_above(more: Device, less: Device) -> bool:
    return all(a >= b for a, b in zip(rates(more), rates(less), strict=True))


@cache
def table(net: Path, precision: str) -> KernelTable:
    cells = cut(lower(read_network(net, 1), Target("orin-nano", "tensorrt-8.5", precision)))
    texts = Counter(sign(cell.network).text for cell in cells)
    return table_of_texts(list(texts), list(texts.values()))


def model() -> FamilyModel:
    (folder,) = shipped.folders("tensorrt", Path())
    return shipped.load(folder)


@cache
def runtime_on_record(mode: str, precision: str) -> str:
    return newest_on_record(Target(mode, "tensorrt", precision), targets_on_record(None)).runtime


@cache
def latencies_us(mode: str, runtime: str, precision: str) -> NDArray[np.float64]:
    sheet = device_sheets.load(mode).under("tensorrt")
    task = shipped.task_of(Target(mode, runtime, precision), model().tasks, sheet.architecture)
    sets = [kernel_set(table(net, precision), sheet, precision) for net in NETS]
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
                slower.append((less.name, more.name, version or "no version", NETS[i].stem))
    assert not slower


def test_more_power_means_more_of_everything_but_where_nvidia_has_it_otherwise() -> None:
    otherwise = {
        (less.name, more.name)
        for less, more in PAIRS
        if (less.power_w or 0) < (more.power_w or 0) and not is_above(more, less)
    }
    assert otherwise == LESS_CLOCK_FOR_MORE_POWER
