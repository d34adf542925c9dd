"""What must hold of the process, its intervals and its files, whatever was measured."""

import functools
import json
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridlat.errors import StoreError
from hybridlat.model.conformal import calibrate, conformal_quantile, rank_of
from hybridlat.model.family import shipped as files
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import fit
from hybridlat.model.family.model import FamilyModel, NetworkPrediction, half_width, interval_us
from hybridlat.model.family.observations import Observation, kernel_set
from hybridlat.model.family.physics import KernelTable
from hybridlat.model.family.task_laws import TaskGP, weighed
from hybridlat.model.family.tasks import Sharing, Task
from hybridlat.model.geometry import Array, Float32
from hybridlat.schema.target import Device
from tests.model.family.worlds import GPU, HERE, OTHER, THERE, observations, table

OFF = np.where(np.arange(40) % 2, 0.2, -0.2)
"""What a law of forty networks is off, so that trees have a say."""


@pytest.fixture(scope="module")
def model() -> FamilyModel:
    rows = [*observations(30, 1), *observations(10, 2, THERE)]
    return fit(rows, Embedding(Hyper(), size=40))


def law(
    model: FamilyModel, kernels: KernelTable, device: Device, task: Task
) -> tuple[float, float]:
    """(log latency, its spread) of a network."""
    one = model.predict(kernel_set(kernels, device, "fp32"), task)
    return float(np.log(one.median_us)), one.log_sd


def test_what_is_saved_answers_alike(model: FamilyModel, tmp_path: Path) -> None:
    calibration = calibrate(np.linspace(-1, 1, 51), np.full(51, 0.1), ["gpu"] * 51)
    rows = observations(40, 1)
    own = weighed(rows, [(np.array([one.architecture for one in rows]), OFF)])
    assert own is not None
    with_trees = replace(model, trees={HERE: own}, calibration=calibration)
    files.save(with_trees, tmp_path)
    loaded = files.read(tmp_path)
    assert loaded.calibration is not None
    half_widths = [one.half_width(0.2, "gpu") for one in (loaded.calibration, calibration)]
    assert half_widths[0] == pytest.approx(half_widths[1], rel=1e-3)
    kernels = table(np.random.default_rng(6))
    for device, task in ((GPU, HERE), (OTHER, THERE), (GPU, Task("new", "engine-2", "fp16"))):
        plain, before, after = (law(m, kernels, device, task) for m in (model, with_trees, loaded))
        assert after == pytest.approx(before, rel=1e-3)
        # Trees move their own task's latency alone, and no spread.
        assert (plain[0] != before[0]) == (task == HERE) and plain[1] == before[1]


def test_a_damaged_model_is_named(model: FamilyModel, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no family model"):
        files.read(tmp_path)
    files.save(model, tmp_path)
    head = tmp_path / "family.json"
    # A law of before is relative to another base of kernels: read as one of today it would mislead.
    for number in (1, 2, 3, 4, 7, 99):
        changed = {**json.loads(head.read_text()), "format": number}
        head.write_text(json.dumps(changed))
        with pytest.raises(StoreError, match=f"format {number}, this version reads 8"):
            files.read(tmp_path)


EAGER = Task("other", "torch-2.4", "fp32")
STIFF = Hyper(smooth=0.02, rough=0.02, by_class=0.02, offset=0.02, boosted=True)
WAITING = Hyper(overlap=3.0, host=0.2, apart={"host": Sharing(1.0, device=6.0)})
CALIBRATION = calibrate(np.linspace(-0.5, 0.5, 200), np.full(200, 0.1), ["gpu/engine-1/fp32"] * 200)
HYPERS = {"plain": Hyper(), "trees": STIFF, "host": WAITING}
EACH = st.sampled_from(sorted(HYPERS))
TASKS = st.sampled_from([HERE, THERE, EAGER])
SEEDS = st.integers(10, 10**6)
few = settings(max_examples=15, deadline=None)


@functools.cache
def model_of(name: str) -> FamilyModel:
    """Fitted when the first test asks for it; its trees have the whole say."""
    fitted = fit(observations(40, 1), Embedding(HYPERS[name], size=30))
    trees = {task: replace(own, weight=1.0) for task, own in fitted.trees.items()}
    return replace(fitted, calibration=CALIBRATION, trees=trees)


def predicted(model: FamilyModel, rows: list[Observation]) -> list[NetworkPrediction]:
    return model.predict_all([one.kernels for one in rows], [one.task for one in rows])


def same(model: FamilyModel, other: FamilyModel, rows: list[Observation]) -> None:
    """Equal but for the rounding of single precision, which each linearisation passes on."""
    for one, two in zip(predicted(model, rows), predicted(other, rows), strict=True):
        assert two.median_us == pytest.approx(one.median_us, rel=1e-4)
        assert two.log_sd == pytest.approx(one.log_sd, rel=2e-4)


def measured(seed: int, task: Task, count: int = 4, least: float = 0.0) -> list[Observation]:
    """Networks whose kernels are never quicker than a share of their bases."""
    slower = np.random.default_rng(seed).uniform(-0.5, 0.8)
    rows = observations(count, seed, replace(task, engine="engine-1"), slower=slower)
    sets = [replace(one.kernels, least_us=least * one.kernels.base_us) for one in rows]
    return [replace(one, task=task, kernels=k) for one, k in zip(rows, sets, strict=True)]


@few
@given(name=EACH, task=TASKS, seed=SEEDS, least=st.sampled_from([0.0, 1.5, 9.0]))
def test_a_confirmed_prediction_moves_nothing_and_widens_nothing(
    name: str, task: Task, seed: int, least: float
) -> None:
    model, rows = model_of(name), measured(seed, task, least=least)
    before = predicted(model, rows)
    confirmed = model.condition([
        replace(one, latency_us=p.median_us) for one, p in zip(rows[:3], before, strict=False)
    ])  # fmt: skip
    for one, old in zip(predicted(confirmed, rows), before, strict=True):
        assert one.median_us == pytest.approx(old.median_us, rel=1e-6)
        assert one.log_sd <= old.log_sd * (1 + 1e-6) and one.prior_log_sd is not None
        assert half_width(CALIBRATION, one, task) <= half_width(CALIBRATION, old, task) + 1e-6


@few
@given(name=EACH, task=TASKS, seed=SEEDS)
def test_what_is_measured_counts_in_any_order_or_steps(name: str, task: Task, seed: int) -> None:
    model, rows, others = model_of(name), measured(seed, task), observations(3, 7)
    whole = model.condition(rows)
    same(whole, model.condition(rows[::-1]), others)
    same(whole, model.condition(rows[:2]).condition(rows[2:]), others)
    unsure = [replace(rows[0], latency_us=9.0 * rows[0].latency_us, weight=w) for w in (1e-9, 0)]
    same(whole, model.condition([*rows, unsure[0]]), [*rows, *others])
    assert model.condition(unsure[1:]) is model
    assert all(one.prior_log_sd and one.log_sd <= one.prior_log_sd * (1 + 1e-6)
               for one in predicted(whole, rows))  # fmt: skip


@few
@given(name=EACH, task=TASKS, seed=SEEDS, times=st.integers(2, 50))
def test_a_network_so_many_times_over_takes_so_much_longer(
    name: str, task: Task, seed: int, times: int
) -> None:
    (row,) = measured(seed, task, 1)
    counts = row.kernels.counts * times
    if task == EAGER:  # its host dispatches each kernel
        counts[-2:] = 1.0
    model = model_of(name)
    once, often = (
        model.predict(replace(row.kernels, counts=c), task) for c in (row.kernels.counts, counts)
    )
    assert often.median_us == pytest.approx(
        times * once.median_us, rel=1e-4 if task == EAGER else 1e-9
    )


@few
@given(name=EACH, task=TASKS, seed=SEEDS, is_conditioned=st.booleans())
def test_the_surer_is_the_wider(name: str, task: Task, seed: int, is_conditioned: bool) -> None:
    rows = measured(seed, task)
    model = model_of(name).condition(rows[1:]) if is_conditioned else model_of(name)
    one = model.predict(rows[0].kernels, task)
    for calibration in (CALIBRATION, None):
        half, more, most = (half_width(calibration, one, task, c) for c in (0.5, 0.9, 0.99))
        assert 0 < half < more < most
        ends = [interval_us(calibration, one, task, c) for c in (0.5, 0.9, 0.99)]
        assert ends[2][0] <= ends[1][0] <= ends[0][0] <= one.median_us < ends[0][1] < ends[1][1]


EMBEDDING = Embedding(Hyper(), size=6)


def rows(count: int, seed: int) -> tuple[Float32, list[Task], Array, Array]:
    """(equations, their tasks, residuals, covariance of their noise)."""
    draw = np.random.default_rng(seed)
    equations = draw.standard_normal((count, EMBEDDING.columns)).astype(np.float32)
    tasks = [(HERE, THERE, Task("gpu", "engine-2", "fp32"))[i % 3] for i in range(count)]
    root = 0.2 * draw.standard_normal((count, count))
    return equations, tasks, draw.standard_normal(count), root @ root.T + 0.1 * np.eye(count)


def test_it_is_the_process_of_scikit_learn_where_there_is_one_task() -> None:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import DotProduct

    equations, _, residuals, noise = rows(20, 1)
    asked, _, _, _ = rows(5, 2)
    share = EMBEDDING.hyper.sharing.total**0.5
    oracle = GaussianProcessRegressor(
        DotProduct(1e-5, "fixed"), alpha=np.diag(noise), optimizer=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle.fit(share * equations, residuals)
        mean, deviation = oracle.predict(share * asked, return_std=True)
    gp = TaskGP.of(EMBEDDING, equations, [HERE] * 20, np.diag(np.diag(noise)), residuals)
    assert asked @ gp.coefficients([HERE])[HERE] == pytest.approx(mean, abs=1e-4)
    assert gp.spreads(asked, [HERE] * 5) == pytest.approx(deviation, rel=1e-4)


@pytest.mark.parametrize("known", [3, 40, 150])
def test_conditioning_is_fitting_with_all_rows(known: int) -> None:
    equations, tasks, residuals, noise = rows(known + 20, 3)
    noise[:known, known:] = noise[known:, :known] = 0.0
    whole = TaskGP.of(EMBEDDING, equations, tasks, noise, residuals)
    first = TaskGP.of(
        EMBEDDING, equations[:known], tasks[:known], noise[:known, :known], residuals[:known]
    )
    means = first.coefficients(tasks[known:])
    foreseen = [
        equation @ means[task]
        for equation, task in zip(equations[known:], tasks[known:], strict=True)
    ]
    beyond = residuals[known:] - foreseen
    later = first.condition(equations[known:], tasks[known:], noise[known:, known:], beyond)
    assert later.coefficients([THERE])[THERE] == pytest.approx(
        whole.coefficients([THERE])[THERE], abs=1e-4
    )
    asked, their_tasks, _, _ = rows(4, 4)
    expected = whole.covariance(asked, their_tasks)
    assert later.covariance(asked, their_tasks) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    variances = later.spreads(asked, their_tasks) ** 2
    assert variances == pytest.approx(expected.diagonal(), rel=1e-5, abs=1e-6)
    assert (later.spreads(asked, their_tasks) < first.spreads(asked, their_tasks)).all()


def test_left_out_is_what_the_others_would_have_missed_it_by() -> None:
    equations, tasks, residuals, noise = rows(24, 5)
    groups = np.array([f"group {i // 4}" for i in range(24)])
    errors = TaskGP.of(EMBEDDING, equations, tasks, noise, residuals).left_out(groups)
    out = np.arange(24) < 4
    # Noise is shared with the group too, so that it is predicted with the coefficients.
    between = EMBEDDING.covariance(equations, tasks, equations, tasks) + noise
    kept = np.linalg.solve(between[np.ix_(~out, ~out)], residuals[~out])
    missed = residuals[out] - between[np.ix_(out, ~out)] @ kept
    assert errors[out] == pytest.approx(missed, rel=1e-5, abs=1e-6)


LEVELS = [0.5, 0.8, 0.9, 0.95, 0.99]


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=60), st.sampled_from(LEVELS))
def test_it_has_enough_scores_below(scores: list[float], level: float) -> None:
    quantile, rank = conformal_quantile(scores, level), rank_of(len(scores), level)
    assert rank == math.ceil((len(scores) + 1) * level - 1e-9)
    assert sum(s <= quantile for s in scores) >= min(rank, len(scores))
    assert sum(s < quantile for s in scores) < rank
    assert rank <= len(scores) or quantile == max(scores)


@pytest.mark.parametrize(
    ("count", "level", "rank"),
    [(9, 0.9, 9), (8, 0.9, 9), (19, 0.95, 19), (99, 0.99, 99), (1, 0.01, 1), (0, 0.9, 1),
     (99, 0.55, 55)],
)  # fmt: skip
def test_the_edges_are_exact(count: int, level: float, rank: int) -> None:
    """Where (n + 1)·confidence is whole, rounding adds no rank: 100·0.55 is above 55."""
    assert rank_of(count, level) == rank
    scores = [float(i) for i in range(1, count + 1)]
    if scores:
        assert conformal_quantile(scores, level) == min(rank, count)


def test_no_scores_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="no score"):
        conformal_quantile([], 0.9)
