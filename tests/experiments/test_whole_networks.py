"""What whole networks are judged by: lines, their page and picture, and one known latency."""

import re
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments import whole_networks_lines as lines
from hybridlat.evaluation import tracking
from hybridlat.evaluation.families import FamilyRecords
from hybridlat.model.conformal import Calibration
from hybridlat.model.family.embedding import Embedding, Hyper
from hybridlat.model.family.fit import embedded, fit
from hybridlat.model.family.model import half_width
from tests.model.family.worlds import THERE, observations

pytest.importorskip("pandas")
from experiments import whole_networks_page as page
from experiments.whole_networks_data import FAMILIES, read_rows
from experiments.whole_networks_few_shot import one_known

TRUTH = np.array([100.0, 200.0, 400.0])
BOUNDS = TRUTH * [[0.9], [1.2]]


def test_a_line_has_errors_and_what_intervals_hold(tmp_path: Path) -> None:
    predicted, names = TRUTH * [1.0, 1.1, 1.3], ("t4/tensorrt/fp16", "unseen", "hybridlat")
    one = lines.line(names, predicted, TRUTH, ["a", "a", "b"], [*BOUNDS * [1, 1, 2]])
    assert one.rmspe == pytest.approx(100 * np.sqrt((0.1**2 + 0.3**2) / 3))
    assert one.median == pytest.approx(10)
    assert (one.latencies, one.networks) == (3, 2)
    assert one.coverage == pytest.approx(200 / 3)
    assert one.half_width == pytest.approx(20)
    bare = lines.line(names, predicted, TRUTH)
    lines.write([one, bare], tmp_path / "lines.csv")
    kept = lines.read(tmp_path / "lines.csv")
    assert kept[0] == replace(one, rmspe=18.3, median=10.0, bias=13.3, coverage=67, half_width=20)
    assert (kept[1].coverage, kept[1].networks) == (None, 0)


def test_figures_of_several_draws_are_their_mean_with_its_spread(tmp_path: Path) -> None:
    drawn = [lines.Line("t4/tensorrt-10/fp16", "unseen", "hybridlat", 30, error, 3.0, 0.0, 90, 40)
             for error in (7.0, 8.0, 9.0)]  # fmt: skip
    one, alone = lines.mean(drawn, 25.0), lines.mean(drawn[:1])
    assert (one.rmspe, one.rmspe_sd, one.median_sd, one.draws) == (8.0, 1.0, 0.0, 3)
    assert (alone.rmspe, alone.rmspe_sd, alone.draws) == (7.0, None, 1)
    lines.write([one], tmp_path / "lines.csv")
    assert lines.read(tmp_path / "lines.csv") == [one]
    assert page.table(page.judged([one])).rows[0][2] == "8.0±1.0/3.0"
    assert "means of 3 draws" in page.about([one]) and "25 % of a table's rows" in page.about([one])
    assert "one draw by architectures' names alone" in page.about(drawn)
    assert "hybridlat from all latencies of its family: 30 of 1 tables (tensorrt)" in page.about(
        [one]
    )


def test_rows_are_read_with_what_timed_them_and_counted_where_they_are_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = (
        "t4/tensorrt-10-yolo12/fp16", "xavier-agx/tensorrt-jetson-inference/fp16",
        "orin-agx/tensorrt-mmdeploy/fp16", "v100/torch-1.6/fp32",
        "t4/tkdnn-tensorrt-7.0/fp16", "t4/tkdnn-tensorrt-7.0/fp16", "t4/engine/fp16",
    )  # fmt: skip
    table = pytest.importorskip("pandas").DataFrame(
        {"target": targets, "onnx": "a", "batch": 1, "latency_us": 9.0}
    )
    for column in ("layout", "note", "mapping_note", "source", "path"):
        table[column] = ""
    table.to_parquet(tmp_path / "networks.parquet")
    rows = read_rows([tmp_path], FAMILIES["tensorrt"])
    assert [row.target.runtime for row in rows] == ["tensorrt-10", "tensorrt", "tensorrt"]
    assert [row.harness for row in rows] == ["yolo12", "jetson-inference", "mmdeploy"]
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(": 1 rows of engine are passed over: an engine of no family")
    assert ": 2 rows of tkdnn-tensorrt-7.0 are passed over: an engine of its own" in second


def test_one_known_latency_is_near_what_the_product_makes_of_it() -> None:
    model = fit(observations(60, 1), Embedding(Hyper(), size=40))
    rows = observations(6, 2, THERE, slower=0.4)
    told = [replace(row, architecture=str(i)) for i, row in enumerate(rows)]
    told[1] = replace(told[1], architecture="0")

    class Records(FamilyRecords):
        observations = told
        clouds = embedded(told, model.embedding)

    calibration = Calibration(0.05, np.linspace(0, 3, 50), {"x": np.linspace(0, 2, 50)})
    said, truth, half = one_known(Records("", (), {}), model, calibration, range(6))
    assert np.isnan(said[0, 1]) and np.isnan(np.diag(said)).all() and np.isfinite(said[2, 0])
    assert (truth[2] == [one.latency_us for one in told]).all()
    conditioned = model.condition([told[2]])
    for other in (0, 4):
        one = conditioned.predict(told[other].kernels, THERE)
        assert said[2, other] == pytest.approx(one.median_us, rel=0.03)
        assert half[2, other] == pytest.approx(half_width(calibration, one, THERE), rel=0.05)


def test_the_page_says_what_the_lines_come_to() -> None:
    def made(target: str, regime: str, method: str, error: float) -> lines.Line:
        return lines.Line(target, regime, method, 30, error, error, 0.0, 90, 40, 20)

    t4, v100 = "t4/tensorrt-10/fp16", "v100/paddle-tensorrt-2020/fp16"
    known = [made(t4, "unseen", "hybridlat", 8), made(t4, "unseen", "roofline", 10),
             made(t4, "unseen", "kernel_forest", 9), made(t4, "zero_shot", "hybridlat", 40),
             made(v100, "zero_shot", "hybridlat", 10),
             made(t4, "one_constant", "hybridlat", 7),
             made(t4, "few@10", "chosen", 12)]  # fmt: skip
    targets = page.judged(known)
    rows = {row[0]: list(row[1:]) for row in page.goals(targets).rows}
    assert rows[page.CAME_TO[0]] == ["20.0 (2)", "10.0 (1)", "40.0 (1)"]
    assert rows["worst device"] == ["40.0 t4", "10.0 v100", "40.0 t4"]
    assert rows[page.CAME_TO[6]] == ["7.0 (1)", "–", "7.0 (1)"]
    assert rows[page.CAME_TO[7]] == ["1 of 1", "0 of 0", "1 of 1"]
    assert [rows[name] for name in page.CAME_TO[-2:]] == [
        ["1 of 1", "0 of 0", "1 of 1"],
        ["0.7", "0.0", "0.7"],  # 17 to 19 of 20 networks
    ]
    first, second = page.table(targets).rows
    assert first[:7] == [t4, "30/20", "8.0/8.0", "–", "40.0/40.0", "–", "12.0/12.0"]
    assert (*first[-3:-1], second[0]) == ("9.0/–", "kernel_forest", f"{v100}*")
    assert page.drawn(targets).count("<circle") == 3 + 2  # and of the legend


def test_page_and_picture_are_the_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = lines.read(lines.FIGURES)
    (tmp_path / "gpus.md").write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    files = [page.PAGE, *(page.FIGURES / name for name in ("gpus.csv", "gpus.svg"))]
    monkeypatch.setattr(page, "PAGE", tmp_path / "gpus.md")
    monkeypatch.setattr(page, "FIGURES", tmp_path)
    page.write_page(known)
    for file in files:
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()
    kept: dict[str, Any] = {}
    mlflow = SimpleNamespace(
        log_params=kept.update,
        log_metrics=kept.update,
        log_text=lambda text, name: kept.update({name: text}),
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    for block in ("opened", "run"):
        monkeypatch.setattr(tracking, block, lambda *_: nullcontext())
    few = [one for one in known if "@" in one.regime][:2]
    page.log(few, "mlflow.db")
    assert kept["gpus.md"] == page.table(page.judged(few)).markdown()
    assert f"{few[0].regime.replace('@', '_at_')}/{few[0].method}/rmspe" in kept
    assert all(re.fullmatch(r"[\w/ .:-]+", name) for name in kept)  # as MLflow takes them
