"""Kernels as rows, what a data sheet says of them, and how alike they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.public_data.kernel_tables import kernel_table
from hybridlat.engines import registry
from hybridlat.model.family.descriptors import describe
from hybridlat.model.family.physics import (
    CLASSES,
    KernelTable,
    at_batch,
    power_slowdown,
    view_of,
)
from hybridlat.model.geometry import COLUMN
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.model.family.worlds import GPU, table
from tests.networks import NETS, Builder

TENSORRT = Target.parse("v100/tensorrt-8.6/fp32")


def _rows(table: KernelTable) -> set[tuple[float, ...]]:
    rows = np.column_stack([table.values, table.classes, table.counts])
    return {tuple(np.round(row, 6)) for row in rows}


@pytest.mark.parametrize("name", ["resnet18", "squeezenet", "mobilenetv3_small_100"])
def test_a_larger_batch_is_the_same_as_lowering_at_it(name: str) -> None:
    file = NETS / f"{name}.onnx"
    once = kernel_table(registry.lower(read_network(file), TENSORRT))
    at_four = kernel_table(registry.lower(read_network(file, batch=4), TENSORRT))
    assert _rows(at_batch(once, 4)) == _rows(at_four)
    assert at_batch(once, 4).copied_bytes == at_four.copied_bytes


def test_a_product_behind_a_view_is_as_deep_as_its_weight() -> None:
    net = Builder()
    x = net.input((1, 512, 7, 7))
    flat = net.flatten(x)
    made = net.op("Gemm", [flat, net.weight((4096, 25088))], (1, 4096), 13, {"transB": 1})
    lowered = registry.lower(net.network(made), TENSORRT)
    table = kernel_table(lowered)
    (row,) = table.values[table.classes == CLASSES.index("matmul")]
    assert row[COLUMN["k"]] == 25088
    assert row[COLUMN["flop"]] == 2 * 4096 * 25088


POSITIVE = st.floats(1e-3, 1e6)


@given(
    compute_us=POSITIVE, memory_us=POSITIVE, other_us=st.floats(0, 1e6),
    share=st.floats(0.05, 0.99),
)  # fmt: skip
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


DEPTHWISE = CLASSES.index("conv depthwise")


def test_a_larger_last_cache_spares_memory_time() -> None:
    kernels = table(np.random.default_rng(1))
    _, small = describe(kernels, replace(GPU, cache_bytes=(128 * 1024, 2**20)), "fp32")
    _, large = describe(kernels, replace(GPU, cache_bytes=(128 * 1024, 64 * 2**20)), "fp32")
    count = len(kernels.values)
    assert (large[:count] <= small[:count]).all()
    assert (large[:count] < small[:count]).any()
    assert (large > 0).all()


def test_tensor_cores_do_not_serve_depthwise_convolutions() -> None:
    kernels = table(np.random.default_rng(2), 40)
    with_cores = replace(GPU, peak_flops={"fp32": 10e12, "fp16": 80e12})
    without = replace(GPU, peak_flops={"fp32": 10e12, "fp16": 10e12})
    _, fast = describe(kernels, with_cores, "fp16")
    _, slow = describe(kernels, without, "fp16")
    deep = np.append(kernels.classes == DEPTHWISE, [False, False])
    dense = np.append(kernels.classes == CLASSES.index("conv kxk"), [False, False])
    np.testing.assert_allclose(fast[deep], slow[deep])
    assert (fast[dense] < slow[dense]).all()


def test_computing_and_memory_overlap() -> None:
    kernels, no_cache = table(np.random.default_rng(3), 40), replace(GPU, kept_share=0.0)
    no_cache = replace(no_cache, cache_bytes=(1024, 1024))
    _, base_us = describe(kernels, no_cache, "fp32")
    _, computing_us = describe(kernels, replace(no_cache, bandwidth_bytes_per_s=1e15), "fp32")
    dense = kernels.classes == CLASSES.index("conv kxk")
    more_us, memory_us = base_us - computing_us, view_of(kernels, no_cache, "fp32").memory_us
    assert (more_us[:-2][dense] > 0).all()
    assert (more_us[:-2][dense] < 0.99 * memory_us[dense]).all()


def test_no_tensor_core_hides_the_steps_of_a_deep_product() -> None:
    kernels = table(np.random.default_rng(2), 40)
    _, base_us = describe(kernels, replace(GPU, peak_flops={"fp32": 10e12, "fp16": 1e18}), "fp16")
    dense = kernels.classes == CLASSES.index("conv kxk")
    steps = kernels.values[dense, COLUMN["k"]] / 32
    assert (base_us[:-2][dense] > steps * 100 / (GPU.clock_hz / 1e6)).all()
