"""Judging a made-up pack: nothing leaks, rows are as fixed, and the result repeats."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridlat.errors import InputError
from hybridlat.evaluation import evaluate
from hybridlat.evaluation.cross_fitting import Setting, cross_fit, fit_without
from hybridlat.evaluation.dataset import kernel_hashes, load
from hybridlat.evaluation.network_level import judge_networks
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.store import Store
from tests.evaluation.made_pack import DEVICE, TARGET, FlatModel, conv, made_store
from tests.evaluation.test_metrics import FIXED_KEYS

FAST = ("lookup_only", "roofline", "flops_linear", "layerwise_measured")


@pytest.fixture(scope="module")
def judged(store_url: str) -> evaluate.Evaluation:
    return evaluate.evaluate_targets(
        [TARGET], store=store_url, device=DEVICE, baselines=FAST, track=False
    )


def test_every_regime_and_method_has_a_row(judged: evaluate.Evaluation) -> None:
    rows = judged.to_json()
    assert all(list(row) == FIXED_KEYS for row in rows)
    found = {(row["regime"], row["method"]) for row in rows}
    for regime in ("measured", "unseen", "gated@5%", "gated_cells@20%"):
        assert {(regime, m) for m in ("hybridlat", *FAST)} <= found
    assert {("gated_cells@10%", m) for m in ("share_only", "random", "perfect")} <= found


def test_figures_make_sense(judged: evaluate.Evaluation) -> None:
    rows = {(r.regime, r.method): r for r in judged.rows}
    measured = rows["measured", "hybridlat"]
    assert measured.score.rmspe is not None
    assert measured.score.rmspe < 3.0  # 1 % of noise in each network
    assert measured.score.measured_share == pytest.approx(1.0)
    assert measured.networks == 14
    assert measured.noise_floor == pytest.approx(1.6, abs=1.2)
    unseen = rows["unseen", "hybridlat"]
    assert unseen.score.measured_share == 0.0
    assert unseen.score.device_s == 0.0
    assert unseen.score.rmspe is not None
    assert rows["unseen", "lookup_only"].score.answered == 0
    assert rows["measured", "lookup_only"].score.answered == 14
    layers = rows["measured", "layerwise_measured"].score.rmspe
    assert layers is not None
    assert layers > 10  # unfused layers are made 15 % slower


def test_calibration_says_what_each_confidence_holds(judged: evaluate.Evaluation) -> None:
    rows = {(r.regime, r.method): r for r in judged.rows}
    for regime in ("measured", "unseen", "gated@5%", "gated_cells@20%", "unseen_cells"):
        row = rows[regime, "hybridlat"]
        levels = row.calibration
        assert [level.confidence for level in levels] == [0.5, 0.8, 0.9, 0.95, 0.99]
        if regime != "gated@5%":  # the gate makes the interval fit the tolerance
            widths = [level.width for level in levels]
            assert widths == sorted(set(widths))
            coverages = [level.coverage for level in levels]
            assert coverages == sorted(coverages)
        asked = next(level for level in levels if level.confidence == 0.9)
        assert asked.coverage == pytest.approx(row.score.coverage)
        assert asked.width == pytest.approx(row.score.width)
    measured = [level.measured_share for level in rows["gated@5%", "hybridlat"].calibration]
    assert measured == sorted(measured) and measured[0] < measured[-1]
    assert rows["unseen", "roofline"].to_json()["calibration"] is None


def test_gate_pays_for_what_it_measures(judged: evaluate.Evaluation) -> None:
    found = judged.reports[0].find("gated_cells@20%")
    assert found is not None
    for item in found.answers:
        assert item.cells_measured == math.ceil(0.2 * item.cells - 1e-9)
        assert item.device_s >= 0.1 * item.cells_measured


def test_nothing_of_a_held_out_network_is_learned_from(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(store_url) as store:
        records = load(TARGET, [store])
    setting = Setting(DEVICE, "fp32")
    seen: list[set[str]] = []

    def spy(texts: list[str], *rest: object, **options: object) -> object:
        seen.append({conv_hash for text in texts for conv_hash in kernel_hashes(text)})
        return FlatModel()

    monkeypatch.setattr("hybridlat.model.fit.fit_model", spy)
    networks = records.complete_networks
    place = {n.name: i % 3 for i, n in enumerate(networks)}
    fitted = cross_fit(records, networks, setting, place)
    assert len(seen) == 3
    for fold, trained_on in zip(sorted(fitted.folds), seen, strict=True):
        for network in fitted.folds[fold]:
            assert not trained_on & {h for h, _ in network.cells}


def test_judging_repeats_itself_but_for_the_clock(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.model.fit.fit_model", lambda *_, **__: FlatModel())
    with Store(store_url) as store:
        records = load(TARGET, [store])
    reports = [
        judge_networks(records, Setting(DEVICE, "fp32"), (0.05,), FAST, lambda _: None)
        for _ in range(2)
    ]
    rows = [
        [dataclasses.replace(row, predict_ms=None) for row in report.rows()] for report in reports
    ]
    assert rows[0] == rows[1]
    assert reports[0].curves == reports[1].curves


def test_perfect_choice_is_a_bound_and_all_cells_are_the_end(
    judged: evaluate.Evaluation,
) -> None:
    curves = judged.reports[0].curves
    for (share, best), (_, chance) in zip(curves["perfect"], curves["random"], strict=True):
        assert best <= chance + 1e-9, share
    ends = {method: points[-1][1] for method, points in curves.items()}
    np.testing.assert_allclose(list(ends.values()), ends["gate"], rtol=1e-9)


def test_a_pack_without_networks_is_judged_per_cell(tmp_path: Path) -> None:
    url = made_store(tmp_path, networks=0, sweep=150)
    found = evaluate.evaluate_targets(
        [TARGET], store=url, device=DEVICE, baselines=["roofline"], track=False
    )
    with Store(url) as store:
        count = len(load(TARGET, [store]).cells)
    largest = int(0.8 * count)
    rows = {(r.regime, r.method): r for r in found.rows}
    assert set(rows) == {
        (regime, method)
        for regime in (f"cells@{largest}", "gated_cells@20%")
        for method in ("hybridlat", "roofline")
    }
    whole, gated = rows[f"cells@{largest}", "hybridlat"], rows["gated_cells@20%", "hybridlat"]
    assert whole.networks == 0
    assert whole.cells == count - largest
    assert whole.score.rmspe is not None
    assert gated.score.rmspe is not None
    assert gated.score.rmspe < whole.score.rmspe
    assert gated.score.measured_share == pytest.approx(0.2, abs=0.03)


def test_our_model_alone_is_not_fitted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []

    def spy(texts: list[str], *rest: object, **options: object) -> object:
        fits.append(len(texts))
        return FlatModel()

    monkeypatch.setattr("hybridlat.model.fit.fit_model", spy)
    url = made_store(tmp_path, networks=0, sweep=150)
    names = ["model_only", "layerwise_learned"]
    found = evaluate.evaluate_targets(
        [TARGET], store=url, device=DEVICE, baselines=names, track=False
    )
    assert len(fits) == 3  # one a seed
    rows = {(r.regime, r.method): r for r in found.rows}
    for regime in {regime for regime, _ in rows}:
        own, alone = rows[regime, "hybridlat"].score, rows[regime, "model_only"].score
        assert alone.rmspe == own.rmspe
    assert {method for _, method in rows} == {"hybridlat", "model_only"}
    assert "layerwise_learned cannot be judged" in found.reports[0].notes[0]


def test_whole_networks_without_cells_are_named(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        store.add([Measurement(TARGET, "0" * 32, "network", 5.0)])
        store.add_breakdowns([Breakdown(TARGET, "lone", "0" * 32, (("1" * 32, 2),))])
    with pytest.raises(InputError, match="only whole networks are recorded"):
        evaluate.evaluate_targets([TARGET], store=store.url, device=DEVICE, track=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regimes": ["unsen"]}, "choose one of measured, unseen"),
        ({"regimes": ["cells@300"]}, "there is measured, unseen"),
        ({"baselines": ["luck"]}, "'luck' is not a baseline"),
        ({"where": {"batch": "one"}}, "batch is a number"),
        ({"where": {"batch": "7", "k_h": "1"}}, "no measured cells .* batch=7 k_h=1"),
    ],
)
def test_what_cannot_be_judged_is_said(
    options: dict[str, Any], words: str, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.model.fit.fit_model", lambda *_, **__: FlatModel())
    options = {"baselines": [], **options}
    with pytest.raises(InputError, match=words):
        evaluate.evaluate_targets([TARGET], store=store_url, device=DEVICE, track=False, **options)


def test_a_filter_keeps_the_cells_it_names(store_url: str) -> None:
    with Store(store_url) as store:
        every = load(TARGET, [store])
        pointwise = load(TARGET, [store], {"k_h": "1"})
    assert 0 < len(pointwise.cells) < len(every.cells)
    assert conv(16, 7, 16, 3).hash not in pointwise.cells
    with Store(store_url) as store, pytest.raises(InputError, match="no measured cells"):
        load(TARGET, [store], {"batch": "7"})


def test_an_empty_store_says_what_to_do(tmp_path: object) -> None:
    with pytest.raises(InputError, match="measure"):
        evaluate.evaluate_targets([TARGET], store=f"{tmp_path}/none.db", device=DEVICE, track=False)


def test_too_few_networks_named(store_url: str) -> None:
    with pytest.raises(InputError, match="none of the 1 networks"):
        evaluate.evaluate_targets(
            [TARGET], store=store_url, device=DEVICE, track=False, networks=["nope"]
        )


def test_the_real_model_learns_the_formula(store_url: str) -> None:
    with Store(store_url) as store:
        records = load(TARGET, [store])
    held = sorted(records.cells)[::5]
    model = fit_without(records, held, Setting(DEVICE, "fp32"))
    said = model.predict([records.cells[h].text for h in held])
    errors = [
        abs(p.latency_us / records.cells[h].latency_us - 1)
        for h, p in zip(held, said, strict=True)
        if p.latency_us is not None
    ]
    assert len(errors) == len(held)
    assert np.median(errors) < 0.15
