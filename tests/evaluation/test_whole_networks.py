"""Targets of which only whole networks are recorded: learned from, and judged."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hybridlat.engines import registry
from hybridlat.errors import InputError
from hybridlat.evaluation import dataset, evaluate
from hybridlat.evaluation.families import FamilyRecords, family_records, load_networks
from hybridlat.evaluation.family_laws import TIMES_EACH
from hybridlat.evaluation.leaderboard import tables
from hybridlat.evaluation.metrics import score
from hybridlat.evaluation.other_regimes import Regimes
from hybridlat.graph.signature import read, sign
from hybridlat.model import baselines
from hybridlat.model.conformal import ELSEWHERE
from hybridlat.model.family.model import interval_us
from hybridlat.model.family.observations import architecture_of, family_of
from hybridlat.model.fit import FitConfig
from hybridlat.schema.measurement import Breakdown, Measurement
from hybridlat.schema.target import Target
from hybridlat.schema.workers import silent
from hybridlat.store import Store
from tests.cli.shell import call
from tests.evaluation.made_networks import HERE, THERE, fill, networks, with_twins
from tests.networks import classifier, conv_relu

COUNT = 24
FAST = ("flops_linear", "roofline")


@pytest.fixture(autouse=True, scope="module")
def _few_trees() -> Iterator[None]:
    """A fifth of the trees: the made-up law has little that they could learn."""
    xgboost = pytest.importorskip("xgboost")
    train = xgboost.train
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xgboost, "train", lambda p, d, trees, **o: train(p, d, trees // 5, **o))
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    with Store(tmp_path_factory.mktemp("networks") / "s.db") as store:
        fill(store, [HERE, THERE], with_twins(networks(COUNT // 2)))
    return store.url


@dataclasses.dataclass(frozen=True)
class Fit:
    """A law that was learned: from which rows, and of which rows it was asked."""

    learned: set[int]
    asked: set[int] = dataclasses.field(default_factory=set)


fits: list[Fit] = []
"""What the judging below has fitted, in order."""


@pytest.fixture(scope="module")
def judged(url: str) -> evaluate.Evaluation:
    learn, predict = FamilyRecords.learn, FamilyRecords.predict

    def spy_learn(self: FamilyRecords, places: Any, **options: Any) -> Any:
        fits.append(Fit(set(np.flatnonzero(places).tolist())))
        return learn(self, places, **options)

    def spy_predict(self: FamilyRecords, model: Any, places: Any) -> Any:
        fits[-1].asked.update(places)
        return predict(self, model, places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FamilyRecords, "learn", spy_learn)
        patch.setattr(FamilyRecords, "predict", spy_predict)
        return _judge(url, [HERE, THERE])


def _judge(url: str, targets: list[Target], **options: Any) -> evaluate.Evaluation:
    options = {"track": False, "baselines": list(FAST), **options}
    return evaluate.evaluate_targets(targets, evaluate.EvaluationOptions(**options), store=url)


def test_every_regime_has_our_row_and_folds_have_the_baselines(judged: evaluate.Evaluation) -> None:
    for target in (HERE, THERE):
        by_regime = {(r.regime, r.method): r for r in judged.rows if r.target == str(target)}
        folds = {(regime, m) for regime in ("unseen", "unseen_family") for m in FAST}
        own = {(r, "hybridlat") for r in ("unseen", "unseen_family", "zero_shot")}
        assert set(by_regime) == folds | own
        assert {row.networks for row in by_regime.values()} == {COUNT}
        assert {r.answered_share for r in by_regime.values()} == {1.0}


def test_a_law_that_holds_is_learned_and_suspects_do_not_count(judged: evaluate.Evaluation) -> None:
    by_regime = {r.regime: r.score for r in judged.rows if r.method == "hybridlat"}
    rmspe = by_regime["unseen"].rmspe
    assert rmspe is not None and rmspe < 10  # a suspect row is fifty times too slow
    assert by_regime["unseen"].coverage is not None and by_regime["unseen"].coverage >= 0.75
    assert by_regime["unseen"].width is not None and 0 < by_regime["unseen"].width < 1
    (floor,) = {r.noise_floor for r in judged.rows if r.target == str(HERE)}
    assert floor is not None and 0 < floor < 10
    assert all("1 of 25 networks are noted as suspect" in " ".join(r.notes) for r in judged.reports)


@pytest.mark.usefixtures("judged")
def test_what_is_judged_was_not_learned_from(url: str) -> None:
    """The rows that a law is asked for are none of those that it learned, nor twins of theirs."""
    with Store(url) as store:
        rows = family_records(HERE, [THERE], lambda _: [store]).rows
    assert len(fits) == 5 + 5 + 2  # shared by both targets: folds twice, each device left out
    for fit in fits:
        known = {frozenset(text for text, _ in rows[i].cells) for i in fit.learned}
        devices = {rows[i].target.device for i in fit.learned}
        assert fit.asked
        for i in fit.asked:
            cells = frozenset(text for text, _ in rows[i].cells)
            assert cells not in known or rows[i].target.device not in devices


def test_figures_are_means_over_draws_and_intervals_are_as_served(tmp_path: Path) -> None:
    """Of folds by networks held out, of a new device by devices left out: each from one place."""
    with Store(tmp_path / "s.db") as store:
        fill(store, [HERE, THERE], networks(12))
        records = family_records(HERE, [THERE], lambda _: [store])
    generations = {row.task.device: row.task.generation for row in records.rows}
    assert generations == {name: sheet.architecture for name, sheet in records.devices.items()}
    regimes = Regimes(records, silent, draws=2)
    config = FitConfig(records.devices["t4"], "fp16", 0)
    report = regimes.evaluate(HERE, config, ["flops_linear"])
    for result in report.results:
        errors = [score(one).rmspe or 0.0 for one in result.trials]
        assert len(errors) == 1 + (result.regime != "zero_shot")
        assert result.score.rmspe == pytest.approx(np.mean(errors))
    unseen = {row.method: row for row in report.rows() if row.regime == "unseen"}
    assert all(row.draws == 2 and row.rmspe_sd for row in unseen.values())
    assert "folds are of 2 draws" in " ".join(report.notes)
    assert f" ± {unseen['hybridlat'].rmspe_sd:.1f}" in tables(report.rows())[0].markdown()
    first = regimes.held_out["unseen"][0]
    assert all(ELSEWHERE in one.spreads for one in first.calibrations.values())
    served = regimes.calibration(records.counted, first.answers)
    outside = np.array([row.target == THERE for row in records.rows])
    there = regimes.calibration(outside, first.answers)
    assert len(there.pooled) < len(served.pooled) and not set(there.by_task) & {str(HERE)}
    single = np.arange(len(outside)) == np.argmax(outside)
    assert len(regimes.calibration(single, first.answers).pooled) == TIMES_EACH
    (zero_shot,) = (one for one in report.results if one.regime == "zero_shot")
    for i, own in zip(regimes.places(HERE), zero_shot.predictions, strict=True):
        prediction = regimes.left_out[i]
        assert prediction is not None
        assert own.interval_us == interval_us(there, prediction, records.rows[i].task)


def test_every_baseline_answers_and_layers_that_nobody_kept_are_said(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    with Store(tmp_path / "s.db") as store:
        fill(store, [HERE], networks(12), layers=False)
    evaluation = _judge(store.url, [HERE], baselines=None)
    methods = {row.method for row in evaluation.rows}
    of_networks = {n for n in baselines.names() if "network" in baselines.load(n).units}
    assert methods == {"hybridlat", *of_networks}
    assert all(row.score.answered == 12 for row in evaluation.rows)
    again = _judge(store.url, [HERE], baselines=list(FAST))
    kept = [row for row in evaluation.to_json() if row["method"] in ("hybridlat", *FAST)]
    assert again.to_json() == kept  # judging repeats itself
    notes = " ".join(evaluation.reports[0].notes)
    assert "not judged" in notes and "layerwise_learned (from layers or layered net" in notes
    assert "no networks of another device of the family tensorrt" in notes
    assert "learn from these 12 networks alone" in notes and "the shipped model too" in notes


def test_a_store_of_networks_alone_is_judged_without_naming_its_targets(tmp_path: Path) -> None:
    other = Target("t4", "openvino-2025.0", "fp32")
    with Store(tmp_path / "s.db") as store:
        fill(store, [HERE], networks(12))
        fill(store, [other], networks(2))
    assert {HERE, other} <= set(evaluate.known_targets(store))
    evaluation = _judge(store.url, [other, HERE], baselines=[])
    assert evaluation.rows[0].reason and evaluation.rows[1].regime == "unseen"


def test_networks_alone_need_no_training(url: str) -> None:
    words = ("train", "--target", str(HERE), "--store", url, "--no-track", "--json")
    assert call(*words).body["accepted"] is False


@pytest.mark.parametrize(
    ("name", "architecture", "family"),
    [
        ("resnet50", "resnet50", "resnet"),
        ("torchvision__resnext101_32x8d__224", "resnext101_32x8d", "resnext"),
        ("tf_efficientnetv2_b0__dyn", "tf_efficientnetv2_b0", "efficientnetv2"),
        ("something_new", "something_new", "something"),
    ],
)
def test_names_tell_who_is_a_variant_of_whom(name: str, architecture: str, family: str) -> None:
    assert architecture_of(name) == architecture
    assert family_of(architecture) == family


TARGET = Target("t4", "tensorrt-8.6", "fp16")
CELL, OTHER, WHOLE = sign(conv_relu()), sign(conv_relu(16)), sign(classifier())
NOW = {"lowering": registry.lowering_identity(TARGET), "batch": "4"}


def record(latency_us: float, name: str = "net", **labels: str) -> Measurement:
    return Measurement(
        TARGET, WHOLE.hash, "network", latency_us, labels={"network": name, **labels}
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "s.db")
    store.add_signatures({s.hash: s.text for s in (CELL, OTHER)})
    store.add_breakdowns([Breakdown(TARGET, "net", WHOLE.hash, ((CELL.hash, 2),), labels=NOW)])
    return store


def test_several_origins_are_one_row_but_for_what_is_suspect(store: Store) -> None:
    records = [record(10, source="x"), replace(record(14, source="y"), suspect=True)]
    records += [record(20, source="z", repeat="1"), record(22, source="z", repeat="2")]
    store.add(records)
    sound, suspect = load_networks(TARGET, [store, store])
    assert (suspect.latency_us, suspect.suspect) == (14, True)
    assert (sound.latency_us, sound.suspect) == (15.5, False)  # the median of 10 and of 21
    assert sorted(sound.repeats_us) == [10, 20, 22]
    assert sound.name == suspect.name == "net batch 4"
    assert sound.cells == suspect.cells == ((CELL.text, 2),)
    assert read(sound.cells[0][0]).nodes


def test_layouts_are_laws_of_their_own_where_a_target_knows_several(store: Store) -> None:
    store.add([record(10, layout="nchw")])
    assert [row.task.layout for row in load_networks(TARGET, [store])] == [""]
    store.add([record(12, layout="nhwc")])
    names = [row.name for row in load_networks(TARGET, [store])]
    assert names == ["net batch 4 nchw", "net batch 4 nhwc"]


def test_the_partition_of_the_rules_in_force_counts(store: Store) -> None:
    for name, count, rules in (("net", 1, "older"), ("net", 7, "oldest"), ("Net", 5, "older")):
        labels, cells = {**NOW, "lowering": rules}, ((OTHER.hash, count),)
        store.add_breakdowns([Breakdown(TARGET, name, WHOLE.hash, cells, labels=labels)])
    store.add([record(10), record(11, "Net")])
    rows = load_networks(TARGET, [store])
    assert [(row.network, row.cells) for row in rows] == [
        ("Net", ((CELL.text, 2),)),
        ("net", ((CELL.text, 2),)),
    ]


def test_a_batch_that_nobody_states_is_that_of_the_cells(store: Store) -> None:
    store.add_breakdowns([Breakdown(TARGET, "old", OTHER.hash, ((CELL.hash, 1),))])
    store.add([Measurement(TARGET, OTHER.hash, "network", 5.0)])
    (row,) = load_networks(TARGET, [store])
    assert (row.network, row.batch) == ("old", 1)


def test_what_lacks_a_partition_or_a_text_is_left_out_and_said(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.add_breakdowns([Breakdown(TARGET, "lost", OTHER.hash, (("0" * 32, 1),))])
    failed = replace(record(1, x="y"), latency_us=None, failure="no memory")
    lost = Measurement(TARGET, OTHER.hash, "network", 5.0, labels={"network": "lost"})
    store.add([record(10), lost, replace(lost, signature=CELL.hash), failed])
    with caplog.at_level(logging.WARNING):
        (row,) = load_networks(TARGET, [store])
    assert row.latency_us == 10
    assert "3 of 4 networks of t4/tensorrt-8.6/fp16 are left out" in caplog.text


def test_nothing_to_learn_from_is_an_error(store: Store) -> None:
    with pytest.raises(InputError, match="no whole network of t4/"):
        load_networks(TARGET, [store])
    store.add([record(10)])
    with pytest.raises(InputError, match="only whole networks"):
        dataset.load(TARGET, [store])  # cell by cell there is still nothing
