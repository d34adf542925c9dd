"""Kernels as rows and what a sheet says of them; what tasks make of kernels, and share."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.public_data.kernel_tables import kernel_table, unfused
from hybridlat.engines import registry
from hybridlat.model.family.embedding import DESCRIPTORS, LAUNCH, Hyper
from hybridlat.model.family.observations import (
    DISPATCH_US,
    GROUPED,
    HOST_ROW,
    TaskNetwork,
    kernel_set,
    task_base,
)
from hybridlat.model.family.physics import CLASSES, HOST, KernelTable, at_batch, power_slowdown
from hybridlat.model.family.shipped import task_of
from hybridlat.model.family.tasks import Relations, Sharing, Task, label_of
from hybridlat.model.geometry import COLUMN
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.model.family.worlds import GPU, table
from tests.networks import NETS, Builder
from tests.onnx_io.test_reading_shapes import model

TENSORRT = Target.parse("v100/tensorrt-8.6/fp32")


def _rows(table: KernelTable) -> set[tuple[float, ...]]:
    rows = np.column_stack([table.values, table.classes, table.counts])
    return {tuple(np.round(row, 6)) for row in rows}


@pytest.mark.parametrize("name", ["resnet18", "squeezenet", "mobilenetv3_small_100"])
def test_a_larger_batch_is_the_same_as_lowering_at_it(name: str) -> None:
    once, at_four = (
        kernel_table(registry.lower(read_network(NETS / f"{name}.onnx", batch=batch), TENSORRT))
        for batch in (1, 4)
    )
    assert _rows(at_batch(once, 4)) == _rows(at_four)
    assert at_batch(once, 4).copied_bytes == at_four.copied_bytes


TABLE = "g (int64[{},16] x) => (float[a,b,c] y) {{ e = Gather(t, x) y = Softmax(e) }}"
LAYERS = [
    f"g (float[{{}},16,8] x) => (y) {{{{ {result} = GRU<hidden_size = 8, layout = 1>(x, w, w) }}}}"
    for result in ("y", '"", y')
]


@pytest.mark.parametrize("text", [TABLE, *LAYERS])
def test_a_table_has_no_batch_and_a_recurrent_layer_has_one_anywhere(text: str) -> None:
    weights = {"t": (1, [900, 8])} if text == TABLE else {"w": (1, [1, 24, 8])}
    networks = [read_network(model(text.format(batch), weights)) for batch in (1, 4)]
    once, at_four = (kernel_table(unfused(network)) for network in networks)
    sizes = [COLUMN[name] for name in ("batch", "h_out", "m")]
    assert at_batch(once, 4).values[:, sizes].tolist() == at_four.values[:, sizes].tolist()


def test_a_product_behind_a_view_is_as_deep_as_its_weight() -> None:
    net = Builder()
    flat = net.flatten(net.input((1, 512, 7, 7)))
    made = net.op("Gemm", [flat, net.weight((4096, 25088))], (1, 4096), 13, {"transB": 1})
    table = kernel_table(registry.lower(net.network(made), TENSORRT))
    (row,) = table.values[table.classes == CLASSES.index("matmul")]
    assert row[COLUMN["k"]] == 25088
    assert row[COLUMN["flop"]] == 2 * 4096 * 25088


POSITIVE = st.floats(1e-3, 1e6)


@given(POSITIVE, POSITIVE, st.floats(0, 1e6), st.floats(0.05, 0.99))
def test_power_is_limited_over_the_whole_network(
    compute_us: float, memory_us: float, other_us: float, share: float
) -> None:
    slowdown = power_slowdown(compute_us, memory_us, other_us, share)
    took_us = slowdown * compute_us + memory_us + other_us
    assert slowdown >= 1.0
    # All its operations at the limit take that long, and no network is slowed down any further.
    assert took_us >= compute_us / share * (1 - 1e-9)
    free_us = compute_us + memory_us + other_us
    assert took_us <= max(free_us, compute_us / share + memory_us) * (1 + 1e-9)
    assert slowdown >= power_slowdown(compute_us, memory_us, other_us + 1.0, share)


KERNELS = kernel_set(table(np.random.default_rng(1)), GPU, "fp32")
OLD = Task("v100", "paddle-tensorrt-2020", "fp32", copies=True)
VOLTA = replace(OLD, architecture="volta")
NEWER = replace(OLD, engine="paddle-tensorrt-8.0")


@pytest.mark.parametrize(
    ("one", "other", "parts"),
    [
        (OLD, NEWER, "device precision layout runtime generation"),
        (OLD, replace(OLD, engine="tensorrt-8.0"), "device precision layout generation"),
        (OLD, replace(OLD, precision="fp16"), "device engine layout runtime generation"),
        (OLD, replace(OLD, device="t4"), "engine precision layout runtime recipe"),
        (VOLTA, replace(VOLTA, device="titan-v"),
         "engine precision layout runtime recipe generation"),
        (VOLTA, replace(OLD, device="t4", architecture="turing"),
         "engine precision layout runtime recipe"),
        (OLD, OLD, "device engine precision layout task runtime recipe generation"),
    ],
)  # fmt: skip
def test_tasks_share_what_they_have_in_common(one: Task, other: Task, parts: str) -> None:
    variances = {name: 2.0**-i for i, name in enumerate(Sharing.__slots__)}
    shared = Sharing(**variances).between(Relations([one], [other]))[0, 0]
    assert shared == sum(variances[name] for name in ("all", *parts.split()))
    assert VOLTA == OLD  # a fact about the device tells no two tasks apart


@pytest.mark.parametrize(
    ("device", "board"),
    [("orin-nano-7w", "orin-nano"), ("orin-nano-super", "orin-nano-super"), ("tx2-max-q", "tx2"),
     ("orin-nx-8gb", "orin-nx-8gb"), ("rtx-pro-6000-max-q", "rtx-pro-6000-max-q")],
)  # fmt: skip
def test_modes_of_a_board_share_all_that_is_not_in_their_clocks(device: str, board: str) -> None:
    mode, plain = replace(OLD, device=device), replace(OLD, device=board)
    assert mode.board == board
    assert Sharing().between(Relations([mode], [plain]))[0, 0] == Sharing().total


def test_what_one_harness_timed_is_a_version_of_its_own_that_no_target_names() -> None:
    plain = Task("orin-nx", "tensorrt", "fp16")
    timed = [replace(plain, harness=name) for name in ("ultralytics", "trtutils")]
    target = Target("orin-nx", "tensorrt", "fp16")
    assert Sharing().between(Relations([plain], timed)) == pytest.approx(1.0 + 0.3 + 0.3 + 0.1)
    assert task_of(target, timed, [5, 120]) == timed[1]  # the most rows
    assert task_of(target, [*timed, plain], [5, 120, 1]) == plain
    assert task_of(replace(target, runtime="tensorrt-ultralytics"), timed, [5, 120]) == timed[0]
    assert task_of(replace(target, runtime="tensorrt-mlperf"), [], []) == plain
    assert {label_of(one) for one in (plain, *timed)} == {str(target)}


def test_old_engines_launch_each_group_and_a_graph_takes_half_of_launches() -> None:
    rows = KERNELS.descriptors.copy()
    rows[:, DESCRIPTORS.index("groups")] = 2.5  # thirty-two groups
    classes = np.where(KERNELS.classes < 4, GROUPED, KERNELS.classes)
    grouped = replace(KERNELS, classes=classes, descriptors=rows)
    old, new = (task_base(grouped, task) for task in (OLD, NEWER))
    widths = KERNELS.descriptors[:, DESCRIPTORS.index("group_width")]
    assert not ((old > new) & (widths == 0)).any()
    more = old > new
    assert more.any() and (grouped.classes[more] == GROUPED).all()
    assert (old[~more] == new[~more]).all()
    plain, replayed = (task_base(KERNELS, replace(OLD, graphs=g)) for g in (False, True))
    launches = KERNELS.base_us * KERNELS.descriptors[:, LAUNCH]
    assert plain - replayed == pytest.approx(0.5 * launches)
    assert (launches[KERNELS.classes < HOST] > 0).all()


def test_eager_pytorch_waits_for_whoever_is_slower_host_or_device() -> None:
    eager = replace(OLD, engine="torch-2.9", copies=False)
    base, autocast = (task_base(KERNELS, replace(eager, precision=p)) for p in ("fp32", "amp"))
    calls = KERNELS.counts[KERNELS.classes < HOST].sum()
    assert calls * DISPATCH_US < base[HOST_ROW] < autocast[HOST_ROW]
    assert (base[:HOST_ROW] == autocast[:HOST_ROW]).all()
    hyper, nothing = Hyper(overlap=3.0), np.zeros(len(base))
    for slower in (1e-3, 1.0, 1e3):
        scaled = np.append(base[:HOST_ROW] * slower, base[HOST_ROW:])
        network = TaskNetwork(KERNELS, eager, scaled, np.zeros((len(base), 1), np.float32))
        logarithm, share, *_ = network.linearise(nothing, hyper)
        device = float(KERNELS.counts[:HOST_ROW] @ scaled[:HOST_ROW])
        longer = max(device, base[HOST_ROW])
        assert longer <= np.exp(logarithm) <= min(device + base[HOST_ROW], 1.27 * longer)
        for row in (0, HOST_ROW):
            moved = nothing.copy()
            moved[row] = 1e-6
            change = network.linearise(moved, hyper).log_us - logarithm
            assert change / 1e-6 == pytest.approx(share[row], rel=1e-3, abs=1e-8)


PADDLE = Target("v100", "paddle-tensorrt-2020", "fp16")


def task(layout: str = "", copies: bool = False) -> Task:
    return Task(PADDLE.device, PADDLE.runtime, PADDLE.precision, layout, copies)


@pytest.mark.parametrize(
    ("known", "taken"),
    [
        ([], task(copies=True)),  # as is usual for the engine
        ([task(copies=True), task()], task(copies=True)),
        ([task()], task()),  # as it was measured
        ([task("nhwc"), task("nchw")], task("nchw", copies=True)),
        ([task("nhwc"), task()], task()),
        ([replace(task(), graphs=True)], replace(task(), graphs=True)),
        ([replace(task(copies=True), graphs=True), task()], task()),
    ],
)
def test_copies_count_as_usual_unless_measured_otherwise(known: list[Task], taken: Task) -> None:
    assert task_of(PADDLE, known, [1] * len(known)) == taken
