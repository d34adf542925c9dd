"""Every figure of accuracy that README and pages name, in one file, and the picture of the README.

    python experiments/front_picture.py [--draw]

Judges every network of the CPU's committed pack as ``hybridlat evaluate`` does: held out in one of
five folds by its name, no cell of it and no kernel of its cells among what was learned from. The
answers and every method's score are kept in ``figures/predicted_measured.json``. From those and
from what other scripts wrote (``SOURCES``) come ``docs/figures.json`` and ``figures/rivals.svg``:
errors of hybridlat beside those of other methods on the same networks; and the tables of README
and of the page about accuracy. ``--draw`` judges nothing anew.
"""

import argparse
import csv
import gzip
import json
import math
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from experiments import front_pages
from experiments.pictures import picture as drawn
from experiments.pictures import text
from hybridlat.model.family.shipped import FamilyHead

ANSWERS = HERE / "figures" / "predicted_measured.json"
FIGURES = HERE.parent / "docs" / "figures.json"
PICTURE = HERE / "figures" / "rivals.svg"
TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
BASELINES = ("kernel_forest", "roofline", "flops_linear", "layerwise_learned", "layerwise_measured")
REGIMES = ("measured", "unseen", "gated@5%")
VM = "two cores of a virtual AMD EPYC"
SOURCES = {
    "cpu": ("front_picture.py", "2026-11-28", f"{VM}; records of another, epyc-26-2"),
    "networks": ("whole_networks.py", "2026-11-26", VM),
    "few-shot": ("few_shot_nas.py", "2026-11-22", "not noted"),
    "sheet": ("whole_networks.py --models models", "2026-11-26", VM),
    "cells": ("replay_gpus.py", "2026-11-21", VM),
    "sum": ("sum_of_cells.py report", "2026-11-21", VM),
    "onboarding": ("onboarding.py judge", "2026-11-23", "two cores of a virtual Xeon"),
}
"""Script, date of the last run, and machine."""
GPUS = {
    "v100": "v100/paddle-tensorrt-8.0/fp32", "t4": "t4/paddle-tensorrt-2020/fp32",
    "rtx-4090": "rtx-4090/torch-compile-2.9/amp nchw", "rtx-3090": "rtx-3090/torch-2.4/amp nchw",
}  # fmt: skip
LEFT_OUT = {"": "", "/pytorch": "rtx-[34]090/torch-2", "/v100-tensorrt": "v100/paddle-tensorrt"}
# Of the lab book's tables: key, page, what the row begins with, and columns by their names.
_CELLS = {4: "hybridlat/rmspe", 5: "hybridlat/holds", 6: "kernel_forest/rmspe",
          7: "wave_model/rmspe"}  # fmt: skip
TABLES = (
    ("cells/cells@300", "replay_gpus.md", "| v100/tensorrt/fp16 | 12,851 |", _CELLS),
    ("cells/four-fifths", "replay_gpus.md", "|  | 2,631 | cells@10520 |", _CELLS),
    ("cells/gated", "replay_gpus.md", "|  | 2,631 | gated_cells@20% |", _CELLS),
    ("sum/nets", "sum_of_cells.md", "| data/nets | layers, unfused |", {4: "rmspe"}),
    ("sum/nasbench201", "sum_of_cells.md", "| NAS-Bench-201 | layers, unfused |", {4: "rmspe"}),
    ("few-shot/least", "few_shot_nas.md", "| nasbench201 | rtx-2080-ti, 32 |", {4: "rmspe"}),
    ("few-shot/most", "few_shot_nas.md", "| nasbench201 | rtx-2080-ti, 1 |", {4: "rmspe"}),
    ("onboarding/first", "onboarding.md", "| virtual Xeon", {3: "unseen", 4: "gated"}),
    ("onboarding/second", "onboarding.md", "| the same, 2026-11-23", {3: "unseen", 4: "gated"}),
)


SENTENCES = (
    (r"Two versions of TensorRT on one V100 differ by (\d+) to (\d+) %",
     "versions/1", "versions/2"),
)  # fmt: skip
"""Of whole_networks.md."""


def convolutional() -> list[str]:
    """Names of the pack's networks but for its transformers, which ``transformers.md`` is about."""
    shipped = {path.stem for path in (HERE.parent / "data" / "nets").glob("*.onnx")}
    pack = HERE.parent / "data" / "packs" / TARGET.replace("/", "_") / "breakdowns.jsonl.gz"
    with gzip.open(pack, "rt") as lines:
        names = [json.loads(line)["network"] for line in lines]
    return [name for name in names if name in shipped or name.startswith("nasbench201-")]


def judge() -> dict[str, Any]:
    """The noise floor, each method's score in each regime, and our answer for every network."""
    from hybridlat.evaluation.evaluate import EvaluationOptions, evaluate_targets

    # A store of its own, so that only committed records count.
    evaluation = evaluate_targets(
        [TARGET],
        EvaluationOptions(baselines=BASELINES, networks=convolutional(), track=False),
        store="sqlite://",
        on_message=lambda sentence: print(sentence, file=sys.stderr),
    )
    (report,) = evaluation.reports
    judged = [j for j in report.results if j.regime in REGIMES]
    regimes = {
        j.regime: {
            "rmspe": j.score.rmspe,
            "networks": [
                {"name": a.name, "measured_us": a.true_us, "predicted_us": a.predicted_us,
                 "interval_us": a.interval_us, "measured_share": a.measured_share}
                for a in sorted(j.predictions, key=lambda prediction: prediction.name)
            ],
        }
        for j in judged
        if j.method == "hybridlat" and j.regime != "measured"
    }  # fmt: skip
    scores = [
        {"regime": j.regime, "method": j.method, **_score(j.score, j.predictions)}
        for j in judged
        if j.method in ("hybridlat", *BASELINES)
    ]
    return {"noise_floor": report.noise_floor, "scores": scores, "regimes": regimes}


def _score(score: Any, predictions: Sequence[Any]) -> dict[str, Any]:
    errors = [100 * abs(p.error_share) for p in predictions if math.isfinite(p.predicted_us)]
    return {
        "tested": score.answered,
        "rmspe": score.rmspe,
        "median": statistics.median(errors) if errors else None,
        "within_10": None if score.within_10 is None else 100 * score.within_10,
        "holds": None if score.coverage is None else 100 * score.coverage,
    }


def figures() -> dict[str, float]:
    """Key → value: ``cpu/unseen/hybridlat/rmspe``, in percent; ``tested`` counts."""
    found: dict[str, float] = {}
    cpu = json.loads(ANSWERS.read_text(encoding="utf-8"))[TARGET]
    found["cpu/noise-floor"] = round(cpu["noise_floor"], 1)
    for score in cpu["scores"]:
        for name in ("tested", "rmspe", "median", "within_10", "holds"):
            if score[name] is not None:
                digits = 1 if name in ("rmspe", "median") else None
                value = round(score[name], digits)
                found[f"cpu/{score['regime']}/{score['method']}/{name}"] = value
    with (HERE / "figures" / "whole_networks.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for gpu, target in GPUS.items():
        for row in rows:
            if row["target"] == target and row["regime"] in front_pages.REGIMES:
                key = f"{gpu}/{row['regime']}/{row['method']}"
                found[f"{key}/tested"] = int(row["latencies"])
                for name in ("rmspe", "median", "rmspe_sd"):
                    if row.get(f"{name}_percent"):
                        found[f"{key}/{name}"] = float(row[f"{name}_percent"])
                if row["coverage_percent"]:
                    found[f"{key}/holds"] = int(row["coverage_percent"])
    left_out = [row for row in rows if row["regime"] == "zero_shot"]
    for name, begin in LEFT_OUT.items():
        of_these = [row for row in left_out if re.match(begin, row["target"])]
        medians = [float(row["median_percent"]) for row in of_these]
        found[f"left-out{name}/least"], found[f"left-out{name}/most"] = min(medians), max(medians)
    here = {row["target"]: float(row["median_percent"]) for row in left_out}
    ten = [float(row["median_percent"]) / here[row["target"]] for row in rows
           if (row["regime"], row["method"]) == ("few@10 networks", "chosen")]  # fmt: skip
    found["ten/best"], found["ten/worst"] = round(100 - 100 * min(ten)), round(100 * max(ten) - 100)
    lab_book = (HERE / "whole_networks.md").read_text(encoding="utf-8")
    for pattern, *keys in SENTENCES:
        match = re.search(pattern, lab_book)
        assert match is not None, pattern
        found.update(zip(keys, map(float, match.groups()), strict=True))
    for family in ("tensorrt", "torch"):
        width = FamilyHead.read(HERE.parent / "models" / f"family_{family}").half_width_share(None)
        assert width is not None
        found[f"sheet/{family}"] = round(100 * width)
    for key, page, begin, columns in TABLES:
        lines = (HERE / page).read_text(encoding="utf-8").splitlines()
        cells = next(line for line in lines if line.startswith(begin)).split("|")
        for column, name in columns.items():
            match = re.search(r"\d+\.\d", cells[column])
            assert match is not None
            found[f"{key}/{name}"] = float(match[0])
    return found


METHODS = {
    "flops_linear": "a line over FLOPs", "roofline": "roofline",
    "kernel_forest": "nn-Meter's method", "hybridlat": "hybridlat",
}  # fmt: skip
PLACES = {
    "cpu": ("EPYC core", "ONNX Runtime, FP32"), "v100": ("V100", "Paddle-TensorRT 8.0, FP32"),
    "t4": ("T4", "Paddle-TensorRT, FP32"), "rtx-4090": ("RTX 4090", "torch.compile, AMP"),
}  # fmt: skip
LEFT, TOP, ROW, LONGEST = 340, 64, 19, 480


def picture(found: dict[str, float]) -> str:
    """Bars of the mean-square error with a dot at the median, by target and method."""
    shown = [found[f"{place}/unseen/{method}/rmspe"] for place in PLACES for method in METHODS]
    parts, y, scale = [], TOP, LONGEST / max(shown)
    for place, (device, engine) in PLACES.items():
        tested = found[f"{place}/unseen/hybridlat/tested"]
        what = "networks" if place == "cpu" else "latencies"
        lines = ((device, "bold"), (engine, "small"), (f"{tested:.0f} {what}", "small"))
        for number, (name, kind) in enumerate(lines):
            parts.append(text(24, y + 14 + 18 * number, name, kind))
        bars = [(f"{place}/unseen/{method}", words) for method, words in METHODS.items()]
        if place == "cpu":
            bars.append(("cpu/gated@5%/hybridlat", "… once it measured"))
        for key, words in bars:
            error, ours = found[f"{key}/rmspe"], "hybridlat" in key
            parts.append(text(LEFT - 10, y + 13, words, "bold" if ours else "", "end"))
            kind = "ours" if ours else "bar"
            parts.append(f'<rect class="{kind}" x="{LEFT}" y="{y + 2}" width="{error * scale:.1f}" '
                         f'height="{ROW - 5}" rx="2"/>')  # fmt: skip
            middle = LEFT + found[f"{key}/median"] * scale
            parts.append(f'<circle class="dot" cx="{middle:.1f}" cy="{y + 9}" r="3"/>')
            end = LEFT + error * scale + 6
            parts.append(text(end, y + 13, f"{error} %", "bold" if ours else "small"))
            y += ROW
        y += 16
    title = "Error on networks that were held out"
    note = (
        "Bar: root mean square of the relative error. Dot: its median. On GPUs others learn from "
        "the table, hybridlat from its whole family."
    )
    return drawn(title, note, y + 2, parts)


def main() -> None:
    """Judge, unless that was done before, and write both files and the tables of the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draw", action="store_true", help="judge nothing anew")
    if not parser.parse_args().draw:
        ANSWERS.write_text(json.dumps({TARGET: judge()}, indent=1) + "\n", encoding="utf-8")
    found = figures()
    named: dict[str, Any] = {
        name: {"command": f"python experiments/{script}", "date": date, "machine": machine}
        for name, (script, date, machine) in SOURCES.items()
    }
    made = {key: {"value": value, "source": source_of(key)} for key, value in found.items()}
    document = {"made_by": "python experiments/front_picture.py", "sources": named, "figures": made}
    FIGURES.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    PICTURE.write_text(picture(found), encoding="utf-8")
    for page, body in front_pages.written(found).items():
        (HERE.parent / page).write_text(body, encoding="utf-8")
    print(f"{len(found)} figures in {FIGURES.name}, {len(PLACES)} targets in {PICTURE.name}")


def source_of(key: str) -> str:
    """The name in SOURCES of what wrote a figure."""
    first = key.partition("/")[0]
    return first if first in SOURCES else "networks"


if __name__ == "__main__":
    main()
