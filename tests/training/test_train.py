"""Training: the same records give the same model, and only what is not worse is promoted."""

import dataclasses
import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from hybridlat.cli.train import json_object
from hybridlat.errors import StoreError
from hybridlat.estimate.calibration import fit_composition
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.lookup.models import folder_in_use, model_folders, model_hash, read_target
from hybridlat.evaluation import tracking
from hybridlat.evaluation.cross_fitting import fit_without
from hybridlat.evaluation.dataset import load
from hybridlat.evaluation.metrics import Prediction
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit import FitConfig
from hybridlat.model.model_files import load_model
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target
from hybridlat.store import Store
from hybridlat.training import candidate, train
from tests.evaluation.made_pack import DEVICE, TARGET, gone, made_store


def _train(url: str, out: Path, track: bool = False) -> train.Trained:
    options = train.TrainingOptions(out=out, device=DEVICE, track=track)
    return train.train_target(TARGET, options, store=url)


def _installed(out: Path) -> str:
    folder = folder_in_use(out / TARGET.folder)
    assert folder is not None
    return model_hash(folder)


def test_what_a_training_leaves(trained: train.Trained) -> None:
    assert trained.accepted and trained.champion_rmspe is None and trained.folder is not None
    card = json.loads((trained.folder / "card.json").read_text())
    assert card["target"] == str(TARGET)
    assert set(card["held_out_networks"]).isdisjoint(card["trained_networks"])
    assert len(card["held_out_networks"]) + len(card["trained_networks"]) == 14
    composition = json.loads((trained.folder / "composition.json").read_text())
    assert Composition.from_json(composition).networks == len(card["trained_networks"])
    assert load_model(trained.folder).card["data_hash"] == card["data_hash"]
    assert set(trained.scores) == {"unseen_cells", "unseen", "gated@5%", "measured"}
    document = json.loads(json.dumps(json_object(trained), allow_nan=False))
    assert document["target"] == str(TARGET) and document["folder"] == str(trained.folder)
    assert document["scores"]["unseen"]["rmspe"] == document["rmspe"] == trained.rmspe


@pytest.mark.parametrize(("networks", "sweep", "calibrating"), [(6, 40, 6), (2, 14, 0)])
def test_few_networks_calibrate_by_models_that_have_not_seen_them(
    tmp_path: Path, networks: int, sweep: int, calibrating: int
) -> None:
    with Store(made_store(tmp_path, networks=networks, sweep=sweep)) as store:
        dataset = load(TARGET, [store])
    messages: list[str] = []
    made = candidate.Candidate(dataset, FitConfig(DEVICE, "fp32"), messages.append)
    assert made.composition.networks == calibrating
    assert any("that it has not seen" in message for message in messages)
    assert any("no network calibrates" in message for message in messages) == (not calibrating)


def _judged(
    champion: candidate.Champion, ours: Sequence[Prediction], theirs: Sequence[Prediction]
) -> candidate.Verdict:
    cells = [*ours, Prediction("c", 20.0, 20.0)]
    held: Any = SimpleNamespace(
        predictions={"unseen": ours, "unseen_cells": cells},
        networks=[one.name for one in ours],
        config=FitConfig(DEVICE, "fp32"),
        evaluate=lambda *_: {"unseen": theirs},
    )
    return candidate.Candidate.compare(held, champion)


def test_forms_of_what_a_champion_was_trained_on_are_no_contest() -> None:
    each = ("a@s8s8", 100.0), ("b", 97.0)
    answers = [Prediction(name, 100.0, us, (90.0, 110.0)) for name, us in each]
    champion = candidate.Champion(Path(), Mock(), Composition(), frozenset({"a@u8s8"}))
    assert "RMSPE 3.00 % on 1 held-out" in _judged(champion, answers, answers).reason


@pytest.mark.parametrize(
    ("ours_us", "theirs_us", "accepted", "says"),
    [
        ((97.0, 80.0), (95.0, math.nan), True, "RMSPE 3.00 % on 1 held-out networks, before 5.00"),
        ((97.0, math.nan), (95.0, 95.0), False, "on 2 held-out networks, of 1 of which it has no"),
        ((97.0, 97.0), (math.nan, math.nan), True, "the first model, RMSPE 3.00 % on 2 held-out"),
    ],
)
def test_a_champion_is_compared_by_what_it_has_a_latency_of(
    ours_us: Sequence[float], theirs_us: Sequence[float], accepted: bool, says: str
) -> None:
    ours, theirs = (
        [Prediction(name, 100.0, us, (75.0, 110.0)) for name, us in zip("ab", each, strict=True)]
        for each in (ours_us, theirs_us)
    )
    champion = candidate.Champion(Path(), Mock(), Composition(), frozenset())
    verdict = _judged(champion, ours, theirs)
    assert verdict.accepted == accepted and says in verdict.reason


def test_poisoned_records_are_refused(trained: train.Trained, tmp_path: Path) -> None:
    poisoned = made_store(tmp_path, networks=14, sweep=30, poisoned=True)
    bad = _train(poisoned, tmp_path / "models")
    assert not bad.accepted and "refused" in bad.reason and bad.folder is None
    assert folder_in_use(tmp_path / "models" / TARGET.folder) is None
    assert bad.model_hash != trained.model_hash


def test_where_no_model_can_be_written_none_is_fitted(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "Candidate", Mock(side_effect=AssertionError("fitted")))
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="give a folder with --out"):
        _train(store_url, tmp_path / "file" / "models")


def _champion(url: str) -> str:
    """The number of the version that carries the alias."""
    with tracking.opened(url):
        return tracking.champion(TARGET)


def test_the_alias_moves_only_to_what_is_not_worse(
    made: dict[str, CellModel], tracked: str, tmp_path: Path
) -> None:
    from mlflow import MlflowClient

    out = tmp_path / "models"
    good = made["model"]
    assert not _champion(tracked)
    first = _train(tracked, out, track=True)
    assert first.accepted and _champion(tracked) == first.version

    made["model"] = dataclasses.replace(good, floor_us=good.floor_us * 40)
    second = _train(tracked, out, track=True)
    assert not second.accepted
    assert second.champion_rmspe == pytest.approx(first.rmspe)
    assert second.rmspe > first.rmspe
    assert f"{second.champion_rmspe:.2f}" in second.reason
    assert second.version not in ("", first.version) and _champion(tracked) == first.version
    kept = MlflowClient(tracking.tracking_uri(tracked))
    refused = kept.get_model_version_by_alias(tracking.model_name(TARGET), tracking.CHALLENGER)
    assert (str(refused.version), refused.description) == (second.version, second.reason)
    assert refused.tags["accepted"] == "false"
    assert refused.tags["model_hash"] == second.model_hash
    assert refused.tags["rmspe_of_champion"] == f"{first.rmspe:.3f}"
    assert _installed(out) == first.model_hash
    judged = kept.get_run(second.mlflow_run).data
    figures = [judged.metrics[f"accuracy/{name}"] for name in ("rmspe", "rmspe_of_champion")]
    assert figures == pytest.approx([second.rmspe, first.rmspe])
    assert {"accuracy/coverage", "accuracy/median", "accuracy/rmspe_floor"} <= {*judged.metrics}
    stated = {"model_hash": second.model_hash, "reason": second.reason}
    assert judged.tags.items() >= stated.items() and judged.params["networks"] == "14"

    made["model"] = good
    third = _train(tracked, out, track=True)  # the same as the first
    assert not third.accepted and third.folder == first.folder and third.version == ""
    assert _champion(tracked) == first.version

    made["model"] = dataclasses.replace(good, card={}, floor_us=good.floor_us * (1 - 1e-12))
    fourth = _train(tracked, out, track=True)
    assert fourth.accepted and _champion(tracked) == fourth.version


@pytest.mark.usefixtures("made")
def test_a_registry_without_a_champion_gets_the_model_in_use(tracked: str, tmp_path: Path) -> None:
    first = _train(tracked, tmp_path / "models")
    again = _train(tracked, tmp_path / "models", track=True)
    assert not again.accepted and again.folder == first.folder
    assert again.version == "1" == _champion(tracked)


@pytest.mark.parametrize("broken", ["create_run", "set_registered_model_alias", "the database"])
def test_an_accepted_model_is_installed_whatever_mlflow_does(
    broken: str,
    made: dict[str, CellModel],
    tracked: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if broken == "the database":
        (tmp_path / "mlflow.db").write_text("this is no database")
    else:
        monkeypatch.setattr(f"mlflow.MlflowClient.{broken}", gone)
    done = _train(tracked, tmp_path / "models", track=True)
    assert made and done.accepted and done.folder is not None and done.version == ""
    assert _installed(tmp_path / "models") == done.model_hash
    assert re.search("MLflow fails at .*(the server is gone|no(t a)? database)", caplog.text)


@pytest.mark.parametrize(("error", "accepted"), [(10.0049, True), (10.0051, False)])
def test_a_champion_is_worse_by_what_is_shown(
    error: float,
    accepted: bool,
    made: dict[str, CellModel],
    store_url: str,
    installed: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made["model"] = dataclasses.replace(made["model"], floor_us=made["model"].floor_us * (1 - 1e-9))
    monkeypatch.setattr(candidate, "_error", Mock(side_effect=[error, 10.0]))
    assert _train(store_url, installed).accepted == accepted


def test_a_model_whose_intervals_do_not_hold_is_refused(
    made: dict[str, CellModel], store_url: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made["model"] = dataclasses.replace(made["model"], floor_us=made["model"].floor_us * (1 - 1e-9))
    fit, none = fit_composition, ((0.0, 1e-6), (1.0, 1e-6))
    narrow = lambda *words: dataclasses.replace(fit(*words), quantiles=none)  # noqa: E731
    monkeypatch.setattr(candidate, "fit_composition", narrow)
    done = _train(store_url, installed)
    assert done.folder is None and not done.accepted
    assert "intervals of 90 % hold the latency of 0 % of 4 held-out networks" in done.reason


@pytest.mark.parametrize(
    ("inside", "count", "expected"),
    [(9, 12, True), (8, 12, False), (1, 2, True), (0, 2, False), (80, 100, True), (79, 100, False)],
)
def test_how_many_intervals_must_hold(inside: int, count: int, expected: bool) -> None:
    bounds = [(0.5, 2.0)] * inside + [(2.0, 3.0)] * (count - inside)
    assert candidate.holds([Prediction("n", 1.0, 1.0, each) for each in bounds], 0.9) == expected


def test_few_records_start_from_the_shipped_models(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hybridlat.estimate.lookup.models.shipped", shipped)
    with Store(store_url) as store:
        dataset = load(TARGET, [store])
    priors = train._priors(TARGET, dataset)
    names = {str(prior.card["target"]) for prior in priors}
    assert names == {str(read_target(folder)) for folder in model_folders(None)}
    assert len(names) >= 3
    own = Target.parse("v100/tensorrt/fp16")
    mine = train._priors(own, dataclasses.replace(dataset, target=own))
    assert {str(prior.card["target"]) for prior in mine} == names - {str(own)}
    held = sorted(dataset.cells)[::6]
    config = FitConfig(DEVICE, "fp32", priors=priors)
    said = fit_without(dataset, held, config).predict([dataset.cells[h].text for h in held])
    truth_us = [dataset.cells[h].latency_us for h in held]
    assert np.median(np.abs(np.divide([p.latency_us or 0 for p in said], truth_us) - 1)) < 0.15


@pytest.fixture
def installed(trained: train.Trained, tmp_path: Path) -> Path:
    """A folder of models with the first training's in use."""
    assert trained.folder is not None
    shutil.copytree(trained.folder, tmp_path / "models" / TARGET.folder)
    return tmp_path / "models"


def test_same_records_same_model(trained: train.Trained, store_url: str, installed: Path) -> None:
    again = _train(store_url, installed)
    assert again.model_hash == trained.model_hash
    # It is in use already.
    assert not again.accepted and again.folder == installed / TARGET.folder
    assert again.rmspe == again.champion_rmspe and "unchanged: the same model" in again.reason


@pytest.mark.usefixtures("made")
def test_networks_of_the_champion_s_training_do_not_count(store_url: str, installed: Path) -> None:
    file = installed / TARGET.folder / "card.json"
    card = json.loads(file.read_text())
    card["trained_networks"].append(card["held_out_networks"][0])
    file.write_text(json.dumps(card))
    fair = len(card["held_out_networks"]) - 1
    assert f" on {fair} held-out networks" in _train(store_url, installed).reason
