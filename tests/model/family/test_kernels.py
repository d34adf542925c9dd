"""Kernels as rows, what a data sheet says of them, and how alike they are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.public_data.kernel_tables import kernel_table
from hybridlat.engines import registry
from hybridlat.model.family.embedding import describe
from hybridlat.model.family.physics import CLASSES, KernelTable, at_batch, power_slowdown, view_of
from hybridlat.model.family.tasks import Array
from hybridlat.model.geometry import COLUMN
from hybridlat.onnx_io import read_network
from hybridlat.schema.target import Target
from tests.model.family.worlds import GPU, table
from tests.networks import NETS, Builder

TENSORRT = Target.parse("v100/tensorrt-8.6/fp32")
KERNELS = table(np.random.default_rng(2), 40)
DENSE, DEEP = (KERNELS.classes == CLASSES.index(f"conv {name}") for name in ("kxk", "depthwise"))


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


def base_us(precision: str = "fp32", **sheet: Any) -> Array:
    """The base of each kernel on a device of another data sheet."""
    return describe(KERNELS, replace(GPU, **sheet), precision)[1][:-2]


def test_a_larger_last_cache_spares_memory_time() -> None:
    small, large = (base_us(cache_bytes=(128 * 1024, size * 2**20)) for size in (1, 64))
    assert (large <= small).all() and (large < small).any() and (large > 0).all()


def test_tensor_cores_do_not_serve_depthwise_convolutions() -> None:
    slow, fast = (base_us("fp16", peak_flops={"fp32": 10e12, "fp16": p}) for p in (10e12, 80e12))
    np.testing.assert_allclose(fast[DEEP], slow[DEEP])
    assert (fast[DENSE] < slow[DENSE]).all()


def test_computing_and_memory_overlap() -> None:
    sheet: dict[str, Any] = {"kept_share": 0.0, "cache_bytes": (1024, 1024)}
    more_us = base_us(**sheet) - base_us(**sheet, bandwidth_bytes_per_s=1e15)
    memory_us = view_of(KERNELS, replace(GPU, **sheet), "fp32").memory_us
    assert (more_us[DENSE] > 0).all()
    assert (more_us[DENSE] < 0.99 * memory_us[DENSE]).all()


def test_no_tensor_core_hides_the_steps_of_a_deep_product() -> None:
    steps = KERNELS.values[DENSE, COLUMN["k"]] / 32
    made_us = base_us("fp16", peak_flops={"fp32": 10e12, "fp16": 1e18})
    assert (made_us[DENSE] > steps * 100 / (GPU.clock_hz / 1e6)).all()
