"""Figures of merit, splits and twins, against numbers worked out by hand."""

import math
from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest

from hybridlat.evaluation import leaderboard
from hybridlat.evaluation.cross_fitting import even_folds, fold_of
from hybridlat.evaluation.metrics import Prediction, ResultRow, noise_floor, score, spearman
from hybridlat.evaluation.twins import SharedKernels, dealt, plain_name, united
from hybridlat.model.family.observations import Observation, kernel_set
from hybridlat.model.family.physics import KernelTable
from tests.model.family.worlds import DEVICES, HERE, THERE, table

NAMES = [f"net{i}" for i in range(200)]
GROUPS = dict(zip(NAMES, [f"g{i // 3}" if i < 60 else f"net{i}" for i in range(200)], strict=True))


def test_twins_are_networks_of_the_same_kernels_on_whatever_device() -> None:
    draw = np.random.default_rng(1)
    one, other = table(draw), table(draw)
    deeper = replace(one, counts=one.counts * 3)
    both = KernelTable(
        np.vstack([one.values, other.values]), np.append(one.classes, other.classes),
        np.append(one.counts, other.counts), 0.0,
    )  # fmt: skip
    rows = [
        Observation(kernel_set(made, DEVICES[task.device], "fp32"), task, 1.0, name)
        for name, made, task in (
            ("a", one, HERE), ("b", other, HERE), ("a_deeper", deeper, THERE), ("ab", both, THERE)
        )
    ]  # fmt: skip
    shared = SharedKernels(rows)
    assert shared.twins()[0] == ("a", "a_deeper")  # each lies in the other
    assert set(shared.twins()[1:]) == {("a", "ab"), ("a_deeper", "ab"), ("ab", "b")}
    held = shared.held(np.array([True, False, False, False]))
    assert held[[0, 2]] == pytest.approx(1) and held[1] == 0 and 0 < held[3] < 1


def test_chains_of_twins_end_where_a_group_is_large() -> None:
    start = {name: name for name in "abcdef"}
    chain = [("a", "b"), ("e", "f"), ("b", "c"), ("c", "d")]
    assert united(start, chain, 3) == {"a": "a", "b": "a", "c": "a", "d": "d", "e": "e", "f": "e"}
    assert set(united(start, chain, 6).values()) == {"a", "e"}
    # What belongs together by its name does so however large it is.
    assert set(united(dict.fromkeys("abcd", "z"), [], 2).values()) == {"a"}


def test_ports_of_one_architecture_have_one_name() -> None:
    for name in ("senet154", "efficientnet_b0"):
        assert {plain_name(f"{of}{name}") for of in ("", "legacy_", "tf_")} == {name}


def test_folds_are_even_and_one_network_more_moves_few() -> None:
    folds = dealt(GROUPS)
    assert set(Counter(folds.values()).values()) == {40}
    assert all(folds[f"net{3 * i}"] == folds[f"net{3 * i + 2}"] for i in range(20))
    assert folds == dealt(dict(reversed(GROUPS.items()))) != dealt(GROUPS, 1)
    for i in range(20):
        more = dealt(GROUPS | {f"new{i}": f"new{i}"})
        assert sum(more[name] != fold for name, fold in folds.items()) <= 10


FIXED_KEYS = [
    "target", "regime", "method", "rmspe", "mape", "within_5", "within_10", "spearman", "coverage",
    "width", "measured_share", "device_s", "predict_ms", "noise_floor", "networks", "cells",
    "answered", "answered_share", "draws", "rmspe_sd", "mlflow_run", "calibration", "reason",
]  # fmt: skip


def test_scores_by_hand() -> None:
    figures = score([
        Prediction("a", 100.0, 103.0, (98.0, 108.0), 0.5, 2.0),
        Prediction("b", 200.0, 184.0, (180.0, 190.0), 0.1, 1.0),
        Prediction("c", 50.0, 50.0, (49.0, 51.0), 0.0, 0.0),
        Prediction("d", 10.0, math.nan),
    ])  # fmt: skip
    by_hand = {
        "rmspe": 100 * math.sqrt((0.03**2 + 0.08**2) / 3), "mape": 11 / 3, "within_5": 2 / 3,
        "within_10": 1, "spearman": 1, "coverage": 2 / 3, "measured_share": 0.15, "device_s": 3,
        "width": (10 / 103 + 10 / 184 + 2 / 50) / 3, "answered": 3, "judged": 3,
    }  # fmt: skip
    assert asdict(figures) == pytest.approx(by_hand)


def test_rank_correlation_with_ties() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert spearman([1, 5, 5, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([1, 2], [1, 2]) is None


def test_noise_is_each_repeat_against_the_others() -> None:
    rmspe = noise_floor([[100.0, 110.0], [50.0]])
    errors = (100 / 110 - 1, 110 / 100 - 1)
    assert rmspe == pytest.approx(100 * math.sqrt(sum(e * e for e in errors) / 2))
    assert noise_floor([[1.0], []]) is None


def test_folds_depend_on_names_alone() -> None:
    names = [f"net{i}" for i in range(40)]
    assert even_folds(names) == even_folds(names[::-1])
    assert Counter(even_folds(names).values()) == dict.fromkeys(range(5), 8)
    assert {fold_of(n) for n in names} == set(range(5))
    forms = [f"{name}@{form}" for name in names for form in ("u8s8", "s8s8")]
    assert {form: even_folds(names)[form.partition("@")[0]] for form in forms} == even_folds(forms)
    assert all(fold_of(form) == fold_of(form.partition("@")[0]) for form in forms)


def test_who_leaves_answers_out_is_not_the_best() -> None:
    every = score([Prediction("a", 100.0, 110.0), Prediction("b", 100.0, 90.0)])
    one = score([Prediction("a", 100.0, 100.0), Prediction("b", 100.0, math.nan)])
    ours = ResultRow("t", "cells@300", "hybridlat", every, 0.1, None, 0, 2, tested=2)
    part = ResultRow("t", "cells@300", "lookup_only", one, 0.1, None, 0, 1, tested=2)
    lines = leaderboard.markdown([part, ours]).splitlines()
    assert "| hybridlat | 10.00 |" in lines[4]
    assert "| lookup_only | 0.00 |" in lines[5]
    assert "| 2 cells |" in lines[4] and "| 50 % of 2 |" in lines[5]
    assert leaderboard.best([part, ours]) == [ours]
    assert leaderboard.best([part]) == []  # alone, it still leaves half of them out
    # Where we ourselves answer no more, it may be compared.
    one_too = score([Prediction("a", 100.0, 120.0)])
    ours = ResultRow("t", "cells@300", "hybridlat", one_too, 0.1, None, 0, 1, tested=2)
    assert leaderboard.best([part, ours]) == [part]


def _row(regime: str, method: str, error: float, answered: int = 1) -> ResultRow:
    given = [Prediction("a", 100.0, 100.0 + error)] * answered + [Prediction("b", 1.0, math.nan)]
    figures = score(given[:2])
    return ResultRow("t", regime, method, figures, 0.1, 2.0, answered, 1, tested=2)


def test_a_comparison_shows_what_matters_and_counts_rivals_only() -> None:
    regimes = ["measured", "unseen", "gated@5%", "gated_cells@20%"]
    errors = {"hybridlat": 3.0, "model_only": 1.0, "lookup_only": 1.0, "roofline": 9.0}
    errors["flops_linear"] = 40.0
    rows = [_row(r, m, e, answered=2) for r in regimes for m, e in errors.items()]
    rows += [_row(regime, "kernel_forest", 5.0) for regime in regimes]
    [table] = leaderboard.tables(rows)
    assert table.title == "t · noise floor 2.0 %"
    assert list(table.rows) == [
        [regime, "2 networks", "3.0", "9.0 roofline", "5.0 (of 1)", "40.0"]
        for regime in regimes[:3]
    ]


@pytest.mark.parametrize(
    ("regimes", "main"),
    [
        ("cells@300 cells@3000 cells@9000 gated_cells@20%", "cells@300 cells@9000 gated_cells@20%"),
        ("unseen unseen_family zero_shot", "unseen unseen_family zero_shot"),
        ("measured unseen gated@5% gated@1%", "measured unseen gated@5% gated@1%"),
    ],
)
def test_three_regimes_matter(regimes: str, main: str) -> None:
    rows = [_row(regime, "hybridlat", 1.0) for regime in regimes.split()]
    assert leaderboard.main_regimes(rows) == main.split()
    assert all(f"{regime}: " in leaderboard.legend(rows) for regime in main.split())
