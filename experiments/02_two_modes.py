"""The two non-linear modes of a convolution's latency: found, drawn, and put to use.

    python experiments/02_two_modes.py [--data ../shared/data/v100_tensorrt_conv] [-o FILE]

The staircase: a kernel computes its output tile by tile, all units of the device at once, so
latency climbs by waves and not by outputs. The jumps: another kernel is chosen when channels stop
being multiples of what the hardware likes, or when another algorithm wins.

1. On a CPU, from 298 convolutions measured at fine steps (two_modes_sweep.py measures them anew):
   each series is explained by a line, by a staircase, and by a staircase with jumps.
2. On the V100 under TensorRT (public records, channels in steps of 32): series that differ in the
   image size only, by a line in the outputs and by a line in the waves of the best tile. How often
   do the waves win, and how often does latency fall although the work grows (which no staircase can
   do: a jump)? And the share of the peak by alignment of the channels: the height of the jump.
3. How many records does each model need for the same error, and do the modes as features help?
   The seeds are three; every model sees the same rows and is tested on all others.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import two_modes_fine
from two_modes_series import (
    Array,
    Rows,
    explained,
    fitted,
    from_data,
    jumps,
    series,
    staircase,
)

from hybridlat.engines import device_sheets
from hybridlat.model import baselines, features
from hybridlat.model.fit import fit_model
from hybridlat.model.geometry import TILES, geometry
from hybridlat.model.training_problem import FitConfig, fit_boosted, fit_forest
from hybridlat.store.packs import PackLookup

DATA = ROOT.parent / "shared" / "data" / "v100_tensorrt_conv"
SWEEP = ROOT / "experiments" / "two_modes_sweep"
SIZES = (100, 300, 1000, 3000)
SEEDS = 3
MODES = ("waves", "wave_time", "fill", "useful", "align", "pad_waste", "winograd")


def rmspe(predicted: Array, truth: Array) -> float:
    """Root mean square percentage error."""
    return 100 * float(np.sqrt(np.mean((predicted / truth - 1) ** 2)))


def trees(rows: Rows, train: Array, test: Array, *, modes: bool, seed: int) -> Array:
    """Boosted and random trees, equal shares, on all features or on those without the modes."""
    view = rows.view()
    matrix = features.matrix(view)
    if not modes:
        kept = [i for i, n in enumerate(features.NAMES) if not any(m in n for m in MODES)]
        matrix = matrix[:, kept]
    base = view.roofline_us + 0.5 * np.quantile(rows.latencies_us[train], 0.01)
    values = np.log(rows.latencies_us / base)
    weights = np.ones(len(train))
    import xgboost

    boosted = fit_boosted(matrix[train], values[train], weights, seed)
    forest = fit_forest(matrix[train], values[train], weights, seed)
    both = boosted.predict(xgboost.DMatrix(matrix[test])) + forest.predict(matrix[test])
    return np.asarray(base[test] * np.exp(both / 2))


def learning(rows: Rows, sizes: Sequence[int]) -> dict[str, list[float]]:
    """RMSPE of every model by number of training rows, mean of the seeds."""
    result: dict[str, list[float]] = defaultdict(list)
    for size in sizes:
        errors: dict[str, list[float]] = defaultdict(list)
        for seed in range(SEEDS):
            order = np.random.default_rng(seed).permutation(len(rows.texts))
            train, test = order[:size], order[size:]
            for name, made in _predictions(rows, train, test, seed):
                errors[name].append(rmspe(made, rows.latencies_us[test]))
        for name, values in errors.items():
            result[name].append(float(np.mean(values)))
        print(f"  {size} rows: { ({k: round(v[-1], 1) for k, v in result.items()}) }", flush=True)
    return result


def _predictions(rows: Rows, train: Array, test: Array, seed: int) -> Iterator[tuple[str, Array]]:
    device, precision = device_sheets.of_target(rows.target), rows.target.precision
    known = [rows.texts[i] for i in train]
    asked = [rows.texts[i] for i in test]
    for name in ("flops_linear", "roofline", "wave_model", "kernel_forest"):
        baseline = baselines.load(name)(device, precision, seed)
        sums = baselines.Sums.of_texts(known)
        baseline.fit(baselines.Problem(sums, rows.latencies_us[train], tuple(known)))
        yield name, baseline.predict(baselines.Sums.of_texts(asked))
    yield "trees without modes", trees(rows, train, test, modes=False, seed=seed)
    yield "trees with modes", trees(rows, train, test, modes=True, seed=seed)
    model = fit_model(known, rows.latencies_us[train], known, FitConfig(device, precision, seed))
    yield "hybridlat", model.predict_geometry(geometry(asked)).latency_us


def needed(curve: Sequence[float], sizes: Sequence[int], goal: float) -> str:
    """Rows for an error of ``goal``, read off the curve on logarithmic axes."""
    if curve[0] <= goal:
        return f"<{sizes[0]}"
    for i in range(1, len(curve)):
        if curve[i] <= goal:
            part = np.log(curve[i - 1] / goal) / np.log(curve[i - 1] / curve[i])
            return f"{sizes[i - 1] * (sizes[i] / sizes[i - 1]) ** part:.0f}"
    return f">{sizes[len(curve) - 1]}"


def draw(rows: Rows, swept: Sequence[str], curves: dict[str, list[float]], path: Path) -> None:
    """Series with both explanations, the height of the jump, and the learning curves."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    view = rows.view()
    outputs = view.m * view.n
    figure, axes = pyplot.subplots(1, 3, figsize=(13.5, 3.8), layout="constrained")
    result = []
    for members in series(rows, swept):
        latency = rows.latencies_us[members]
        tile = min(TILES, key=lambda t: explained(latency, view.waves(t)[members]))
        gain = explained(latency, outputs[members]) - explained(latency, view.waves(tile)[members])
        result.append((gain, int(members[0]), members, tile))
    for (_, first, members, tile), colour in zip(
        sorted(result, reverse=True)[:3], ("#1f4e79", "#d1495b", "#66a182"), strict=False
    ):
        latency, x = rows.latencies_us[members], view.h_in[members]
        label = (
            f"{view.c_in[first]:.0f}→{view.c_out[first]:.0f}, "
            f"{view.k_h[first]:.0f}x{view.k_w[first]:.0f}, tile {tile[0]}x{tile[1]}"
        )
        axes[0].plot(x, latency, "o", markersize=3.5, color=colour, label=label)
        axes[0].plot(x, fitted(latency, view.waves(tile)[members]), "-", lw=1, color=colour)
        axes[0].plot(x, fitted(latency, outputs[members]), ":", lw=1, color=colour)
    axes[0].set(yscale="log", ylabel="latency (µs)", xlabel="height and width of the input")
    axes[0].set_title("staircase: waves (—) against outputs (···)")
    axes[0].legend(fontsize=7)
    bars = jumps(rows)
    axes[1].barh([f"{n}\n({c} cells)" for n, c, _ in bars], [100 * s for *_, s in bars],
                 color="#edae49")  # fmt: skip
    axes[1].set(xlabel="median share of the peak (%)", title="jumps: alignment of the channels")
    axes[1].tick_params(axis="y", labelsize=7)
    styles = {"hybridlat": ("#d1495b", "-"), "trees without modes": ("#999999", "--"),
              "trees with modes": ("#1f4e79", "-"), "kernel_forest": ("#66a182", "-"),
              "wave_model": ("#edae49", "-")}  # fmt: skip
    for name, curve in curves.items():
        colour, line = styles.get(name, ("#bbbbbb", ":"))
        axes[2].plot(SIZES[: len(curve)], curve, "o", ls=line, color=colour, ms=3, label=name)
    axes[2].set(xscale="log", yscale="log", xlabel="records to learn from", ylabel="RMSPE (%)")
    ticks = [5, 10, 15, 20, 30, 40, 60, 100]
    axes[2].set_yticks(ticks, [str(t) for t in ticks])
    axes[2].set_yticks([], minor=True)
    axes[2].set_xticks(SIZES[: len(next(iter(curves.values())))],
                       [f"{n:,}" for n in SIZES[: len(next(iter(curves.values())))]])  # fmt: skip
    axes[2].set_title("records needed")
    axes[2].legend(fontsize=7)
    figure.suptitle(f"{rows.target}: {len(rows.texts):,} convolutions")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def report(rows: Rows, swept: Sequence[str], sizes: Sequence[int], figure: Path) -> list[str]:
    """Everything about one target, as lines of Markdown."""
    ops = rows.cells.met_ops()
    text = [f"## {rows.target}: {len(rows.texts):,} convolutions ({', '.join(ops)})", ""]
    steps = staircase(rows, swept)
    if steps["series"]:
        text += [
            f"{steps['series']} series along {swept[0]}. Waves explain "
            f"{100 * steps['waves_win_share']:.0f} % of them better than outputs "
            f"(median residual {steps['median_residual_waves_%']:.1f} % against "
            f"{steps['median_residual_outputs_%']:.1f} %). In "
            f"{100 * steps['falls_though_work_grows_share']:.1f} % of the steps to a larger image "
            "latency falls by more than 5 %: another kernel was chosen.",
            "",
        ]
    text += [
        "| channels | cells bound by arithmetic | median share of the peak |",
        "|---|---:|---:|",
    ]
    text += [f"| {n} | {c:,} | {100 * share:.1f} % |" for n, c, share in jumps(rows)]
    usable = [size for size in sizes if size <= 0.7 * len(rows.texts)]
    curves = learning(rows, usable)
    goals = (40, 30, 20, 15)
    head = " | ".join(f"{n:,} records" for n in usable)
    tail = " | ".join(f"records for {goal} %" for goal in goals)
    text += ["", f"| RMSPE in % | {head} | {tail} |"]
    text += [f"|---|{'---:|' * (len(usable) + len(goals))}"]
    for model, curve in curves.items():
        # A forest per operator has no answer where one was not drawn.
        errors = " | ".join("–" if np.isnan(value) else f"{value:.1f}" for value in curve)
        rows_for = " | ".join(needed(curve, usable, goal) for goal in goals)
        text.append(f"| {model} | {errors} | {rows_for} |")
    draw(rows, swept, curves, figure)
    return [*text, "", f"![{rows.target}](figures/{figure.name})", ""]


def fine(folder: Path, figure: Path) -> list[str]:
    """The section on the CPU sweep."""
    every = two_modes_fine.read(folder)
    target = PackLookup(folder).target
    two_modes_fine.draw(every, str(target), figure)
    return [
        f"## {target}: fine steps", "",
        f"{sum(len(s.along) for s in every)} convolutions, each a network of its own, measured by "
        "`python experiments/two_modes_sweep.py` (on a quiet machine, half a minute). Root mean "
        "square of the relative residuals of each explanation:", "",
        two_modes_fine.table(every), "", f"![{target}](figures/{figure.name})", "",
    ]  # fmt: skip


def main() -> None:
    """Write the page and the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "experiments" / "two_modes.md")
    arguments = parser.parse_args()
    sizes = [int(n) for n in arguments.sizes.split(",")]
    figures = arguments.out.parent / "figures"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = [
        "# The two modes of a convolution's latency", "",
        f"`python experiments/02_two_modes.py`, {date}, on a two-core AMD EPYC VM. The records of "
        "the V100 were measured by others (Alibaba TinyNAS, see the importer), those of the CPU by "
        "this project. `trees` are boosted and random trees on all features of hybridlat; `without "
        "modes` leaves out those that state a mode (waves, fill, alignment). Three seeds.", "",
        *fine(SWEEP, figures / "two_modes_fine.png"),
    ]  # fmt: skip
    every = from_data(arguments.data) if arguments.data.is_dir() else []
    if not every:
        print(f"the V100 is left out: {arguments.data} is not there")
    for rows in every:
        swept = ("h_in", "m", "w_in")
        text += report(rows, swept, sizes, figures / f"two_modes_{rows.target.folder}.png")
    arguments.out.write_text("\n".join(text).rstrip() + "\n", encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
