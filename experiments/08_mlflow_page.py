"""Open the MLflow page in a real browser and take its picture: the runs, and two of them compared.

    python experiments/08_mlflow_page.py --store store.db -o pictures/

Needs Debian's chromium (``apt-get install chromium``) and MLflow; without either it says so and
ends with 0. Nothing but the local server is asked: the browser gets no other host.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

START_S = 180.0
LOAD_MS = 45_000


def main() -> int:
    """Read the command line, take the pictures, print their paths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", default=None, help="the store that the runs were made from")
    parser.add_argument("-o", "--out", type=Path, default=Path("pictures"))
    arguments = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("skipped: there is no chromium (apt-get install chromium)")
        return 0
    try:
        import mlflow  # noqa: F401
    except ImportError:
        print('skipped: MLflow is not installed (pip install "hybridlat[track]")')
        return 0
    from hybridlat import tracking
    from hybridlat.store import Store

    uri = tracking.tracking_uri(Store(arguments.store).url)
    arguments.out.mkdir(parents=True, exist_ok=True)
    pages = take(uri, browser, arguments.out)
    for page in pages:
        print(page)
    return 0


def take(uri: str, browser: str, out: Path) -> list[Path]:
    """Serve ``uri``, and take a picture of the runs and of the last runs of targets compared."""
    port = _free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri, "--host",
         "127.0.0.1", "--port", str(port), "--workers", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
    )  # fmt: skip
    try:
        base = f"http://127.0.0.1:{port}"
        _wait(base, server)
        experiment = _post(base, "experiments/get-by-name?experiment_name=hybridlat", None)
        number = experiment["experiment"]["experiment_id"]
        found = _post(base, "runs/search", {"experiment_ids": [number], "max_results": 200})
        runs = found.get("runs", [])
        if not runs:
            raise SystemExit(f"{uri} holds no runs: run `hybridlat evaluate` or `train` first")
        chosen = [r["info"]["run_id"] for r in runs if _wanted(r)][:8]
        pages = {
            "mlflow_runs.png": f"{base}/#/experiments/{number}/runs",
            "mlflow_models.png": f"{base}/#/models",
        }
        if chosen:
            pages["mlflow_run.png"] = f"{base}/#/experiments/{number}/runs/{chosen[0]}"
        if len(chosen) > 1:
            which = quote(json.dumps(chosen))
            which_experiments = quote(json.dumps([number]))
            pages["mlflow_compare.png"] = (
                f"{base}/#/compare-runs?runs={which}&experiments={which_experiments}"
            )
        return [_picture(browser, address, out / name) for name, address in pages.items()]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def _wanted(run: dict[str, dict[str, object]]) -> bool:
    """Runs worth comparing: trainings (old and new champion), and methods of an evaluation."""
    name = str(run["info"]["run_name"])
    return name.startswith("train ") or any(m in name for m in (" hybridlat", " roofline"))


def _picture(browser: str, address: str, path: Path) -> Path:
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={profile}", "--window-size=1600,1000",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
             f"--virtual-time-budget={LOAD_MS}", f"--screenshot={path.resolve()}", address],
            check=True, timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    if not path.is_file() or path.stat().st_size < 10_000:
        raise SystemExit(f"{path} is no picture of a page")
    return path


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


def _post(base: str, path: str, body: dict[str, object] | None) -> dict[str, dict[str, str]]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"{base}/api/2.0/mlflow/{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, dict[str, str]] = json.load(answer)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    raise SystemExit(main())
