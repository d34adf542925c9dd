"""The picture on the front page: networks that were never seen, predicted beside measured.

    python experiments/23_front_picture.py [--target T ...] [--draw]

Judges every network of the targets' committed packs as ``hybridlat evaluate`` does: held out in one
of five folds by its name, no cell of it and no kernel of its cells among what was learned from. The
answers are kept in ``figures/predicted_measured.json``; ``--draw`` only draws them again. One row
of the picture per target: on the left what is said before anything is measured, on the right the
error of every network, before (``unseen``) and after the gate has measured what it asks for
(``gated@5%``). Bars are the 90 % intervals; the grey band is ±10 %.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

FIGURES = ROOT / "experiments" / "figures"
ANSWERS = FIGURES / "predicted_measured.json"
PICTURE = FIGURES / "predicted_measured.png"
NAMED_PERCENT = 12  # networks that are further off are named
DEFAULT = "epyc-26-2/onnxruntime-1.31/fp32/1t"
REGIMES = {"unseen": ("nothing measured", "#c8553d"), "gated@5%": ("gate at 5 %", "#0b6e4f")}


def judge(targets: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Target → its noise floor, and per regime the RMSPE and every network's answer."""
    from hybridlat.evaluation.evaluate import EvaluationOptions, evaluate_targets

    # A store of its own, so that only committed records count.
    evaluation = evaluate_targets(
        targets,
        EvaluationOptions(baselines=(), track=False),
        store="sqlite://",
        on_message=lambda sentence: print(sentence, file=sys.stderr),
    )
    kept: dict[str, dict[str, Any]] = {}
    for report in evaluation.reports:
        regimes = {
            j.regime: {
                "rmspe": j.score.rmspe,
                "networks": [
                    {"name": a.name, "measured_us": a.true_us, "predicted_us": a.predicted_us,
                     "interval_us": a.interval_us, "measured_share": a.measured_share}
                    for a in sorted(j.predictions, key=lambda prediction: prediction.name)
                ],
            }
            for j in report.results
            if j.method == "hybridlat" and j.regime in REGIMES
        }  # fmt: skip
        kept[str(report.target)] = {"noise_floor": report.noise_floor, "regimes": regimes}
    return kept


def draw(judged: dict[str, dict[str, Any]], path: Path) -> None:
    """One row of two panels per target."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.9 * len(judged)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(judged), 2, squeeze=False, width_ratios=(1, 1.35))
    for (target, said), (left, right) in zip(judged.items(), rows, strict=True):
        for axes in (left, right):
            axes.grid(visible=True, color="#e8e8e8", linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xscale("log")
            axes.set_xlabel("measured, ms")
        _parity(left, said)
        left.set_title(f"{target}\nnetworks never seen, nothing measured", loc="left", fontsize=9.5)
        _errors(right, said)
        right.set_title("the same networks: error", loc="left", fontsize=9.5)
    figure.savefig(path)


def _parity(axes: Any, said: dict[str, Any]) -> None:
    answers = _known(said["regimes"]["unseen"])
    x = [a["measured_us"] / 1e3 for a in answers]
    y = [a["predicted_us"] / 1e3 for a in answers]
    low = [(a["predicted_us"] - a["interval_us"][0]) / 1e3 for a in answers]
    high = [(a["interval_us"][1] - a["predicted_us"]) / 1e3 for a in answers]
    ends = [min(x + y) / 1.25, max(x + y) * 1.25]
    axes.fill_between(
        ends, [e * 0.9 for e in ends], [e * 1.1 for e in ends], color="#555555", alpha=0.12,
        linewidth=0,
    )  # fmt: skip
    axes.plot(ends, ends, color="#777777", linewidth=0.8)
    colour = REGIMES["unseen"][1]
    axes.errorbar(x, y, yerr=(low, high), fmt="o", markersize=3.2, color=colour, elinewidth=0.8,
                  alpha=0.75, markeredgewidth=0)  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_ylabel("predicted, ms (bar: 90 % interval)")


def _errors(axes: Any, said: dict[str, Any]) -> None:
    axes.axhspan(-10, 10, color="#555555", alpha=0.1, linewidth=0)
    axes.axhline(0, color="#777777", linewidth=0.8)
    for regime, (words, colour) in REGIMES.items():
        if regime not in said["regimes"]:
            continue
        answers = _known(said["regimes"][regime])
        error = said["regimes"][regime]["rmspe"]
        share = sum(a["measured_share"] for a in answers) / len(answers)
        spent = f", {100 * share:.0f} % of the time measured" if share else ""
        axes.scatter(
            [a["measured_us"] / 1e3 for a in answers],
            [100 * (a["predicted_us"] / a["measured_us"] - 1) for a in answers],
            s=14, color=colour, alpha=0.75, linewidths=0,
            label=f"{words}{spent}: RMSPE {error:.1f} %",
        )  # fmt: skip
        for answer in answers:
            percent = 100 * (answer["predicted_us"] / answer["measured_us"] - 1)
            if abs(percent) > NAMED_PERCENT:
                axes.annotate(
                    answer["name"], (answer["measured_us"] / 1e3, percent), xytext=(5, -3),
                    textcoords="offset points", fontsize=7, color=colour,
                )  # fmt: skip
    floor = said["noise_floor"]
    if floor is not None:
        for sign in (-1, 1):
            axes.axhline(
                sign * floor, color="#2b2d42", linewidth=0.9, linestyle=":",
                label=f"the same network measured again: {floor:.1f} %" if sign > 0 else None,
            )  # fmt: skip
    axes.set_ylabel("predicted − measured, %")
    axes.legend(frameon=False, fontsize=8, loc="lower left")


def _known(regime: dict[str, Any]) -> list[dict[str, Any]]:
    return [a for a in regime["networks"] if math.isfinite(a["predicted_us"]) and a["interval_us"]]


def main() -> None:
    """Judge and draw, or draw what was judged before."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--target", action="append", help=f"may be repeated; {DEFAULT} unless given"
    )
    parser.add_argument("--draw", action="store_true", help="only draw the answers kept before")
    arguments = parser.parse_args()
    if arguments.draw:
        judged = json.loads(ANSWERS.read_text(encoding="utf-8"))
    else:
        judged = judge(arguments.target or [DEFAULT])
        ANSWERS.write_text(json.dumps(judged, indent=1) + "\n", encoding="utf-8")
    draw(judged, PICTURE)
    for target, said in judged.items():
        figures = ", ".join(f"{r} {v['rmspe']:.1f} %" for r, v in said["regimes"].items())
        print(f"{target}: noise {said['noise_floor']:.1f} %, RMSPE {figures}")


if __name__ == "__main__":
    main()
