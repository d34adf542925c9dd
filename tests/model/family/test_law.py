"""What a family learns from sums, what trees and measured networks add, and its intervals."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hybridlat.model.conformal import calibrate
from hybridlat.model.family import task_laws
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import fit
from hybridlat.model.family.model import FamilyModel, half_width
from hybridlat.model.family.observations import Observation, family_of, task_base
from hybridlat.model.family.task_laws import LARGEST_CORRECTION, TaskTrees
from hybridlat.model.family.tasks import Sharing, Task
from hybridlat.model.geometry import Array
from tests.model.family.worlds import HERE, THERE, log_us, observations, true_us

ROWS = observations(40, 1)
HELD_OUT = observations(30, 2)
KERNELS = ROWS[0].kernels
TRUTH = np.log([true_us(one.kernels, HERE) for one in HELD_OUT])


def weighed(off: float) -> TaskTrees | None:
    """Trees where the process is so far off, one way and the other."""
    errors = np.where(np.arange(40) % 2, off, -off)
    names = np.array([one.architecture for one in ROWS])
    families = np.array([family_of(one.architecture) for one in ROWS])
    return task_laws.weighed(ROWS, [(names, errors), (families, errors)])


@pytest.fixture(scope="module")
def law() -> TaskTrees:
    made = weighed(0.3)
    assert made is not None
    return made


def test_parts_of_the_base_have_factors_of_their_own(law: TaskTrees) -> None:
    by_trees = [law.log_us(one.kernels, HERE) for one in HELD_OUT]
    base = [one.kernels.counts @ task_base(one.kernels, HERE) for one in HELD_OUT]
    assert np.median(np.abs(by_trees - TRUTH)) < 0.3 * np.median(np.abs(np.log(base) - TRUTH))


def test_trees_count_by_how_much_nearer_they_are() -> None:
    wrong, half_wrong = weighed(0.1), weighed(0.02)
    assert wrong is not None and half_wrong is not None and wrong.weight > 0.5 > half_wrong.weight
    assert weighed(0.0) is None  # nothing is left to tell


def test_a_correction_is_bounded_and_fades_where_a_network_is_unlike(law: TaskTrees) -> None:
    by_trees = law.log_us(KERNELS, HERE)
    for apart in (-5.0, -0.05, 0.0, 0.05, 5.0):
        expected = law.weight * float(np.clip(-apart, -LARGEST_CORRECTION, LARGEST_CORRECTION))
        assert law.correction(KERNELS, HERE, by_trees + apart) == pytest.approx(expected)
    near, log_us = replace(law, reach=0.2), law.log_us(KERNELS, HERE) - 0.1
    full, *faded = (near.correction(KERNELS, HERE, log_us, s) for s in (0.1, 0.2, 0.3, 0.4))
    assert faded[0] == full == pytest.approx(0.1 * law.weight)
    assert full > 4 * faded[1] > 4 * faded[2] > 0
    assert faded[2] == pytest.approx(full / 16)


def test_trees_mend_a_law_that_is_too_stiff_and_belong_to_a_task_with_networks_enough() -> None:
    stiff = Hyper(smooth=0.02, rough=0.02, by_class=0.02, offset=0.02, boosted=True)
    embedding = Embedding(stiff, size=40)
    model = fit(ROWS, embedding)
    assert set(model.trees) == {HERE}
    assert 0 < model.trees[HERE].reach < 1
    both, alone = (
        np.median(np.abs([log_us(one, row) for row in HELD_OUT] - TRUTH))
        for one in (model, replace(model, trees={}))
    )
    assert both < 0.7 * alone
    assert not fit(ROWS[: task_laws.LEAST - 1], embedding).trees
    assert not fit(ROWS, embedding, with_trees=False).trees
    assert not fit(ROWS, Embedding(replace(stiff, boosted=False), size=40)).trees


def test_what_trees_add_stays_when_networks_correct_a_task(law: TaskTrees) -> None:
    plain = fit(ROWS, Embedding(Hyper(), size=40), with_trees=False)
    model = replace(plain, trees={HERE: replace(law, weight=0.5)})
    (other,) = observations(1, 5)
    added = log_us(model, other) - log_us(plain, other)
    assert added != 0
    slower = plain.condition([replace(other, latency_us=1.2 * other.latency_us)])
    boosted_too = replace(slower, trees=model.trees)
    assert log_us(boosted_too, other) - log_us(slower, other) == pytest.approx(added)


EMBEDDING = Embedding(Hyper(), size=60)
SLOWER = 0.4


@pytest.fixture(scope="module")
def model() -> FamilyModel:
    return fit(observations(60, 1), EMBEDDING)


def errors(model: FamilyModel, held_out: list[Observation], slower: float = 0.0) -> Array:
    """Of ln(latency), against the law's truth."""
    truth = [np.log(true_us(one.kernels, one.task, slower)) for one in held_out]
    return np.subtract([log_us(model, one) for one in held_out], truth)


def miss(model: FamilyModel, held_out: list[Observation], slower: float = 0.0) -> float:
    return float(np.median(np.abs(errors(model, held_out, slower))))


def spread(model: FamilyModel, rows: Sequence[Observation]) -> float:
    return float(np.mean([model.predict(one.kernels, one.task).log_sd for one in rows]))


def test_the_law_is_found_from_sums_alone_in_spite_of_wrong_rows(model: FamilyModel) -> None:
    held = observations(30, 2)
    base = [np.log(o.kernels.counts @ o.kernels.base_us / true_us(o.kernels, o.task)) for o in held]
    assert miss(model, held) < min(0.03, 0.2 * np.median(np.abs(base)))
    factors = [4.0 if i % 12 == 0 else 1.0 for i in range(60)]
    rows = zip(observations(60, 1), factors, strict=True)
    spoilt = [replace(one, latency_us=one.latency_us * factor) for one, factor in rows]
    assert miss(fit(spoilt, EMBEDDING), observations(30, 2)) < 0.1


def test_a_latency_must_be_above_zero(model: FamilyModel) -> None:
    row = replace(observations(1, 1)[0], latency_us=0.0)
    with pytest.raises(ValueError, match="a latency of 0"):
        fit([row], EMBEDDING)
    with pytest.raises(ValueError, match="not above zero"):
        model.condition([row])


def test_a_kernel_of_many_launches_is_learned_where_that_is_believed() -> None:
    slower = 4.2  # sixty-odd launches where the base has one
    rows, held_out = observations(40, 1, slower=slower), observations(10, 2, slower=slower)
    near, far = (
        miss(fit(rows, Embedding(Hyper(offset=2.0, highest=highest), size=60)), held_out, slower)
        for highest in (6.0, 3.5)
    )
    assert near < 0.2 < far


def test_a_few_networks_correct_a_new_device(model: FamilyModel) -> None:
    few, held_out = (observations(count, count, THERE, slower=SLOWER) for count in (5, 30))
    none, one, five = (model.condition(few[:count]) for count in (0, 1, 5))
    assert miss(none, held_out, SLOWER) > 0.3 and miss(five, held_out, SLOWER) < 0.06
    assert spread(none, held_out) > spread(one, held_out) > spread(five, held_out)


def test_one_network_does_not_tell_what_the_host_of_another_costs() -> None:
    eager, apart = Task("other", "torch-2.4", "fp32"), {"host": Sharing(1.0, device=6.0)}
    few = observations(4, 2, eager)

    def left(host: float, times: float) -> float:
        """What stays unsure of a network whose kernels take so many times as long."""
        hyper = Hyper(overlap=3.0, apart=apart, host=host)
        model = fit(observations(40, 1), Embedding(hyper, size=40))
        sets = [replace(one.kernels, base_us=one.kernels.base_us * times) for one in few]
        known = replace(few[0], kernels=sets[0], latency_us=5000.0)
        return model.condition([known] * 3).predict(sets[1], eager).log_sd

    assert left(0.3, 1e-3) > 0.25 > 2 * left(0.0, 1e-3)
    assert left(0.3, 1e3) == pytest.approx(left(0.0, 1e3), rel=0.02)


@pytest.mark.parametrize("right", [0, 1, 5])
def test_one_wrong_network_makes_one_or_two_doubtful_and_is_held_off_by_five(
    model: FamilyModel, right: int
) -> None:
    few = observations(right + 1, 2, THERE, slower=SLOWER)
    few[right] = replace(few[right], latency_us=few[right].latency_us * 20)
    held_out, without = observations(20, 3, THERE, slower=SLOWER), model.condition(few[:right])
    few_more = model.condition(few)
    for row in held_out:
        one, plain = (each.predict(row.kernels, THERE) for each in (few_more, without))
        moved = abs(math.log(one.median_us / plain.median_us))
        assert moved < half_width(None, one, THERE) + 0.1
    assert few_more.is_doubtful == (right < 5)
    assert right < 5 or miss(few_more, held_out, SLOWER) < 0.3
    assert not model.condition(observations(2, 2, THERE, slower=np.log(8))).is_doubtful  # agree


def test_intervals_hold_as_often_as_they_say() -> None:
    draw = np.random.default_rng(1)
    spreads = draw.uniform(0.02, 0.3, 800)
    off = 1.7 * spreads * draw.standard_normal(800)  # the spreads are too small by that much
    calibration = calibrate(off[:400], spreads[:400], ["a"] * 400)
    widths = [calibration.half_width(s, "a", 0.9) for s in spreads[400:]]
    assert np.mean(np.abs(off[400:]) <= widths) == pytest.approx(0.9, abs=0.04)


def test_an_unknown_task_has_the_pool_and_what_is_measured_narrows_it() -> None:
    calibration = calibrate(np.linspace(-0.5, 0.5, 101), np.full(101, 0.1), ["a"] * 101)
    assert calibration.half_width(0.1, "new") == pytest.approx(calibration.half_width(0.1, "a"))
    after = [calibration.half_width(s, "new", prior_spread=1.0) for s in (0.1, 0.2, 9.0)]
    assert after[0] < after[1] < after[2] == calibration.half_width(1.0, "new")
    ratio_quantiles = [calibration.quantile(task, 0.9, 1.0) for task in ("new", "a")]
    own = calibration.half_width(0.1, "a") / np.hypot(0.1, calibration.floor)
    assert ratio_quantiles[0] == 1.0 < ratio_quantiles[1] < own
    with pytest.raises(ValueError, match="no held-out error"):
        calibrate(np.zeros(0), np.zeros(0), [])
