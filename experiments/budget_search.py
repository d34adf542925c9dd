"""A search under a latency budget, and what it costs to know the latencies: experiments/search.md.

    python experiments/budget_search.py measure  # real time, minutes: writes the space
    python experiments/budget_search.py search [--storage URL]  # one, resumed where it stopped
    python experiments/budget_search.py report  # all ways to know latencies, all seeds

Optuna's NSGA-II searches 5,000 networks of ``MOBILENET`` (``block_spaces.py``) for the best score
under a budget. The score is a stand-in for accuracy that costs nothing (``search_space.entropy``).
``measure`` measures every cell of the space once on this machine, and some networks whole; both
other commands play from that file: what a gate asks to measure is looked up there. ``report``
prints the table of ``search.md`` and draws its picture.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np

from experiments import search_space
from experiments.block_spaces import MOBILENET
from experiments.search_space import Choice, MeasuredSpace, entropy
from experiments.search_ways import CANDIDATES, WAYS, Way, judge, random_choice, search
from hybridlat.estimate.block_space import BlockSpace
from hybridlat.estimate.predict.source import network_cost_s

SPACE = ROOT / "experiments" / "search" / "space.json"
PICTURE = ROOT / "experiments" / "figures" / "search.png"
SEEDS = (1, 2, 3)
"""Seed 0 chose the settings."""
BUDGETS = (0.25, 0.5)
"""Shares of random networks that are faster than the budget."""
WHOLE = 24


def budgets_of(space: MeasuredSpace) -> list[float]:
    """The budgets in µs: quantiles of random networks."""
    rng, truth = random.Random(0), space.truth
    latencies = [truth.latency(random_choice(truth, rng)).latency_us for _ in range(1000)]
    return [float(np.quantile(latencies, share)) for share in BUDGETS]


def measure(store: str, target: str | None) -> None:
    """Measure the space on this machine, and write it down."""
    rng = random.Random(0)
    choices = []
    for _ in range(WHOLE):
        words = MOBILENET.words(MOBILENET.sample(rng))[1:]
        choices.append(dict(zip(MOBILENET.positions[1:], words, strict=True)))
    networks = [
        ({"stem": "stem", **choice, "head": "head"},
         MOBILENET.writer([str(search_space.IMAGE), *choice.values()], 1))
        for choice in choices
    ]  # fmt: skip
    space, table = search_space.measure(store, target, networks)
    search_space.write(SPACE, space, table)
    print(f"{len(space.measured)} cells; sums beside whole networks: {sums_off(space)}")
    print(f"sums of blocks beside networks drawn at random: {table.check}")


def report(space: MeasuredSpace, journal: Path) -> dict[str, Any]:
    """Every way at every budget from every seed; fronts of the first seed at the last budget.

    A search is a line of the journal, and not made again where it has one.
    """
    truth = space.truth
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    done = {tuple(line["asked"]): line for line in map(json.loads, lines)}
    budgets = budgets_of(space)
    asked = [(us, seed, name) for us in budgets for seed in SEEDS for name in WAYS]
    for budget_us, seed, name in asked:
        if (budget_us, seed, name) in done:
            continue
        way = WAYS[name](name, space, budget_us, seed)
        began = time.perf_counter()
        met = search(way)
        outcome = judge(way, truth, time.perf_counter() - began, met)
        front = front_of(way, truth, [choice for choice, _, _ in met])
        line = {"asked": (budget_us, seed, name), "outcome": vars(outcome), "front": front}
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        done[budget_us, seed, name] = line
        print(outcome, file=sys.stderr, flush=True)
    outcomes = [done[one]["outcome"] for one in asked]
    fronts = {name: done[budgets[-1], SEEDS[0], name]["front"] for name in WAYS}
    return {
        "target": space.predicted.target,
        "all_cells_s": space.cost_s(list(space.measured)),
        "network_s": float(np.mean([network_cost_s(us) for _, us in space.whole])),
        "sums": sums_off(space),
        "check": json.loads(SPACE.read_text(encoding="utf-8"))["check"],
        "outcomes": outcomes,
        "fronts": fronts,
    }


def sums_off(space: MeasuredSpace) -> dict[str, float]:
    """RMSPE in % of the networks measured whole: predicted, measured, and the share held."""
    found: dict[str, float] = {"networks": len(space.whole)}
    for name, believed in (("predicted", space.predicted), ("measured", space.truth)):
        said = [(believed.latency(choice), us) for choice, us in space.whole]
        off = [interval.latency_us / us - 1 for interval, us in said]
        held = [i.interval_us[0] <= us <= i.interval_us[1] for i, us in said]
        found[name] = 100 * float(np.sqrt(np.mean(np.square(off))))
        found[f"{name}_held"] = float(np.mean(held))
    return found


def front_of(way: Way, truth: BlockSpace, choices: Sequence[Choice]) -> list[dict[str, Any]]:
    """The candidates that none beats in both, as the way believes in the end; with the truth."""
    told = sorted(
        ((way.believed.latency(c), entropy(c), c) for c in choices),
        key=lambda row: (row[0].latency_us, -row[1]),
    )
    best, front = 0.0, []
    for interval, score, choice in told:
        if score > best:
            best = score
            front.append(
                {
                    "score": score,
                    "latency_us": interval.latency_us,
                    "interval_us": interval.interval_us,
                    "true_us": truth.latency(choice).latency_us,
                }
            )
    return front


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


def main() -> None:
    """Measure the space, search it once, or report on every way."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["measure", "search", "report"])
    parser.add_argument("--target", help="of measure; this machine's CPU unless given")
    parser.add_argument("--store", default="sqlite://", help="of measure: where records go")
    parser.add_argument("--storage", help="of search: Optuna's database, as sqlite:///search.db")
    parser.add_argument("--way", choices=list(WAYS), default="gate", help="of search")
    parser.add_argument("--candidates", type=int, default=CANDIDATES, help="of search")
    parser.add_argument("--seed", type=int, default=0, help="of search")
    parser.add_argument("--journal", type=Path, default=ROOT / "build" / "search.jsonl",
                        help="of report: searches that were made already")  # fmt: skip
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.store, given.target)
        return
    space = search_space.read(SPACE)
    if given.command == "search":
        began = time.perf_counter()
        way = WAYS[given.way](given.way, space, budgets_of(space)[-1], given.seed)
        met = search(way, given.storage, given.candidates)
        print(judge(way, space.truth, time.perf_counter() - began, met))
        return
    answers = report(space, given.journal)
    print(*rows_of(answers), {name: answers[name] for name in ("all_cells_s", "network_s", "sums",
          "check")}, sep="\n")  # fmt: skip
    draw(answers, PICTURE)


if __name__ == "__main__":
    main()
