"""A machine that no pack knows, learned in ten minutes for real, and judged on other networks.

    python experiments/onboarding.py prepare --to DIR     # minutes of fitting, no measuring
    python experiments/onboarding.py onboard --to DIR [--time-limit 600]
    python experiments/onboarding.py judge   --to DIR [--gated 20]

``prepare`` splits the networks of ``data/nets`` in halves by their names, and trains the model that
is transferred from once more on its pack, without the cells and kernels of the networks that judge:
a user's network was in no pack either. ``onboard`` is the product, on the other half. ``judge``
times each network that judges whole, in a loop of its own with a median (twice, the second time in
another order), between them predicts it with nothing measured, and last with what the gate
measures at 5 %. Everything lies in DIR: store, models, figures.
"""

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
import hybridlat
from experiments.plain_loop import loop_us
from hybridlat.estimate.lookup.models import COMPOSITION_FILE
from hybridlat.evaluation.cross_fitting import even_folds, fit_without
from hybridlat.evaluation.dataset import load
from hybridlat.model.fit import FitConfig
from hybridlat.model.model_files import read_device, save_model
from hybridlat.store.packs import PackLookup

NETS = ROOT / "data" / "nets"
PACK = ROOT / "data" / "packs" / "epyc-26-2_onnxruntime-1.31_fp32_1t"
TOLERANCE = 0.05
LOOPS = ("first_us", "second_us")


def judges() -> list[str]:
    """The networks that judge: one half of all, by their names."""
    place = even_folds((path.stem for path in NETS.glob("*.onnx")), 2)
    return sorted(name for name, half in place.items() if half == 1)


def prepare(folder: Path) -> None:
    """Folders, the networks to onboard with, and the model of the other machine."""
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
    save_model(model, place, {"target": str(pack.target), "trained_networks": []})
    shutil.copy(shipped / COMPOSITION_FILE, place / COMPOSITION_FILE)
    print(f"{len(names)} networks judge, {len(list(nets.iterdir()))} may be measured")


def onboard(folder: Path, limit_s: float) -> None:
    """The product, on the networks that do not judge."""
    command = [sys.executable, "-m", "hybridlat", "onboard", "--no-track"]
    command += ["--time-limit", f"{limit_s:g}s", "--nets", str(folder / "nets")]
    command += ["--store", store_of(folder)]
    subprocess.run(command, check=False, cwd=ROOT)


def store_of(folder: Path) -> str:
    """The store's address."""
    return f"sqlite:///{folder / 'store.db'}"


def judge(folder: Path, count: int, gated: int) -> None:
    """Time, predict, time again, let the gate measure; figures to DIR/judged.json."""
    names = judges()
    random.Random(5).shuffle(names)
    names = names[:count]
    rows: dict[str, dict[str, float | None]] = {}
    for name in names:
        rows[name] = {"first_us": loop_us(NETS / f"{name}.onnx")}
        save(folder, rows)
    for name in names:
        answer = hybridlat.predict(NETS / f"{name}.onnx", measure="never", store=store_of(folder))
        low, high = answer.interval_us or (float("nan"), float("nan"))
        rows[name] |= {
            "unseen_us": answer.latency_us, "unseen_low_us": low, "unseen_high_us": high,
        }  # fmt: skip
        save(folder, rows)
    for name in reversed(names):
        rows[name]["second_us"] = loop_us(NETS / f"{name}.onnx")
        save(folder, rows)
    for name in names[:gated]:
        began = time.perf_counter()
        answer = hybridlat.predict(
            NETS / f"{name}.onnx", measure="auto", tolerance=TOLERANCE, store=store_of(folder)
        )
        rows[name] |= {
            "gated_us": answer.latency_us, "gated_share": answer.measured_share,
            "gated_s": time.perf_counter() - began,
        }  # fmt: skip
        save(folder, rows)
    show(rows)


def save(folder: Path, rows: dict[str, dict[str, float | None]]) -> None:
    """Keep what there is: a run may be cut off."""
    (folder / "judged.json").write_text(json.dumps(rows, indent=1) + "\n")


def show(rows: dict[str, dict[str, float | None]]) -> None:
    """The table, and the figures under it, against the mean of both loops."""
    print("| network | loops, ms | again | unseen | gated@5% | measured share |")
    print("|---|---|---|---|---|---|")
    truth = {name: statistics.fmean(row[key] or 0.0 for key in LOOPS) for name, row in rows.items()}
    for name, row in sorted(rows.items()):
        again = (row["second_us"] or 0.0) / (row["first_us"] or 1.0) - 1
        cells = [name, f"{truth[name] / 1e3:.2f}", f"{100 * again:+.1f} %"]
        for key in ("unseen_us", "gated_us"):
            us = row.get(key)
            cells.append(f"{100 * (us / truth[name] - 1):+.1f} %" if us else "")
        share = row.get("gated_share")
        cells.append("" if share is None else f"{100 * share:.0f} %")
        print("| " + " | ".join(cells) + " |")
    for key in ("unseen_us", "gated_us", "second_us"):
        pairs = [(us, truth[name]) for name, row in rows.items() if (us := row.get(key))]
        print_errors(key, np.array([us / true_us - 1 for us, true_us in pairs]))
    inside = [
        (row["unseen_low_us"] or 0) <= truth[name] <= (row["unseen_high_us"] or 0)
        for name, row in rows.items()
    ]
    print(f"interval of unseen holds {100 * np.mean(inside):.0f} % of loops")


def print_errors(what: str, errors: np.ndarray) -> None:
    """One line on relative errors."""
    print(
        f"{what}: {len(errors)} networks, RMSPE {100 * np.sqrt(np.mean(errors**2)):.1f} %, "
        f"bias {100 * errors.mean():+.1f} %, "
        f"within 5 %: {100 * np.mean(np.abs(errors) <= 0.05):.0f} %"
    )


def main() -> None:
    """One of the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("step", choices=("prepare", "onboard", "judge"))
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--time-limit", type=float, default=600.0, help="of onboarding, in seconds")
    parser.add_argument("--count", type=int, default=30, help="networks that judge")
    parser.add_argument("--gated", type=int, default=20)
    options = parser.parse_args()
    folder = options.to.resolve()
    os.environ["XDG_DATA_HOME"] = str(folder / "data")
    if options.step == "prepare":
        prepare(folder)
    elif options.step == "onboard":
        onboard(folder, options.time_limit)
    else:
        judge(folder, options.count, options.gated)


if __name__ == "__main__":
    main()
