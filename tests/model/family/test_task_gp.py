"""The process against scikit-learn's, and against itself fitted anew."""

import warnings

import numpy as np
import pytest

from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.task_laws import TaskGP
from hybridlat.model.family.tasks import Array, Float32, Task
from tests.model.family.worlds import HERE, THERE

EMBEDDING = Embedding(Hyper(), size=6)
OTHER_VERSION = Task("gpu", "engine-2", "fp32")


def rows(count: int, seed: int) -> tuple[Float32, list[Task], Array, Array]:
    """(equations, their tasks, residuals, covariance of their noise)."""
    draw = np.random.default_rng(seed)
    equations = draw.standard_normal((count, EMBEDDING.columns)).astype(np.float32)
    tasks = [(HERE, THERE, OTHER_VERSION)[i % 3] for i in range(count)]
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
    assert asked @ gp.coefficients([HERE])[0] == pytest.approx(mean, abs=1e-4)
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
    beyond = residuals[known:] - (equations[known:] * means).sum(axis=1)
    later = first.condition(equations[known:], tasks[known:], noise[known:, known:], beyond)
    assert later.coefficients([THERE]) == pytest.approx(whole.coefficients([THERE]), abs=1e-4)
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
