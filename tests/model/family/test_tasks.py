"""What tasks share, what a task makes of kernels, and what a target is taken for."""

from dataclasses import replace

import numpy as np
import pytest

from hybridlat.model.family.embedding import DESCRIPTORS, LAUNCH, Hyper
from hybridlat.model.family.observations import (
    DISPATCH_US,
    GROUPED,
    HOST_ROW,
    TaskNetwork,
    kernel_set,
    task_base,
)
from hybridlat.model.family.physics import HOST
from hybridlat.model.family.shipped import copies_of, task_of
from hybridlat.model.family.tasks import Relations, Sharing, Task, label_of
from hybridlat.schema.target import Target
from tests.model.family.worlds import GPU, table

OLD = Task("v100", "paddle-tensorrt-2020", "fp32", copies=True)


def test_versions_of_an_engine_share_what_another_engine_does_not() -> None:
    newer, other = replace(OLD, engine="paddle-tensorrt-8.0"), replace(OLD, engine="tensorrt-8.0")
    sharing = Sharing(runtime=0.3)
    version, engine = sharing.between(Relations([OLD], [newer, other]))[0]
    assert version - engine == pytest.approx(0.3)
    assert {one.runtime for one in (OLD, newer)} == {"paddle-tensorrt"}
    assert (replace(OLD, engine="torch-ngc").runtime, other.runtime) == ("torch", "tensorrt")


@pytest.mark.parametrize(
    ("device", "board"),
    [("orin-nano-7w", "orin-nano"), ("orin-nano-super", "orin-nano-super"), ("tx2-max-q", "tx2"),
     ("orin-nx-8gb", "orin-nx-8gb"), ("rtx-2080-super", "rtx-2080-super"),
     ("rtx-pro-6000-max-q", "rtx-pro-6000-max-q")],
)  # fmt: skip
def test_modes_of_a_board_share_all_that_is_not_in_their_clocks(device: str, board: str) -> None:
    mode, plain = replace(OLD, device=device), replace(OLD, device=board)
    assert mode.board == board
    assert Sharing().between(Relations([mode], [plain]))[0, 0] == Sharing().total


def test_gpus_of_a_generation_share_and_those_of_an_unknown_one_do_not() -> None:
    alike = [replace(OLD, device=name, architecture="volta") for name in ("titan-v", "xavier-nx")]
    newer, unknown = replace(OLD, device="t4", architecture="turing"), replace(OLD, device="x")
    nothing = replace(Sharing(), **dict.fromkeys(Sharing.__slots__, 0.0))
    shared = replace(nothing, generation=0.5).between(
        Relations(alike[:1], [alike[1], newer, unknown, replace(OLD, device="y")])
    )
    assert shared.tolist() == [[0.5, 0.0, 0.0, 0.0]]
    assert alike[0] == replace(alike[0], architecture="")  # a fact about the device


def test_what_one_harness_timed_is_a_version_of_its_own_that_no_target_names() -> None:
    plain = Task("orin-nx", "tensorrt", "fp16")
    timed = [replace(plain, harness=name) for name in ("ultralytics", "trtutils")]
    target = Target("orin-nx", "tensorrt", "fp16")
    assert Sharing().between(Relations([plain], timed)) == pytest.approx(1.0 + 0.3 + 0.3 + 0.1)
    assert task_of(target, timed) == timed[1]  # the first by name
    assert task_of(target, [*timed, plain]) == plain
    assert task_of(replace(target, runtime="tensorrt-ultralytics"), timed) == timed[0]
    assert task_of(replace(target, runtime="tensorrt-mlperf"), []) == plain
    assert {label_of(one) for one in (plain, *timed)} == {str(target)}


def test_old_engines_launch_a_grouped_convolution_for_each_group() -> None:
    kernels = kernel_set(table(np.random.default_rng(1)), GPU, "fp32")
    rows = kernels.descriptors.copy()
    rows[:, DESCRIPTORS.index("groups")] = 2.5  # thirty-two groups
    classes = np.where(kernels.classes < 4, GROUPED, kernels.classes)
    grouped = replace(kernels, classes=classes, descriptors=rows)
    old, new = (
        task_base(grouped, replace(OLD, engine=f"paddle-tensorrt-{v}")) for v in ("2020", "8.0")
    )
    widths = kernels.descriptors[:, DESCRIPTORS.index("group_width")]
    assert not ((old > new) & (widths == 0)).any()
    more = old > new
    assert more.any() and (grouped.classes[more] == GROUPED).all()
    assert (old[~more] == new[~more]).all()


def test_a_graph_takes_half_of_what_launches_take() -> None:
    kernels = kernel_set(table(np.random.default_rng(1)), GPU, "fp32")
    plain, replayed = (task_base(kernels, replace(OLD, graphs=g)) for g in (False, True))
    launches = kernels.base_us * kernels.descriptors[:, LAUNCH]
    assert plain - replayed == pytest.approx(0.5 * launches)
    assert (launches[kernels.classes < HOST] > 0).all()


def test_eager_pytorch_waits_for_whoever_is_slower_host_or_device() -> None:
    kernels = kernel_set(table(np.random.default_rng(1)), GPU, "fp32")
    eager = replace(OLD, engine="torch-2.9", copies=False)
    base, autocast = (task_base(kernels, replace(eager, precision=p)) for p in ("fp32", "amp"))
    calls = kernels.counts[kernels.classes < HOST].sum()
    assert calls * DISPATCH_US < base[HOST_ROW] < autocast[HOST_ROW]
    assert (base[:HOST_ROW] == autocast[:HOST_ROW]).all()
    hyper, nothing = Hyper(overlap=3.0), np.zeros(len(base))
    for slower in (1e-3, 1.0, 1e3):
        scaled = np.append(base[:HOST_ROW] * slower, base[HOST_ROW:])
        network = TaskNetwork(kernels, eager, scaled, np.zeros((len(base), 1), np.float32))
        logarithm, share, *_ = network.linearise(nothing, hyper)
        device = float(kernels.counts[:HOST_ROW] @ scaled[:HOST_ROW])
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
def test_copies_count_as_usual_unless_it_was_measured_otherwise(
    known: list[Task], taken: Task
) -> None:
    assert task_of(PADDLE, known) == taken


@pytest.mark.parametrize(
    ("stated", "paddle", "plain"), [(None, True, False), (True, True, True), (False, False, False)]
)
def test_copies_are_in_a_latency_as_stated_or_as_usual(
    stated: bool | None, paddle: bool, plain: bool
) -> None:
    assert copies_of(PADDLE, stated) is paddle
    assert copies_of(Target("v100", "tensorrt-8.6", "fp16"), stated) is plain
