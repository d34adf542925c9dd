"""The two non-linear modes of a convolution's latency: found, drawn, and put to use.

    python experiments/02_two_modes.py [--data ../shared/data/v100_tensorrt_conv] [--figures DIR]
    python experiments/02_two_modes.py --pack data/packs/<target>     (a sweep measured here)

The staircase: a kernel computes its output tile by tile, all units of the device at once, so
latency climbs by waves and not by outputs. The jumps: another kernel is chosen when channels stop
being multiples of what the hardware likes, or when another algorithm wins.

1. Series of convolutions that differ in one thing only (V100: the image size; a sweep: whatever it
   swept) are each explained by a line in the outputs and by a line in the waves of the best tile.
   How often do the waves win, and how often does latency fall although the work grows (which no
   staircase can do: a jump)?
2. FLOP/s by alignment of the channels, at like work: the height of the jump.
3. How many records does each model need for the same error, and do the modes as features help?
   The seeds are three; every model sees the same rows and is tested on all others.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hybridlat import baselines, devices, importers
from hybridlat.core import features
from hybridlat.core.geometry import COLUMN, Geometry, geometry, op_name
from hybridlat.core.operators import KINDS
from hybridlat.core.target import Target
from hybridlat.fit import fit_model
from hybridlat.fit_parts import fit_boosted, fit_forest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data" / "v100_tensorrt_conv"
SIZES = (100, 300, 1000, 3000)
SEEDS = 3
MODES = ("waves", "wave_time", "fill", "useful", "align", "pad_waste", "winograd")
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Rows:
    """Measured single-kernel convolutions of one target."""

    target: Target
    texts: list[str]
    latencies_us: Array

    @property
    def cells(self) -> Geometry:
        return geometry(self.texts)

    def view(self) -> features.View:
        device = devices.of_target(self.target)
        return features.View(self.cells, device, self.target.precision)


def from_data(data: Path) -> list[Rows]:
    """Regular convolutions of batch 1 without the fused sum, one set per precision."""
    imported = importers.load("v100_tensorrt_conv").read(data)
    return [
        rows
        for rows in _by_target((m, imported.signatures[m.signature]) for m in imported.measurements)
        for rows in [_chosen(rows, batch=1)]
    ]


def from_pack(folder: Path) -> list[Rows]:
    """Single convolutions of a pack, a sweep among them or nothing else."""
    from hybridlat.packs import PackLookup

    pack = PackLookup(folder)
    texts = dict(pack.all_signature_texts())
    cells = (m for m in pack.measurements() if m.kind == "cell" and m.latency_us is not None)
    return [_chosen(rows) for rows in _by_target((m, texts[m.signature]) for m in cells)]


def _by_target(records: Iterator[tuple[Any, str]]) -> Iterator[Rows]:
    found: dict[Target, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record, text in records:
        found[record.target][text].append(record.latency_us)
    for target in sorted(found):
        texts = list(found[target])
        yield Rows(target, texts, np.array([np.median(found[target][t]) for t in texts]))


def _chosen(rows: Rows, batch: int | None = None) -> Rows:
    """Cells of one regular convolution each, nothing added."""
    cells = rows.cells
    alone = np.bincount(cells.cell, minlength=cells.cells) == 1
    kept = []
    for place, row in enumerate(cells.cell.tolist()):
        value = dict(zip(COLUMN, cells.values[place], strict=True))
        if (
            alone[row] and value["kind"] == KINDS["conv"] and value["groups"] == 1
            and not value["has_add"] and batch in (None, value["batch"])
        ):  # fmt: skip
            kept.append(row)
    return Rows(rows.target, [rows.texts[i] for i in kept], rows.latencies_us[kept])


def series(rows: Rows, swept: Sequence[str], least: int = 8) -> list[Array]:
    """Positions of rows that agree in all but ``swept``, in the order of the first swept column."""
    cells = rows.cells
    names = ("op", "batch", "c_in", "c_out", "h_in", "k_h", "stride")
    fixed = [COLUMN[name] for name in names if name not in swept]
    groups: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(cells.values):
        groups[tuple(row[fixed])].append(i)
    along = cells.column(swept[0])
    long = [np.array(g) for g in groups.values() if len(g) >= least]
    return [g[np.argsort(along[g], kind="stable")] for g in long]


def explained(latency: Array, driver: Array) -> float:
    """Root mean square relative residual of latency = a + b·driver, neither negative."""
    from hybridlat.baselines._table import relative_line

    columns = np.stack([np.ones(len(driver)), driver], axis=1)
    return float(np.sqrt(np.mean((columns @ relative_line(columns, latency) / latency - 1) ** 2)))


def staircase(rows: Rows, swept: Sequence[str], jump: float = 0.05) -> dict[str, float]:
    """How often waves explain a series better than outputs, and how often latency falls."""
    view = rows.view()
    outputs = view.m * view.n
    waves = np.stack([view.waves(tile) for tile in features.TILES])
    found = series(rows, swept)
    smooth, steps, falls, pairs = [], [], 0, 0
    for members in found:
        latency = rows.latencies_us[members]
        smooth.append(explained(latency, outputs[members]))
        steps.append(min(explained(latency, wave[members]) for wave in waves))
        falls += int((latency[1:] < (1 - jump) * latency[:-1]).sum())
        pairs += len(members) - 1
    if not found:
        return {"series": 0}
    return {
        "series": len(found),
        "waves_win_share": float(np.mean(np.array(steps) < np.array(smooth))),
        "median_residual_outputs_%": 100 * float(np.median(smooth)),
        "median_residual_waves_%": 100 * float(np.median(steps)),
        "falls_though_work_grows_share": falls / max(pairs, 1),
    }


def jumps(rows: Rows) -> list[tuple[str, int, float]]:
    """Median share of the peak by alignment of the channels, among cells bound by arithmetic."""
    view = rows.view()
    share = view.compute_us / rows.latencies_us
    bound = view.compute_us > np.quantile(view.compute_us, 0.5)
    result = []
    for name, inside in (
        ("c_in and c_out multiples of 64", (view.c_in % 64 == 0) & (view.c_out % 64 == 0)),
        ("multiples of 32, not both of 64", (view.c_in % 32 == 0) & (view.c_out % 32 == 0)
         & ((view.c_in % 64 != 0) | (view.c_out % 64 != 0))),
        ("multiples of 8, not both of 32", (view.c_in % 8 == 0) & (view.c_out % 8 == 0)
         & ((view.c_in % 32 != 0) | (view.c_out % 32 != 0))),
        ("c_in not a multiple of 8", view.c_in % 8 != 0),
    ):  # fmt: skip
        taken = inside & bound
        if taken.sum() >= 10:
            result.append((name, int(taken.sum()), float(np.median(share[taken]))))
    return result


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
    device, precision = devices.of_target(rows.target), rows.target.precision
    known = [rows.texts[i] for i in train]
    asked = [rows.texts[i] for i in test]
    for name in ("flops_linear", "roofline", "wave_model"):
        baseline = baselines.load(name)(device, precision, seed)
        pairs = zip(known, rows.latencies_us[train].tolist(), strict=True)
        baseline.fit([baselines.Row(text, us, text) for text, us in pairs])
        yield name, baseline.predict(asked)
    yield "trees without modes", trees(rows, train, test, modes=False, seed=seed)
    yield "trees with modes", trees(rows, train, test, modes=True, seed=seed)
    model = fit_model(known, rows.latencies_us[train], known, device, seed, precision=precision)
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


def draw(rows: Rows, swept: Sequence[str], curves: dict[str, list[float]], folder: Path) -> None:
    """Series with the fitted wave model, and the learning curves, as one small picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    view = rows.view()
    device = devices.of_target(rows.target)
    wave = baselines.load("wave_model")(device, rows.target.precision, 0)
    wave.fit([
        baselines.Row(t, float(us)) for t, us in zip(rows.texts, rows.latencies_us, strict=True)
    ])  # fmt: skip
    outputs = view.m * view.n
    contrast = [
        (explained(rows.latencies_us[g], outputs[g])
         - min(explained(rows.latencies_us[g], view.waves(t)[g]) for t in features.TILES), i, g)
        for i, g in enumerate(series(rows, swept))
    ]  # fmt: skip
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    for _, _, members in sorted(contrast, reverse=True)[:4]:
        first = members[0]
        label = (
            f"{view.c_in[first]:.0f}→{view.c_out[first]:.0f}, "
            f"{view.k_h[first]:.0f}x{view.k_w[first]:.0f}/{view.stride[first]:.0f}"
        )
        x = view.m[members] if swept[0] == "h_in" else view.c_out[members]
        (line,) = axes[0].plot(x, rows.latencies_us[members], "o-", markersize=3, label=label)
        made = wave.predict([rows.texts[i] for i in members])
        axes[0].plot(x, made, ":", color=line.get_color())
    axes[0].set(xscale="log", yscale="log", ylabel="latency (µs)", title="staircase (dots: fitted)")
    axes[0].set_xlabel("output positions" if swept[0] == "h_in" else "output channels")
    axes[0].legend(fontsize=7)
    bars = jumps(rows)
    axes[1].barh([f"{n}\n({c} cells)" for n, c, _ in bars], [100 * s for *_, s in bars])
    axes[1].set(xlabel="median share of the peak (%)", title="jumps: channel alignment")
    axes[1].tick_params(axis="y", labelsize=7)
    for name, curve in curves.items():
        axes[2].plot(SIZES[: len(curve)], curve, "o-", markersize=3, label=name)
    axes[2].set(xscale="log", yscale="log", xlabel="training rows", ylabel="RMSPE (%)")
    axes[2].set_title("records needed")
    axes[2].legend(fontsize=7)
    figure.suptitle(str(rows.target))
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"two_modes_{rows.target.folder}.png", dpi=90)
    pyplot.close(figure)


def report(rows: Rows, swept: Sequence[str], sizes: Sequence[int], folder: Path) -> None:
    """Everything about one target, printed as Markdown."""
    ops = sorted({op_name(int(n)) for n in rows.cells.column("op")})
    print(f"\n## {rows.target}: {len(rows.texts)} convolutions ({', '.join(ops)})\n")
    for name, value in staircase(rows, swept).items():
        print(f"- {name.replace('_', ' ')}: {value:.3g}")
    print("\n| channels | cells | median share of the peak |\n|---|---|---|")
    for label, count, share in jumps(rows):
        print(f"| {label} | {count} | {100 * share:.1f} % |")
    print()
    usable = [size for size in sizes if size <= 0.7 * len(rows.texts)]
    curves = learning(rows, usable)
    goals = (40, 30, 20, 15)
    head = " | ".join(f"{n} rows" for n in usable)
    tail = " | ".join(f"rows for {goal} %" for goal in goals)
    print(f"\n| model | {head} | {tail} |\n|---|{'---|' * (len(usable) + len(goals))}")
    for model, curve in curves.items():
        errors = " | ".join(f"{value:.1f}" for value in curve)
        rows_for = " | ".join(needed(curve, usable, goal) for goal in goals)
        print(f"| {model} | {errors} | {rows_for} |")
    draw(rows, swept, curves, folder)


def main() -> None:
    """Report on every target of the data, or of the pack."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--pack", type=Path, help="a pack with a sweep instead of the public data")
    parser.add_argument("--swept", default="h_in,m", help="columns that differ within a series")
    parser.add_argument("--figures", type=Path, default=ROOT / "experiments" / "figures")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    arguments = parser.parse_args()
    sizes = [int(n) for n in arguments.sizes.split(",")]
    if arguments.pack is None and not arguments.data.is_dir():
        parser.error(f"{arguments.data} is not there: give --data or --pack")
    every = from_pack(arguments.pack) if arguments.pack else from_data(arguments.data)
    for rows in every:
        report(rows, arguments.swept.split(","), sizes, arguments.figures)


if __name__ == "__main__":
    main()
