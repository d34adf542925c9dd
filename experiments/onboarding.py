"""A machine that no pack knows, learned in ten minutes for real, and judged on other networks.

    python experiments/onboarding.py prepare --to DIR     # minutes of fitting, no measuring
    python experiments/onboarding.py onboard --to DIR [--budget 600]
    python experiments/onboarding.py judge   --to DIR [--gated 20]
    python experiments/onboarding.py record  --to DIR     # then again: a second turn
    python experiments/onboarding.py loop    --to DIR     # half a minute, as often as liked

``prepare`` splits the networks of ``data/nets`` in halves by their names, and trains the model that
is transferred from once more on its pack, without the cells and kernels of the networks that judge:
a user's network was in no pack either. ``onboard`` is the product, on the other half. ``judge``
times each network that judges whole, in a loop of its own with a median (twice, the second time in
another order), between them asks for the estimate with nothing measured, and last for the one that
the gate makes at 5 %. ``record`` measures them whole as the product does, the machine's drift
divided out, in a copy of the store as the onboarding left it: what ``evaluate`` would hold an
estimate against. ``loop`` times all of them once more, in yet another order: a machine's pace
changes within minutes, and an estimate is told at its usual pace, so what it is held against is the
mean of loops that lie minutes apart. Everything lies in DIR: store, models, figures.
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
import hybridlat
from experiments.plain_loop import loop_us
from hybridlat.estimate.lookup.models import COMPOSITION_FILE
from hybridlat.evaluation.cross_fitting import even_folds, fit_without
from hybridlat.evaluation.dataset import load
from hybridlat.model.model_files import read_device, save_model
from hybridlat.model.training_problem import FitConfig
from hybridlat.store.packs import PackLookup

NETS = ROOT / "data" / "nets"
PACK = ROOT / "data" / "packs" / "epyc-26-2_onnxruntime-1.31_fp32_1t"
TOLERANCE = 0.05
LOOPS = ("first_us", "second_us")
RECORDS = ("record_1_us", "record_2_us")


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


def onboard(folder: Path, budget_s: float) -> None:
    """The product, on the networks that do not judge."""
    command = [sys.executable, "-m", "hybridlat", "onboard", "--budget", f"{budget_s:g}s", "--nets",
               str(folder / "nets"), "--no-track", "--store", store_of(folder)]  # fmt: skip
    subprocess.run(command, check=False, cwd=ROOT)
    shutil.copy(folder / "store.db", folder / "onboarded.db")


def record(folder: Path) -> None:
    """One more turn of measuring the networks that judge, by the product, beside its store."""
    rows = json.loads((folder / "judged.json").read_text())
    turn = 1
    while (folder / f"again{turn}.json").exists():
        turn += 1
    shutil.copy(folder / "onboarded.db", folder / f"again{turn}.db")
    command = [sys.executable, "-m", "hybridlat", "measure", "--network", "--remeasure", "--json",
               "--store", f"sqlite:///{folder / f'again{turn}.db'}",
               *(str(NETS / f"{name}.onnx") for name in rows)]  # fmt: skip
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE)
    (folder / f"again{turn}.json").write_bytes(done.stdout)


def with_records(folder: Path) -> dict[str, dict[str, float | None]]:
    """The rows of ``judge``, each with what the turns of ``record`` measured."""
    rows: dict[str, dict[str, float | None]] = json.loads((folder / "judged.json").read_text())
    for path in sorted(folder.glob("again*.json")):
        for report in json.loads(path.read_text()):
            row = rows[Path(report["network"]).stem]
            row[f"record_{path.stem[5:]}_us"] = report["latency_us"]
    return rows


def loop(folder: Path) -> None:
    """Time all networks that judge once more."""
    names = list(json.loads((folder / "judged.json").read_text()))
    at = time.time()
    random.Random(int(at)).shuffle(names)
    taken = {name: loop_us(NETS / f"{name}.onnx") for name in names}
    with (folder / "loops.jsonl").open("a") as file:
        file.write(json.dumps({"at": at, "us": taken}) + "\n")


def show_loops(folder: Path, rows: dict[str, dict[str, float | None]]) -> None:
    """What is held against the mean of all loops, and how far a single one is from it."""
    if not (folder / "loops.jsonl").exists():
        return
    lines = (folder / "loops.jsonl").read_text().splitlines()
    names = [name for name, row in rows.items() if row.get("second_us")]
    loops = [[float(rows[name][key] or 0.0) for name in names] for key in LOOPS]
    loops += [[json.loads(line)["us"][name] for name in names] for line in lines]
    usual = np.mean(loops, axis=0)
    for key in ("unseen_us", "gated_us", *RECORDS):
        if all(rows[name].get(key) for name in names):
            said = np.array([float(rows[name][key] or 0.0) for name in names])
            tell(f"{key} against the mean of {len(loops)} loops", said / usual - 1)
    for number, taken in enumerate(loops):
        tell(f"loop {number} against their mean", np.array(taken) / usual - 1)


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
        found = hybridlat.predict(NETS / f"{name}.onnx", measure="never", store=store_of(folder))
        low, high = found.interval_us or (float("nan"), float("nan"))
        rows[name] |= {
            "unseen_us": found.latency_us, "unseen_low_us": low, "unseen_high_us": high,
        }  # fmt: skip
        save(folder, rows)
    for name in reversed(names):
        rows[name]["second_us"] = loop_us(NETS / f"{name}.onnx")
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
    """The table, and the figures under it, against the loops and against records."""
    print(
        "| network | loops, ms | again | records, ms | again | unseen | gated@5% | measured share |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, row in sorted(rows.items()):
        cells = [name]
        for truth in (LOOPS, RECORDS):
            us = truth_us(row, truth)
            first, second = (row.get(key) for key in truth)
            cells.append("" if us is None else f"{us / 1e3:.2f}")
            cells.append(f"{100 * (second / first - 1):+.1f} %" if first and second else "")
        for key in ("unseen_us", "gated_us"):
            us, said = truth_us(row, LOOPS), row.get(key)
            cells.append(f"{100 * (said / us - 1):+.1f} %" if said and us else "")
        share = row.get("gated_share")
        cells.append("" if share is None else f"{100 * share:.0f} %")
        print("| " + " | ".join(cells) + " |")
    for what, truth in (("loops", LOOPS), ("records", RECORDS)):
        for key, against in (("unseen_us", truth), ("gated_us", truth), (truth[1], truth[:1])):
            errors = [
                said / us - 1
                for row in rows.values()
                if (said := row.get(key)) and (us := truth_us(row, against))
            ]
            if errors:
                tell(f"{key} against {' and '.join(against)}", np.array(errors))
        held = [
            (row["unseen_low_us"] or 0) <= us <= (row["unseen_high_us"] or 0)
            for row in rows.values()
            if (us := truth_us(row, truth))
        ]
        if held:
            print(f"interval of unseen holds {100 * np.mean(held):.0f} % of {what}")


def tell(what: str, errors: np.ndarray) -> None:
    """One line on relative errors."""
    print(
        f"{what}: {len(errors)} networks, RMSPE {100 * np.sqrt(np.mean(errors**2)):.1f} %, "
        f"bias {100 * errors.mean():+.1f} %, "
        f"within 5 %: {100 * np.mean(np.abs(errors) <= 0.05):.0f} %, "
        f"within 10 %: {100 * np.mean(np.abs(errors) <= 0.1):.0f} %"
    )


def truth_us(row: dict[str, float | None], keys: tuple[str, ...]) -> float | None:
    """The mean of what was timed; None where nothing was."""
    timed = [us for key in keys if (us := row.get(key))]
    return statistics.fmean(timed) if timed else None


def main() -> None:
    """One of the steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("step", choices=("prepare", "onboard", "judge", "record", "loop", "show"))
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
        if given.step == "record":
            record(folder)
        elif given.step == "loop":
            loop(folder)
        rows = with_records(folder)
        show(rows)
        show_loops(folder, rows)


if __name__ == "__main__":
    main()
