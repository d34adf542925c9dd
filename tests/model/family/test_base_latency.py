"""What a data sheet says of kernels: tiles, idle units, and a power limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from experiments.public_data.kernel_tables import at_batch
from hybridlat.model.family.kernels import KernelTable, parts_us, power_slowdown
from hybridlat.model.geometry import Geometry, View
from hybridlat.schema.device import Device
from tests.model.family.worlds import GPU, table

POSITIVE = st.floats(1e-3, 1e6)


def parts_of(
    kernels: KernelTable, device: Device
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    count = len(kernels.values)
    view = View(Geometry(kernels.values, np.arange(count), count, ("",)), device, "fp32")
    return parts_us(kernels, view)


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


def test_nothing_is_slowed_down_without_a_limit_or_without_computing() -> None:
    assert power_slowdown(0.0, 2.0, 5.0, 0.4) == 1.0
    assert power_slowdown(9.0, 2.0, 0.0, 1.0) == 1.0


def test_a_power_limit_costs_large_batches_most() -> None:
    one = table(np.random.default_rng(6))
    limited = replace(GPU, sustained_flops={"fp32": 0.2 * GPU.peak("fp32")})
    costs = []
    for batch in (1, 4, 64):
        kernels = at_batch(one, batch)
        free, held = (parts_of(kernels, device) for device in (GPU, limited))
        np.testing.assert_array_equal(free[:, 1:], held[:, 1:])
        assert (held[:, 0] >= free[:, 0]).all()
        costs.append(float((kernels.counts @ held).sum() / (kernels.counts @ free).sum()))
    assert 1.0 <= costs[0] <= costs[1] <= costs[2]
    assert costs[2] > 1.1


def test_a_kernel_of_few_outputs_is_made_of_small_tiles() -> None:
    """So on many units it is not as slow as one large tile would be, nor as quick as the peak."""
    kernels = table(np.random.default_rng(7), 60)
    wide = replace(GPU, units=160, peak_flops={"fp32": 4 * GPU.peak("fp32")})
    count = len(kernels.values)
    view = View(Geometry(kernels.values, np.arange(count), count, ("",)), wide, "fp32")
    compute_us = parts_us(kernels, view)[:, 0]
    tiled = kernels.classes < 2
    assert (compute_us[tiled] >= view.compute_us[tiled] * (1 - 1e-9)).all()
    assert (compute_us[tiled] <= view.wave_us((128, 128))[tiled] * (1 + 1e-9)).all()
    assert (compute_us[tiled] > 1.5 * view.compute_us[tiled]).any()
