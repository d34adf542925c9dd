"""Devices and networks that are known, made-up ones too, and the numbers of estimates of them."""

from pathlib import Path

import numpy as np

from hybridlat.estimate.calibration import HeldOutNetwork
from hybridlat.estimate.compose.posterior import CellPrior, ErrorPosterior
from hybridlat.estimate.partition import Partitioner
from hybridlat.onnx_io import load
from hybridlat.schema.estimate import Estimate
from hybridlat.schema.measurement import Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store

KINDS = ("conv3x3", "conv1x1", "depthwise", "pool", "gemm")
TRUE = 0.3  # of the variance of a cell's error


def make_known(device: str, store: str) -> None:
    """Keep one record of the device under an engine that no test asks for."""
    target = Target(device, "openvino-2024.1", "fp32", 1)
    with Store(store) as opened:
        opened.add([Measurement(target, "0" * 32, "cell", 1.0, 0.01)])


def keep_network(store: Store, target: Target, source: Path | bytes, latency_us: float) -> None:
    """Keep a network's latency with its cells, as measuring it does."""
    partition = Partitioner(target, store).partition(load(source))
    store.add_signatures(partition.texts)
    store.add_breakdowns([partition.breakdown(target, partition.whole)])
    store.add([Measurement(target, partition.whole, "network", latency_us, 0.01)])


def ends(estimate: Estimate) -> tuple[float, float, float]:
    """The lower end, the latency and the upper end, in µs."""
    assert estimate.latency_us is not None and estimate.interval_us is not None
    return estimate.interval_us[0], estimate.latency_us, estimate.interval_us[1]


def make_network(seed: int, cells: int = 20) -> HeldOutNetwork:
    """One whose truth is known: predictions of its cells err by 15 %, shared as ``TRUE`` says."""
    rng = np.random.default_rng(seed)
    priors = []
    for i in range(cells):
        kind = KINDS[int(rng.integers(len(KINDS)))]
        priors.append(
            CellPrior(
                signature=f"{seed:04d}-{i:03d}",
                count=int(rng.integers(1, 4)),
                latency_us=float(np.exp(rng.normal(4.0, 1.2))),
                spread_share=float(0.15 * np.exp(rng.normal(0, 0.3))),
                cost_s=float(0.1 + rng.random()),
                kinds=((kind, 1.0),),
            )
        )
    covariance = ErrorPosterior.start(priors, TRUE).covariance
    errors = np.linalg.cholesky(covariance) @ rng.normal(size=cells)
    measured = tuple(
        (float((f.latency_us or 0.0) * np.exp(e)), 0.01)
        for f, e in zip(priors, errors, strict=True)
    )
    total = sum(f.count * us for f, (us, _) in zip(priors, measured, strict=True))
    latency_us = (3.0 + 1.02 * total) * float(np.exp(rng.normal(0, 0.02)))
    return HeldOutNetwork(f"net{seed:04d}", latency_us, tuple(priors), measured)
