"""A machine that no pack knows, learned in ten minutes for real, and judged on other networks.

    python experiments/21_onboarding_here.py prepare --to DIR     # minutes of fitting, no measuring
    python experiments/21_onboarding_here.py onboard --to DIR [--budget 600]
    python experiments/21_onboarding_here.py judge   --to DIR [--gated 20]

``prepare`` splits the networks of ``data/nets`` as experiment 17 does, and trains the model that is
transferred from once more on its pack, without the cells and kernels of the networks that judge: a
user's network was in no pack either. ``onboard`` is the product, on the other half. ``judge`` times
each network that judges whole, in a loop of its own with a median (twice, the second time in
another order), between them asks for the estimate with nothing measured, and last for the one that
the gate makes at 5 %. Everything lies in DIR: store, models, figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
NETS = ROOT / "data" / "nets"
PACK = ROOT / "data" / "packs" / "epyc-26-2_onnxruntime-1.31_fp32_1t"
TIMED_S = 0.8
LEAST_RUNS = 7
TOLERANCE = 0.05


def judges() -> list[str]:
    """The networks that judge: the half that experiment 17 reports on."""
    from hybridlat.evaluation.splits import even_folds

    place = even_folds((path.stem for path in NETS.glob("*.onnx")), 2)
    return sorted(name for name, half in place.items() if half == 1)


def prepare(folder: Path) -> None:
    """Folders, the networks to onboard with, and the model of the other machine."""
    from hybridlat.estimate.model_folders import COMPOSITION_FILE
    from hybridlat.evaluation.cross_fitting import fit_without
    from hybridlat.evaluation.dataset import load
    from hybridlat.model.cell_model import read_device
    from hybridlat.model.training_problem import FitConfig
    from hybridlat.store.packs import PackLookup

    nets = folder / "nets"
    nets.mkdir(parents=True, exist_ok=True)
    names = judges()
    for path in NETS.glob("*.onnx"):
        if path.stem not in names:
            shutil.copy(path, nets / path.name)
    pack = PackLookup(PACK)
    dataset = load(pack.target, [pack])
    shipped = ROOT / "models" / pack.target.folder
    device = read_device(shipped)
    assert device is not None
    hidden = dataset.forbidden([n for n in dataset.networks if n.name in names])
    model = fit_without(dataset, hidden, FitConfig(device, pack.target.precision))
    place = folder / "data" / "hybridlat" / "models" / pack.target.folder
    model.save(place, {"target": str(pack.target), "trained_networks": []})
    shutil.copy(shipped / COMPOSITION_FILE, place / COMPOSITION_FILE)
    print(f"{len(names)} networks judge, {len(list(nets.iterdir()))} may be measured")


def onboard(folder: Path, budget_s: float) -> None:
    """The product, on the networks that do not judge."""
    command = [sys.executable, "-m", "hybridlat", "onboard", "--budget", f"{budget_s:g}s", "--nets",
               str(folder / "nets"), "--no-track", "--store", store_of(folder)]  # fmt: skip
    subprocess.run(command, check=False, cwd=ROOT)


def store_of(folder: Path) -> str:
    """The store's address."""
    return f"sqlite:///{folder / 'store.db'}"


def timed_us(path: Path) -> float:
    """Median latency of a network in a loop that shares nothing with the product's measuring."""
    import onnxruntime

    from hybridlat import onnx_io

    network = onnx_io.read_network(path, name=path.stem)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_io.to_onnx(network, 1), options)
    random_ = np.random.default_rng(0)
    feed = {
        i.name: random_.normal(size=[int(d) for d in i.shape]).astype(np.float32)
        for i in session.get_inputs()
    }
    for _ in range(3):
        session.run(None, feed)
    taken: list[float] = []
    end = time.perf_counter() + TIMED_S
    while time.perf_counter() < end or len(taken) < LEAST_RUNS:
        began = time.perf_counter()
        session.run(None, feed)
        taken.append(1e6 * (time.perf_counter() - began))
    return statistics.median(taken)


def judge(folder: Path, count: int, gated: int) -> None:
    """Time, predict, time again, let the gate measure; figures to DIR/judged.json."""
    import hybridlat

    names = judges()
    random.Random(5).shuffle(names)
    names = names[:count]
    rows: dict[str, dict[str, float | None]] = {}
    for name in names:
        rows[name] = {"first_us": timed_us(NETS / f"{name}.onnx")}
        save(folder, rows)
    for name in names:
        found = hybridlat.predict(NETS / f"{name}.onnx", measure="never", store=store_of(folder))
        low, high = found.interval_us or (float("nan"), float("nan"))
        rows[name] |= {
            "unseen_us": found.latency_us, "unseen_low_us": low, "unseen_high_us": high,
        }  # fmt: skip
        save(folder, rows)
    for name in reversed(names):
        rows[name]["second_us"] = timed_us(NETS / f"{name}.onnx")
        save(folder, rows)
    for name in names[:gated]:
        began = time.perf_counter()
        found = hybridlat.predict(
            NETS / f"{name}.onnx", measure="auto", tolerance=TOLERANCE, store=store_of(folder)
        )
        rows[name] |= {
            "gated_us": found.latency_us, "gated_share": found.measured_share,
            "gated_s": time.perf_counter() - began,
        }  # fmt: skip
        save(folder, rows)
    show(rows)


def save(folder: Path, rows: dict[str, dict[str, float | None]]) -> None:
    """Keep what there is: a run may be cut off."""
    (folder / "judged.json").write_text(json.dumps(rows, indent=1) + "\n")


def show(rows: dict[str, dict[str, float | None]]) -> None:
    """The table, and the figures under it."""
    print("| network | measured, ms | again | unseen | gated@5% | measured share |")
    print("|---|---|---|---|---|---|")
    unseen, gated, again = [], [], []
    for name, row in sorted(rows.items()):
        truth = truth_us(row)
        again.append((row["second_us"] or 0) / (row["first_us"] or 1) - 1)
        cells = [name, f"{truth / 1e3:.2f}", f"{100 * again[-1]:+.1f} %"]
        for key, errors in (("unseen_us", unseen), ("gated_us", gated)):
            said = row.get(key)
            if said is None:
                cells.append("")
                continue
            errors.append(said / truth - 1)
            cells.append(f"{100 * errors[-1]:+.1f} %")
        share = row.get("gated_share")
        cells.append("" if share is None else f"{100 * share:.0f} %")
        print("| " + " | ".join(cells) + " |")
    inside = [
        (r["unseen_low_us"] or 0) <= truth_us(r) <= (r["unseen_high_us"] or 0)
        for r in rows.values()
    ]
    for what, errors in (("unseen", unseen), ("gated@5%", gated), ("second loop", again)):
        e = np.array(errors)
        if len(e):
            print(
                f"{what}: {len(e)} networks, RMSPE {100 * np.sqrt(np.mean(e**2)):.1f} %, "
                f"bias {100 * e.mean():+.1f} %, "
                f"within 5 %: {100 * np.mean(np.abs(e) <= 0.05):.0f} %, "
                f"within 10 %: {100 * np.mean(np.abs(e) <= 0.1):.0f} %"
            )
    print(f"interval of unseen holds {100 * np.mean(inside):.0f} %")


def truth_us(row: dict[str, float | None]) -> float:
    """The mean of both loops."""
    return ((row["first_us"] or 0.0) + (row["second_us"] or 0.0)) / 2


def main() -> None:
    """One of the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("step", choices=("prepare", "onboard", "judge", "show"))
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("--count", type=int, default=30, help="networks that judge")
    parser.add_argument("--gated", type=int, default=20)
    given = parser.parse_args()
    folder = given.to.resolve()
    os.environ["XDG_DATA_HOME"] = str(folder / "data")
    if given.step == "prepare":
        prepare(folder)
    elif given.step == "onboard":
        onboard(folder, given.budget)
    elif given.step == "judge":
        judge(folder, given.count, given.gated)
    else:
        show(json.loads((folder / "judged.json").read_text()))


if __name__ == "__main__":
    main()
