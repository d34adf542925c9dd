"""Rows that were measured badly weigh less in a fit."""

from __future__ import annotations

import numpy as np
import pytest

from hybridlat.model.fit import best_shares, fit_model
from hybridlat.model.training_problem import MODEL_SHARE, FitConfig, trust_of
from tests.model.rows import DEVICE, latencies_us, texts


def test_trust_falls_with_noise() -> None:
    trust = trust_of(np.array([0.0, 0.02, MODEL_SHARE, 1.0, np.nan, np.inf]))
    assert trust[0] == 1.0 and trust[1] > 0.95 and trust[2] == pytest.approx(0.5)
    assert (np.diff(trust[:4]) < 0).all() and trust[4] == trust[5] == 0.0


def test_noisy_rows_pull_less() -> None:
    cells, unseen = texts(150), texts(60, seed=9)
    random = np.random.default_rng(3)
    noise = np.where(random.random(len(cells)) < 0.35, 1.0, 0.01)
    measured = latencies_us(cells) * np.where(noise > 0.5, 2.5, 1.0)
    truth = latencies_us(unseen, noise=0.0)

    def error(noise_shares: np.ndarray | None) -> float:
        model = fit_model(cells, measured, cells, FitConfig(DEVICE), noise_shares)
        said = np.array([p.latency_us for p in model.predict(unseen)], float)
        return float(np.median(np.abs(np.log(said / truth))))

    assert error(noise) < 0.85 * error(None)


def test_rows_without_trust_do_not_choose_the_shares() -> None:
    random = np.random.default_rng(0)
    truth = random.normal(size=2000)
    good, bad = truth + 0.01 * random.normal(size=2000), truth + random.normal(size=2000)
    spoiled = np.arange(2000) % 2 == 0  # here the good candidate seems far off
    seen = np.where(spoiled, bad, truth)
    candidates = np.stack([good, bad, bad], axis=1)
    trusting = best_shares(candidates, seen, trust=np.where(spoiled, 0.0, 1.0))
    assert trusting[0] > best_shares(candidates, seen)[0]
