"""Pictures of MLflow's own pages, before and after a retraining of one target, in a Chromium.

    python experiments/mlflow_pages.py --folder /tmp/pages     (minutes; one where runs are kept)

The first evaluation and training have the records of every third shipped network, the second ones
all of the target's pack: each by a clone of this commit that has neither its pack nor its model, so
nothing else is known. Both evaluations judge the same networks, those of the first records.
``--also`` imports more packs before the second: ten networks of another version of the engine add
two methods. It needs Debian's chromium and chromium-driver, and ``pip install selenium pillow``.
"""

import argparse
import io
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.report_page import chromium
from hybridlat.evaluation import tracking
from hybridlat.schema.target import Target
from hybridlat.store import Store, packs

SIZE = {"width": 1600, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
LARGEST_BYTES = 120_000
SETTLED_S = 10.0  # charts are drawn by and by
# MLflow's assistant stands open where it never was closed.
CLOSED = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"


def record(target: Target, folder: Path, also: Sequence[Path]) -> None:
    """An evaluation and a training of few records, then of all."""
    (folder / "nets").mkdir(parents=True, exist_ok=True)
    networks = sorted((ROOT / "data" / "nets").glob("*.onnx"))[::3]
    for network in networks:
        shutil.copy(network, folder / "nets")
    pack = ROOT / "data" / "packs" / target.folder
    keep_records(pack, {network.stem for network in networks}, folder / "store.db")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(["git", "checkout", "--quiet", "--detach"], cwd=clone, check=True)
    for shipped in (clone / "data" / "packs", clone / "models"):
        shutil.rmtree(shipped / target.folder)
    of_target = ["--target", str(target)]
    judged = ["evaluate", "--nets", str(folder / "nets"), *of_target]
    trained = ["train", "--out", str(folder / "models"), *of_target]
    imported = ["import", str(pack), *map(str, also)]
    for words in (judged, trained, imported, trained, judged):
        command = [sys.executable, "-m", "hybridlat", *words, "--store", str(folder / "store.db")]
        subprocess.run(command, cwd=clone, check=True)


def keep_records(pack: Path, names: Collection[str], file: Path) -> None:
    """A store of what a pack has of these networks: their latencies, cells and layers."""
    records = packs.PackLookup(pack)
    networks = [known for known in records.breakdowns() if known.network in names]
    parts = (part for known in networks for part in (*known.cells, *known.layers))
    hashes = {known.signature for known in networks} | {signature for signature, _ in parts}
    with Store(file) as store:
        store.add_signatures(records.signature_texts(hashes))
        store.add(each for each in records.measurements() if each.signature in hashes)
        store.add_breakdowns(networks)


@contextmanager
def opened(store: Path) -> Iterator[tuple[Any, str]]:
    """A Chromium of 1600 × 1000, and the address that ``hybridlat mlflow`` prints, answering."""
    words = [sys.executable, "-m", "hybridlat", "mlflow", "--store", str(store)]
    with ExitStack() as stack:
        started = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        server = stack.enter_context(started)
        stack.callback(server.terminate)
        address = urlsplit(server.stdout.readline().strip())
        driver = chromium()
        stack.callback(driver.quit)
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": CLOSED})
        while server.poll() is None:
            with socket.socket() as probe:
                if not probe.connect_ex((address.hostname, address.port)):
                    break
            time.sleep(0.5)
        yield driver, address.geturl()


def keep(png: bytes, file: Path) -> None:
    """The picture in as many colours as ``LARGEST_BYTES`` hold."""
    from PIL import Image

    picture, colours = Image.open(io.BytesIO(png)).convert("RGB"), 128
    while colours == 128 or file.stat().st_size > LARGEST_BYTES:
        picture.quantize(colours).save(file, optimize=True)
        colours //= 2


def pages(target: Target, experiment: str, all_runs: str) -> dict[str, str]:
    """The address of each picture's page; ``all_runs`` is that of the list of runs."""
    from mlflow import MlflowClient

    client, server = MlflowClient(), all_runs.partition("/#")[0]
    words = f"tags.target = '{target}' and tags.kind = 'evaluation'"
    above = [run.info.run_id for run in client.search_runs([experiment], words)]
    words = f"tags.mlflow.parentRunId = '{above[0]}'"
    below = [run.info.run_id for run in client.search_runs([experiment], words)]
    learning = "workflowType=machine_learning"
    ids = quote(json.dumps([experiment]))

    def compared(runs: Sequence[str]) -> str:
        return (
            f"{server}/#/compare-runs?runs={quote(json.dumps(runs))}&experiments={ids}&{learning}"
        )

    model = tracking.model_name(target)
    version = client.get_model_version_by_alias(model, tracking.CHAMPION).version
    return {
        "run": f"{server}/#/experiments/{experiment}/runs/{above[0]}?{learning}",
        "runs": all_runs,
        "evaluations": compared(above[:2]),
        "methods": compared(below),
        "charts": f"{all_runs}&compareRunsMode=CHART",
        "version": f"{server}/#/models/{model}/versions/{version}?{learning}",
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="of store.db and mlflow.db")
    parser.add_argument("--target", default="epyc-26-2/onnxruntime-1.31/fp32/1t")
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="packs to import as well")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    chosen = parser.parse_args()
    target = Target.parse(chosen.target)
    store = chosen.folder.resolve() / "store.db"
    if not store.with_name("mlflow.db").exists():
        record(target, chosen.folder.resolve(), [pack.resolve() for pack in chosen.also])
    with opened(store) as (driver, address), tracking.opened(str(store)) as experiment:
        for name, page in pages(target, experiment, address).items():
            driver.get("about:blank")
            driver.get(page)
            time.sleep(SETTLED_S)
            keep(driver.get_screenshot_as_png(), chosen.out / f"mlflow_{name}.png")
