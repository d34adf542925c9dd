"""Networks with a known truth: cells whose errors are shared by network, kind and nearness."""

import numpy as np

from hybridlat.estimate.calibration import HeldOutNetwork
from hybridlat.estimate.compose.posterior import CellPrior, Correlation, ErrorPosterior

KINDS = ("conv3x3", "conv1x1", "depthwise", "pool", "gemm")
TRUE = Correlation(network=0.15, kind=0.2, near=0.4, length_scale=1.0)


def make_network(seed: int, cells: int = 20) -> HeldOutNetwork:
    """One network; its cells' predictions err by about 15 % as ``TRUE`` says."""
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
                coordinates=tuple(float(v) for v in rng.uniform(3, 9, 3)),
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
