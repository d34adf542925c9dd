"""Open the MLflow page in a real browser and take its picture: figures, targets, two runs compared.

    python experiments/08_mlflow_page.py --store store.db -o pictures/

The first is what a newcomer sees by the link that `evaluate` prints: every target, regime and
method with its figures. Then the charts that compare targets, and models with the champions before
them; last two runs side by side: the last two trainings (the old champion and its rival), else
hybridlat and a baseline of the last evaluation in one regime. `mlflow_bare` is the experiment's
page without a link, as MLflow opens it. A page must name the runs and their metrics before its
picture is taken.

Needs Debian's chromium and its driver (``apt-get install chromium-driver``), selenium and MLflow;
without one of them it says so and ends with 0. Nothing but the local server is asked: the
browser gets no other host.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

START_S = 180.0
LOAD_S = 180.0
SETTLE_S = 3.0
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


def main() -> int:
    """Read the command line, take the pictures, print their paths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default=None, help="the store that the runs were made from")
    parser.add_argument("-o", "--out", type=Path, default=Path("pictures"))
    arguments = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None or shutil.which("chromedriver") is None:
        print("skipped: there is no chromium with its driver (apt-get install chromium-driver)")
        return 0
    for package in ("mlflow", "selenium"):
        if importlib.util.find_spec(package) is None:
            print(f"skipped: {package} is not installed (pip install {package})")
            return 0
    from hybridlat.evaluation import tracking
    from hybridlat.store import Store

    uri = tracking.tracking_uri(Store(arguments.store).url)
    arguments.out.mkdir(parents=True, exist_ok=True)
    pages = take(uri, browser, arguments.out)
    for page in pages:
        print(page)
    return 0


def take(uri: str, browser: str, out: Path) -> list[Path]:
    """Serve ``uri``, and take pictures of the experiment's views and of two runs compared."""
    from hybridlat.evaluation import saved_views

    port = _free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--host",
         "127.0.0.1", "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true",
             "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    )  # fmt: skip
    try:
        base = f"http://127.0.0.1:{port}"
        _wait(base, server)
        experiment = _post(base, "experiments/get-by-name?experiment_name=hybridlat", None)
        number = experiment["experiment"]["experiment_id"]
        result = _post(base, "runs/search", {"experiment_ids": [number], "max_results": 200})
        runs = result.get("runs", [])
        if not runs:
            raise SystemExit(f"{uri} holds no runs: run `hybridlat evaluate` or `train` first")
        chosen = compared(runs)
        targets = sorted({_tags(run)["target"] for run in runs if "target" in _tags(run)})
        shown = [("mlflow_figures", saved_views.FIGURES, [*targets[:3], "rmspe", "noise_floor"])]
        if any(_tags(run).get("regime") == "unseen" for run in runs):
            shown.append(("mlflow_targets", saved_views.GPUS, ["coverage"]))
        if any(_tags(run).get("kind") == "training" for run in runs):
            shown.append(("mlflow_champions", saved_views.CHAMPIONS, ["held_out_rmspe"]))
        pages = [
            Page(name, f"{base}/{view.link(number)}", (2300, 1300), [view.name, *words],
                 min(len(view.charts), 3))
            for name, view, words in shown
        ]  # fmt: skip
        pages.append(Page("mlflow_bare", f"{base}/#/experiments/{number}", (2300, 1300), []))
        if len(chosen) == 2:
            which = quote(json.dumps([run["info"]["run_id"] for run in chosen]))
            where = quote(json.dumps([number]))
            words = [*(_name(run).split(" ")[-1] for run in chosen), *_metrics(chosen)[:3]]
            address = f"{base}/#/compare-runs?runs={which}&experiments={where}"
            pages.append(Page("mlflow_compare", address, (1700, 2050), words))
        return [page.taken(browser, out) for page in pages]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


Run = dict[str, dict[str, Any]]


def _name(run: Run) -> str:
    return str(run["info"]["run_name"])


def _tags(run: Run) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["data"].get("tags", ())}


def _metrics(runs: Sequence[Run]) -> list[str]:
    """Names of metrics that all of the runs have."""
    names = [{m["key"] for m in run["data"].get("metrics", ())} for run in runs]
    return sorted(set.intersection(*names))


def compared(runs: Sequence[Run]) -> list[Run]:
    """The two last trainings of one target, newest first; else hybridlat and a baseline."""
    trained = [run for run in runs if _name(run).startswith("train ")]
    for newest in trained:
        found = [run for run in trained if _name(run) == _name(newest)]
        if len(found) > 1:
            return found[:2]
    own = [run for run in runs if _name(run).endswith(" · hybridlat")][:1]
    where = _name(own[0]).rpartition(" · ")[0] if own else ""
    others = [run for run in runs if _name(run).rpartition(" · ")[0] == where and run not in own]
    return [*own, *others[:1]]


@dataclass(frozen=True)
class Page:
    """An address, the size of its window, and what it must show: words, and drawn charts."""

    name: str
    address: str
    window: tuple[int, int]
    words: Sequence[str]
    charts: int = 0

    def taken(self, browser: str, out: Path) -> Path:
        """Its picture; SystemExit when the page does not come to show all of it."""
        from selenium import webdriver
        from selenium.common.exceptions import TimeoutException
        from selenium.webdriver.chrome.service import Service
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.ui import WebDriverWait

        options = webdriver.ChromeOptions()
        options.binary_location = browser
        for flag in (*_FLAGS, f"--window-size={self.window[0]},{self.window[1]}"):
            options.add_argument(flag)
        driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))

        def shown(page: webdriver.Chrome) -> bool:
            text = page.page_source
            drawn = page.find_elements(By.CSS_SELECTOR, ".js-plotly-plot .main-svg")
            return all(word in text for word in self.words) and len(drawn) >= self.charts

        try:
            driver.get(self.address)
            WebDriverWait(driver, LOAD_S, SETTLE_S).until(shown)
            time.sleep(SETTLE_S)
            path = (out / f"{self.name}.png").resolve()
            driver.save_screenshot(str(path))
            return path
        except TimeoutException:
            missing = [word for word in self.words if word not in driver.page_source]
            what = ", ".join(missing) or "its charts"
            raise SystemExit(f"{self.name} does not show {what}") from None
        finally:
            driver.quit()


def _wait(base: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if server.poll() is not None:
            raise SystemExit(f"the MLflow server ended with {server.returncode}")
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit(f"the MLflow server did not answer within {START_S:.0f} s")


def _post(base: str, path: str, body: dict[str, object] | None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{base}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        document: dict[str, Any] = json.load(answer)
    return document


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main())
