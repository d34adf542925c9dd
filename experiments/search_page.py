"""The page and the picture of ``12_search.py``, from its answers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.search_ways import CANDIDATES, LINE, TOLD, WAYS

HEAD = """# A search under a latency budget: what must be measured?

Made by `python experiments/12_search.py report --write` on 2026-11-21 from `search/space.json`,
which `python experiments/12_search.py measure` wrote on two cores of a virtual AMD EPYC (family
25, model 1): the {blocks} blocks of `MOBILENET` ([`block_spaces.py`](block_spaces.py)) at 224×224
on `{target}`, {cells} distinct cells, each measured once beside what was predicted of it before,
by the model that an onboarding of ten minutes had left on this machine. The space has
{networks:.1e} networks.

Optuna's NSGA-II (populations of 50; in memory here, since a database in SQLite takes a tenth of a
second of CPU a candidate: `search --storage` has one and goes on where it stopped) searches
{candidates:,} of them for the best score under a latency budget, {seeds} seeds for each of
{budgets} budgets: as fast as {shares} of random networks. The score is the entropy of DeepMAD
(CVPR 2023), a stand-in for accuracy that costs nothing; how good a one is not asked here.
Settings were tried on seed 0 alone, which is not reported (what came of it: the gate's winner is
measured through). What a search gets to know of latencies:

- `everything`: every cell of every candidate is measured, once. What the others lose is told
  beside it.
- `gate`: a candidate that would be the best so far and whose interval holds the budget is
  measured, the cells that the gate chooses, until the interval ends on one side or is as narrow
  as the candidate is far from the budget (at least {told_percent:.0f} %); in the end the winner is
  measured through, and the next one where it was over the budget.
- `prediction`: nothing is measured.
- `flops`: a line over FLOP, through {line} random networks measured whole.

Truth is the sum of measured cells, composed, at the pace that the machine had then: how far it
wanders from that is left out of all intervals, since all candidates share it. *Score lost*: of
the best candidate that a search believes within the budget and that is so in truth, beside
`everything` of the same seed (below zero: luck of the draw). *Over*: how far the first one
believed to be within the budget is over it in truth; *passed over*: how many are until one is
within it. Means over seeds ± their standard deviation. Scores of one way differ from seed to seed
by what the sampler finds, so a difference within that spread is none.

| budget | latencies by | device s | cells | score lost % | over % | passed over |
|---|---|---|---|---|---|---|
"""
AFTER = """
Device time as the gate counts it: all {cells} cells take {all_cells_s:.0f} s. Without shared
cells every candidate would be measured whole: {whole_s:,.0f} s for {candidates:,}. Who guesses
still has to measure what is passed over, {network_s:.1f} s a network as a whole.

**Are sums right?** {sums[networks]:.0f} random networks of the space measured whole in the same
run: the sum of their measured cells is {sums[measured]:.1f} % RMSPE off, and its 90 % interval
holds {sums[measured_held]:.2f} of them; what was predicted before, {sums[predicted]:.1f} % and
{sums[predicted_held]:.2f}. {check}

![Fronts with their intervals; device time and score lost](figures/search.png)
"""


def rows_of(answers: Mapping[str, Any]) -> Iterator[str]:
    """The table of the page: means over seeds, with their spread."""
    outcomes = answers["outcomes"]
    for budget_us in dict.fromkeys(o["budget_us"] for o in outcomes):
        here = [o for o in outcomes if o["budget_us"] == budget_us]
        ideal = {o["seed"]: o["score"] for o in here if o["way"] == "everything"}
        for way in WAYS:
            mine = [o for o in here if o["way"] == way]
            regret = [100 * (1 - o["score"] / ideal[o["seed"]]) for o in mine]
            values = (
                [o["device_s"] for o in mine],
                [o["cells"] for o in mine],
                regret,
                [100 * o["over"] for o in mine],
                [o["passed"] for o in mine],
            )
            cells = [
                f"{np.mean(v):.{d}f} ± {np.std(v):.{d}f}"
                for v, d in zip(values, (1, 0, 2, 1, 0), strict=True)
            ]
            yield f"| {budget_us / 1000:.2f} ms | {way} | " + " | ".join(cells) + " |"


def page(answers: Mapping[str, Any]) -> str:
    """The page, its figures from the answers alone."""
    budgets = dict.fromkeys(o["budget_us"] for o in answers["outcomes"])
    check = answers["check"]
    words = dict(
        answers,
        candidates=CANDIDATES,
        seeds=len({o["seed"] for o in answers["outcomes"]}),
        budgets=len(budgets),
        shares=" and ".join(f"{share:.0%}".replace("%", " %") for share in answers["shares"]),
        told_percent=100 * TOLD,
        line=LINE,
        whole_s=CANDIDATES * answers["network_s"],
        check=f"Sums of blocks are {100 * check['mean_share']:.2f} % off the cells of "
        f"{check['networks']} "
        f"networks put together at random, {100 * check['worst_share']:.2f} % at worst.",
    )
    return HEAD.format(**words) + "\n".join(rows_of(answers)) + "\n" + AFTER.format(**words)


def draw(answers: Mapping[str, Any], path: Path) -> None:
    """The fronts with their intervals; what each way costs and loses."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.4), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    budget_us = answers["outcomes"][-1]["budget_us"]
    colours = {
        "prediction": "#c8553d",
        "gate": "#0b6e4f",
        "everything": "#2b2d42",
        "flops": "#8d6a9f",
    }
    for name in ("prediction", "gate"):
        front = answers["fronts"][name]
        x = [row["latency_us"] / 1e3 for row in front]
        low = [(row["latency_us"] - row["interval_us"][0]) / 1e3 for row in front]
        high = [(row["interval_us"][1] - row["latency_us"]) / 1e3 for row in front]
        left.errorbar(x, [row["score"] for row in front], xerr=(low, high), fmt="o", markersize=3,
                      elinewidth=0.7, alpha=0.8, color=colours[name], markeredgewidth=0,
                      label=f"front by {name}, 90 % intervals")  # fmt: skip
    front = answers["fronts"]["gate"]
    left.scatter([row["true_us"] / 1e3 for row in front], [row["score"] for row in front], s=9,
                 marker="x", color=colours["everything"], linewidths=0.7, zorder=3,
                 label="the gate's front, every cell measured")  # fmt: skip
    left.axvline(budget_us / 1e3, color="#777777", linewidth=1, linestyle=":")
    left.annotate("budget", (budget_us / 1e3, left.get_ylim()[1]), xytext=(3, -12),
                  textcoords="offset points", fontsize=8, color="#777777")  # fmt: skip
    left.set_xlabel("latency, ms")
    left.set_ylabel("score (entropy)")
    left.set_title(f"{answers['target']}: {CANDIDATES:,} candidates", loc="left", fontsize=9.5)
    left.legend(frameon=False, fontsize=8, loc="lower right")
    for way in WAYS:
        mine = [o for o in answers["outcomes"] if o["way"] == way]
        right.scatter([o["device_s"] for o in mine], [100 * o["over"] for o in mine], s=22,
                      alpha=0.7, linewidths=0, color=colours[way], label=way)  # fmt: skip
    right.set_xlabel("device time, s")
    right.set_ylabel("first choice over the budget, %")
    right.set_title("every budget and seed", loc="left", fontsize=9.5)
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.grid(visible=True, color="#e8e8e8", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
