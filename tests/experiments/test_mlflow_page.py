"""The MLflow page in a real browser: it shows the runs, and two of them compared."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hybridlat.evaluation import overview, tracking
from tests.slow import slow

SCRIPT = Path(__file__).resolve().parents[2] / "experiments" / "08_mlflow_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mlflow_page", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def run(name: str, number: int) -> dict[str, Any]:
    return {"info": {"run_name": name, "run_id": str(number)}, "data": {}}


def test_old_and_new_champion_are_compared(script: ModuleType) -> None:
    names = ["a · gated · flops", "train b", "train a", "a · unseen · hybridlat",
             "a · unseen · roofline", "train a", "train a"]  # fmt: skip
    runs = [run(name, i) for i, name in enumerate(names)]
    assert [r["info"]["run_id"] for r in script.compared(runs)] == ["2", "5"]
    alone = [r for r in runs if not str(r["info"]["run_name"]).startswith("train")]
    assert [r["info"]["run_id"] for r in script.compared(alone)] == ["3", "4"]
    assert script.compared(runs[:1]) == []


@slow
@pytest.mark.skipif(
    None in (shutil.which("chromium"), shutil.which("chromedriver")),
    reason="there is no chromium with its driver",
)
def test_the_page_shows_runs_and_their_comparison(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="mlflow is not installed")
    pytest.importorskip("selenium", reason="selenium is not installed")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    url = f"sqlite:///{tmp_path / 'store.db'}"
    tracker = tracking.open_tracker(url)
    training = {"kind": "training", "target": "made/maker-1.0/fp32/1t"}
    for error in (3.5, 3.1):
        with tracker.run("train made/maker-1.0/fp32/1t", training) as kept:
            kept.parameters({"networks": 14})
            kept.metrics({"held_out_rmspe": error, "champion_rmspe": 3.5})
    for method, error in (("hybridlat", 3.1), ("roofline", 9.0)):
        what = {"target": "made/maker-1.0/fp32/1t", "regime": "unseen", "method": method}
        tags = {"kind": "evaluation", **what}
        with tracker.run(" · ".join(what.values()), tags) as kept:
            kept.metrics({"rmspe": error, "coverage": 0.9, "noise_floor": 1.0, "networks": 14})
    tracker.mark_newest("evaluation", list(what))
    tracker.describe(overview.overview(tracker.latest("evaluation", list(what))))
    browser = shutil.which("chromium")
    assert browser is not None
    pictures = script.take(tracking.tracking_uri(url), browser, tmp_path)
    assert [p.stem for p in pictures] == [
        "mlflow_figures", "mlflow_targets", "mlflow_champions", "mlflow_bare", "mlflow_compare"
    ]  # fmt: skip
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
