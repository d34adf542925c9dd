"""A made-up accelerator for tests of learning: staircase, alignment step, launch, noise."""

import numpy as np

from experiments.public_data.convolutions import Convolution, conv_cell
from hybridlat.engines import device_sheets
from hybridlat.model.geometry import View, geometry

DEVICE = device_sheets.load("v100")


def texts(count: int, seed: int = 0, top: int = 256) -> list[str]:
    """Signature texts of random convolutions with at most ``top`` channels."""
    random = np.random.default_rng(seed)
    made: dict[str, None] = {}
    while len(made) < count:
        kernel = int(random.choice((1, 3, 5)))
        size = int(random.choice((7, 14, 28, 56)))
        shape = Convolution(
            1, int(random.integers(8, top)), (size, size), int(random.integers(8, top)),
            (kernel, kernel), int(random.integers(1, 3)), ((kernel - 1) // 2,) * 4, bias=True,
        )  # fmt: skip
        signature = conv_cell(shape, "Relu")
        assert signature is not None
        made[signature.text] = None
    return list(made)


def latencies_us(cells: list[str], seed: int = 0, noise: float = 0.03) -> np.ndarray:
    """What the made-up accelerator takes for each of them."""
    view = View(geometry(cells).values, DEVICE, "fp32")
    unaligned = np.where(view.c_out % 8 != 0, 1.4, 1.0)
    kernel_us = 8 + 1.7 * unaligned * view.wave_us((64, 64)) + view.memory_us
    return np.asarray(
        kernel_us * np.exp(noise * np.random.default_rng(seed).normal(size=len(cells)))
    )
