"""Judging a made-up pack: nothing leaks, rows are as fixed, and the result repeats."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import joblib
import numpy as np
import pytest
from msgspec import structs

from hybridlat.cli.evaluate import show
from hybridlat.errors import InputError
from hybridlat.estimate.lookup.target_data import TargetData
from hybridlat.evaluation import evaluate, leaderboard
from hybridlat.evaluation.cross_fitting import cross_fit
from hybridlat.evaluation.dataset import Dataset, kernel_hashes, load
from hybridlat.graph.signature import read, sign, sign_part
from hybridlat.model.fit import FitConfig
from hybridlat.schema.measurement import MachineLoad, Measurement
from hybridlat.schema.target import Target
from hybridlat.store import Store
from tests.cli.shell import call
from tests.evaluation.made_pack import DEVICE, TARGET, FlatModel, made_store
from tests.evaluation.test_metrics import FIXED_KEYS
from tests.networks import normal_form, residual_block

FAST = ("lookup_only", "roofline", "flops_linear", "layerwise_measured")


@pytest.fixture(scope="module")
def judged(store_url: str) -> evaluate.Evaluation:
    return _judge(store_url, baselines=FAST)


def _judge(url: str, targets: Sequence[Target] = (TARGET,), **options: Any) -> evaluate.Evaluation:
    chosen = evaluate.EvaluationOptions(**{"track": False, **options})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "device_of", lambda *_: DEVICE)
        return evaluate.evaluate_targets(targets, chosen, store=url)


REGIMES = ("measured", "unseen", "gated@5%", "gated_cells@20%")


def test_figures_make_sense(judged: evaluate.Evaluation, store_url: str) -> None:
    assert all(list(row) == FIXED_KEYS for row in judged.to_json())
    rows = {(r.regime, r.method): r for r in judged.rows}
    assert set(rows) == {(regime, m) for regime in REGIMES for m in ("hybridlat", *FAST)}
    measured = rows["measured", "hybridlat"]
    assert 0 < (measured.score.rmspe or 0) < 3.0  # 1 % of noise in each network
    assert measured.score.measured_share == pytest.approx(1.0)
    assert measured.networks == 14
    with Store(store_url) as store:
        repeats: dict[str, list[float]] = {}
        for record in store.measurements(TARGET, "network"):
            repeats.setdefault(record.signature, []).append(record.latency_us or math.nan)
    ratios = np.array([ratio for a, b in repeats.values() for ratio in (a / b, b / a)])
    assert measured.noise_floor == pytest.approx(100 * np.sqrt(np.mean((ratios - 1) ** 2)))
    unseen = rows["unseen", "hybridlat"]
    assert unseen.score.measured_share == unseen.score.device_s == 0.0
    assert unseen.score.rmspe is not None
    none = rows["unseen", "lookup_only"].to_json()
    assert (none["answered"], none["answered_share"]) == (0, 0.0)
    assert unseen.to_json()["answered_share"] == 1.0
    part = rows["gated_cells@20%", "lookup_only"]
    assert part.answered_share is not None and part.answered_share < 1
    assert part not in leaderboard.best(judged.rows)
    assert rows["measured", "lookup_only"].score.answered == 14
    # Unfused layers are made 15 % slower.
    assert (rows["measured", "layerwise_measured"].score.rmspe or 0) > 10


def test_calibration_says_what_each_confidence_holds(judged: evaluate.Evaluation) -> None:
    rows = {(r.regime, r.method): r for r in judged.rows}
    for regime in REGIMES:
        row = rows[regime, "hybridlat"]
        assert [*row.calibration] == [0.5, 0.8, 0.9, 0.95, 0.99]
        levels = [*row.calibration.values()]
        if regime != "gated@5%":  # the gate makes the interval fit the tolerance
            widths = [level.width or 0.0 for level in levels]
            assert widths == sorted(set(widths))
            coverages = [level.coverage or 0.0 for level in levels]
            assert coverages == sorted(coverages)
        asked = row.calibration[0.9]
        assert asked.coverage == pytest.approx(row.score.coverage)
        assert asked.width == pytest.approx(row.score.width)
    measured = [one.measured_share for one in rows["gated@5%", "hybridlat"].calibration.values()]
    assert measured == sorted(measured) and measured[0] < measured[-1]
    assert rows["unseen", "roofline"].to_json()["calibration"] is None


def test_gate_pays_for_what_it_measures(judged: evaluate.Evaluation) -> None:
    results = {(r.regime, r.method): r for r in judged.reports[0].results}
    for item in results["gated_cells@20%", "hybridlat"].predictions:
        assert item.cells_measured == math.ceil(0.2 * item.cells - 1e-9)
        assert item.device_s >= 0.1 * item.cells_measured


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The cells that each model was fitted to."""
    fits: list[list[str]] = []

    def spy(texts: list[str], *_: object, **__: object) -> object:
        fits.append(texts)
        return FlatModel()

    monkeypatch.setattr("hybridlat.model.fit.fit_model", spy)
    return fits


def test_nothing_held_out_is_learned_from(store_url: str, fits: list[list[str]]) -> None:
    with Store(store_url) as store:
        dataset = load(TARGET, [store])
    networks = dataset.complete_networks
    place = {n.name: i % 3 for i, n in enumerate(networks)}
    fitted = cross_fit(dataset, networks, FitConfig(DEVICE, "fp32"), place)
    seen = [{each for text in texts for each in kernel_hashes(text)} for texts in fits]
    for fold, trained_on in zip(sorted(fitted.folds), seen, strict=True):
        for network in fitted.folds[fold]:
            assert not trained_on & {h for h, _ in network.cells}


OTHER_VERSION = replace(TARGET, runtime="maker-2.0")


@pytest.mark.parametrize(
    "doubt",
    [{"suspect": True}, {"environment": MachineLoad(9.0, 0.0, 2).environment()}, {"copies": True}],
)
def test_networks_are_judged_by_what_is_served_of_them(tmp_path: Path, doubt: Any) -> None:
    with Store(made_store(tmp_path, networks=10, sweep=0)) as store:
        before = load(TARGET, [store]).networks
        records = [*store.measurements(TARGET, "network")] * 2
        store.add(
            structs.replace(one, latency_us=9 * (one.latency_us or 0), measured_at=day, **doubt)
            for day, one in zip((f"2026-02-0{n % 9 + 1}" for n in range(99)), records, strict=False)
        )
        assert load(TARGET, [store]).networks == before
        data = TargetData(TARGET, store)
        served = [data.whole(one.signature) for one in before]
    assert [one and one.latency_us for one in served] == [one.latency_us for one in before]


@pytest.mark.usefixtures("flat")
@pytest.mark.parametrize("start", ["0", "f"])
def test_versions_that_measured_other_networks_are_not_compared(tmp_path: Path, start: str) -> None:
    """As those of another batch, which have the same names."""
    url = made_store(tmp_path, networks=10, sweep=0)
    with Store(url) as store:
        for item in list(store.breakdowns(TARGET)):
            signature = start + item.signature[1:]
            again = structs.replace(item, target=OTHER_VERSION, signature=signature)
            store.add_breakdowns([again])
        for one in list(store.measurements(TARGET)):
            signature = start + one.signature[1:] if one.kind == "network" else one.signature
            store.add([structs.replace(one, target=OTHER_VERSION, signature=signature)])
    regimes = {row.regime for row in _judge(url, baselines=()).rows}
    assert ("other_version" in regimes) == (start == "0")


def test_forms_of_a_network_are_held_out_with_it(store_url: str) -> None:
    """Also where the form itself is not judged, as one of its cells could not be measured."""
    with Store(store_url) as store:
        dataset = load(TARGET, [store])
    one = dataset.networks[0]
    lone = next(h for h, group in dataset.groups().items() if h == group)
    cell = replace(dataset.cells[lone], labels={"network": f"{one.name}@u8s8"})
    known = replace(dataset, cells={**dataset.cells, lone: cell})
    assert lone in known.forbidden([one])
    assert lone not in known.forbidden([dataset.networks[1]])
    form = replace(one, name=f"{one.name}@u8s8", cells=((lone, 1),))
    assert known.groups()[lone] == one.name
    assert replace(dataset, networks=(*dataset.networks, form)).groups()[lone] == one.name


def test_a_cell_that_holds_a_kernel_of_a_network_is_held_out_with_it(store_url: str) -> None:
    block = sign(normal_form(residual_block()))
    kernel, _ = sign_part(read(block.text), (0,))
    with Store(store_url) as store:
        dataset = load(TARGET, [store])
    lone = next(h for h, group in dataset.groups().items() if h == group)
    texts = {block.hash: block.text, kernel.hash: kernel.text}
    cells = {h: replace(dataset.cells[lone], text=text) for h, text in texts.items()}
    known = replace(dataset, cells={**dataset.cells, **cells})
    network = replace(dataset.networks[0], name="new", cells=((kernel.hash, 1),), layers=())
    assert known.forbidden([network]) == {kernel.hash, block.hash}


def test_a_pack_without_networks_is_judged_per_cell(tmp_path: Path) -> None:
    url = made_store(tmp_path, networks=0, sweep=150)
    evaluation = _judge(url, baselines=["roofline"])
    with Store(url) as store:
        count = len(load(TARGET, [store]).cells)
    largest = int(0.8 * count)
    rows = {(r.regime, r.method): r for r in evaluation.rows}
    regimes = (f"cells@{largest}", "gated_cells@20%")
    assert set(rows) == {(r, method) for r in regimes for method in ("hybridlat", "roofline")}
    whole, gated = rows[f"cells@{largest}", "hybridlat"], rows["gated_cells@20%", "hybridlat"]
    assert (whole.networks, whole.cells) == (0, count - largest)
    assert (whole.score.coverage or 0) > 0.7
    assert 0 < (gated.score.rmspe or 0) < (whole.score.rmspe or 0)
    assert gated.score.measured_share == pytest.approx(0.2, abs=0.03)
    before, after = (r.predictions for r in evaluation.reports[0].results[:2])
    widths: dict[bool, list[float]] = {True: [], False: []}
    for one, then in zip(before, after, strict=True):
        widths[then.measured_share > 0].append(np.divide(*(one.interval_us or (1.0, 1.0))))
    assert np.mean(widths[True]) < 0.95 * np.mean(widths[False])  # low over high: the least certain


def test_cells_are_judged_by_the_trust_in_each_that_training_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = made_store(tmp_path, networks=0, sweep=150)
    fit = Mock(return_value=FlatModel())
    monkeypatch.setattr("hybridlat.model.fit.fit_model", fit)
    _judge(url, baselines=[])
    with Store(url) as store:
        noise = {cell.text: cell.spread_share for cell in load(TARGET, [store]).cells.values()}
    texts, *_, shares = fit.call_args.args
    assert [*shares] == [noise[text] for text in texts]


def test_our_model_alone_is_not_fitted_twice(tmp_path: Path, fits: list[list[str]]) -> None:
    url = made_store(tmp_path, networks=0, sweep=150)
    names = ["model_only", "layerwise_learned", "per_kind_linear"]
    evaluation = _judge(url, baselines=names)
    assert len(fits) == 3  # one a seed
    rows = {(r.regime, r.method): r for r in evaluation.rows}
    regimes = {regime for regime, _ in rows}
    assert set(rows) == {(r, m) for r in regimes for m in ("hybridlat", "model_only")}
    for r in regimes:
        assert rows[r, "model_only"].score.rmspe == rows[r, "hybridlat"].score.rmspe
    [note] = evaluation.reports[0].notes
    assert note.endswith(
        "layerwise_learned (from layers or layered networks), per_kind_linear (from networks)"
    )


def test_what_cannot_be_judged_is_said(store_url: str) -> None:
    with pytest.raises(InputError, match=r"'luck' is not a baseline.*wave_model"):
        _judge(store_url, baselines=["luck"])
    with pytest.raises(InputError, match="none of the 1 networks"):
        _judge(store_url, baselines=[], networks=["nope"])


@pytest.fixture
def two_targets(flat: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Many cells of one target, and too few of another; no pack is shipped."""
    monkeypatch.setattr("hybridlat.store.packs.shipped_packs", lambda *_: [])
    url = made_store(tmp_path, networks=0, sweep=120)
    with Store(url) as store:
        few = sorted(load(TARGET, [store]).cells)[:10]
        store.add([Measurement(FEW, hash_, "cell", 50.0, 0.01) for hash_ in few])
    return url


FEW = Target("few", "maker-1.0", "fp32", 1)


def test_a_target_that_cannot_be_judged_costs_the_others_nothing(
    two_targets: str, capsys: pytest.CaptureFixture[str]
) -> None:
    came: list[tuple[str, bool]] = []
    said: list[str] = []
    chosen = evaluate.EvaluationOptions(track=False, baselines=["roofline"])
    keep = lambda rows, report: came.append((rows[0].target, report is not None))  # noqa: E731
    how: dict[str, Any] = {"on_message": said.append, "on_evaluated": keep}
    evaluation = evaluate.evaluate_targets((), chosen, store=two_targets, **how)
    # The fewest records first, and each as it comes.
    assert came == [(str(FEW), False), (str(TARGET), True)]
    assert said[0] == f"target 1 of 2: {FEW}"
    [lost] = [row for row in evaluation.to_json() if row["target"] == str(FEW)]
    assert "10 cells of few/maker-1.0/fp32/1t were measured, and 25" in str(lost["reason"])
    assert {n for n, v in lost.items() if v is not None} == {"target", "reason", "mlflow_run"}
    assert all(not row.reason for row in evaluation.rows if row.target == str(TARGET))
    assert f"### {FEW}\n\nNot judged: " in leaderboard.markdown(evaluation.rows)
    show(evaluation.rows, None, everything=True)
    text = capsys.readouterr().out
    assert f"{FEW} · not judged: " in text and "roofline" in text


def test_where_no_target_can_be_judged_every_reason_is_given(two_targets: str) -> None:
    with pytest.raises(
        InputError, match=r"none of the 2 targets.*25 are needed.*nothing measured on x"
    ):
        _judge(two_targets, (FEW, Target("x", "maker-1.0", "fp32", 1)), baselines=[])


def test_an_interruption_prints_the_rest(two_targets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate_dataset = evaluate.evaluate_dataset

    def interrupted(dataset: Dataset, *rest: Any) -> Any:
        if dataset.target == FEW:
            raise KeyboardInterrupt
        return evaluate_dataset(dataset, *rest)

    monkeypatch.setattr(evaluate, "evaluate_dataset", interrupted)
    monkeypatch.setattr(evaluate, "refuse_few", lambda _: None)
    words = f"evaluate --target {TARGET} --target {FEW} --baseline no --no-track --store".split()
    rows = call(*words, two_targets, "--json", code=130).body
    assert {row["target"] for row in rows} == {str(TARGET)}
    assert str(TARGET) in call(*words, two_targets, code=130).out


def test_two_processes_give_the_same_figures(tmp_path: Path) -> None:
    from joblib.externals.loky import get_reusable_executor

    figures: dict[int, list[dict[str, object]]] = {1: [], 2: []}
    for networks, sweep in ((0, 60), (10, 20)):
        (folder := tmp_path / str(networks)).mkdir()
        url = made_store(folder, networks=networks, sweep=sweep)
        for processes, rows in figures.items():
            with joblib.parallel_config(n_jobs=processes):
                evaluation = _judge(url, baselines=(*FAST, "model_only"), trials=2)
            rows += [{**row, "predict_ms": None} for row in evaluation.to_json()]
    get_reusable_executor().shutdown(wait=True, kill_workers=True)
    assert figures[1] == figures[2]
