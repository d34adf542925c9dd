"""The pictures of the site, from what the package says and from committed answers.

    python docs/pictures.py

Writes into ``docs/pictures``: ``cells.png`` (kernels of a network and their cells), ``blocks.svg``
(those of a network with a skip connection), ``intervals.png`` (errors of held-out networks
against their intervals, from ``experiments/figures``) and ``family.png`` (what a shipped family
model says of one kernel).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PICTURES = ROOT / "docs" / "pictures"
ANSWERS = ROOT / "experiments" / "figures" / "predicted_measured.json"
TARGET = "epyc-26-2/onnxruntime-1.31/fp32/1t"
NETWORK, CELLS = "resnet18", 5  # how many of its cells are drawn
INK, CELL, LINE = "#333333", "#e3eef9", "#5b7fa6"
MOST_PERCENT = 21
TASKS = {
    "v100/paddle-tensorrt-8.0/fp32": "#c8553d", "orin-nano/tensorrt-trtutils/fp16": "#0b6e4f",
    "l4/tensorrt/fp16": "#5b7fa6",
}  # fmt: skip
REGIMES = {"unseen": ("nothing measured", "#c8553d"), "gated@5%": ("gate at 5 %", "#0b6e4f")}


def draw_cells(axes: Any) -> None:
    """The first kernels from left to right, wires between them, a frame around each cell."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    from hybridlat.engines import registry
    from hybridlat.graph.cells import cut_positions, label
    from hybridlat.onnx_io import read_network
    from hybridlat.schema.target import Target

    read = read_network(ROOT / "data" / "nets" / f"{NETWORK}.onnx")
    lowered = registry.lower(read, Target.parse(TARGET))
    cells = cut_positions(lowered.network)[:CELLS]
    made_by: dict[str, float] = {}
    x = 0.0
    for number, positions in enumerate(cells):
        width = 1.6 * len(positions)
        axes.add_patch(FancyBboxPatch((x - 0.7, -0.75), width - 0.2, 1.5, fc=CELL, ec=LINE,
                                      boxstyle="round,pad=0,rounding_size=0.15"))  # fmt: skip
        axes.text(x - 0.6, -0.95, f"cell {number}", color=LINE, va="top", fontsize=8)
        for position in positions:
            node = lowered.network.nodes[position]
            for name in node.inputs:
                if name in made_by:
                    far = x - made_by[name] > 1.9
                    axes.add_patch(FancyArrowPatch(
                        (made_by[name] + (0.2 if far else 0.4), 0.3 if far else 0),
                        (x - (0.2 if far else 0.4), 0.3 if far else 0),
                        connectionstyle=f"arc3,rad={-0.35 if far else 0}",
                        arrowstyle="-|>", mutation_scale=8, color=INK, lw=0.9,
                    ))  # fmt: skip
            text = label(node, lowered.origins[position], read).replace("+", "\n+")
            box = {"fc": "white", "ec": INK, "lw": 0.8, "boxstyle": "round,pad=0.3"}
            axes.text(x, 0, text, ha="center", va="center", fontsize=7.5, color=INK, bbox=box)
            made_by.update(dict.fromkeys(node.outputs, x))
            x += 1.6
    axes.set_xlim(-1, x - 0.6)
    axes.set_ylim(-1.3, 1.4)
    axes.axis("off")


def draw_blocks(axes: Any) -> None:
    """A network of two branches and a skip connection, and the cells that it falls into."""
    from hybridlat.graph.builder import NetworkBuilder
    from hybridlat.graph.cells import cut_positions

    b = NetworkBuilder()
    where: list[tuple[float, float]] = []

    def kernel(at: tuple[float, float], op: str, *sources: str) -> str:
        where.append(at)
        return b.op(op, list(sources), b.shape(sources[0]), 14)

    skip = kernel((1, 0), "Relu", kernel((0, 0), "Conv", b.input((1, 8, 16, 16))))
    x = skip
    for place in range(2, 10, 2):  # residual blocks
        inner = kernel((place + 1, 2), "Conv", kernel((place, 2), "Conv", x))
        x = kernel((place + 1, 1), "Add", inner, x)
    x = kernel((11, 0), "Concat", kernel((10, 1), "Resize", x), skip)
    x = kernel((12, 0), "Conv", x)
    for head in (-0.6, 0.6):
        kernel((13, head), "Conv", x)
    network = b.network()
    for positions in cut_positions(network):
        xs, ys = zip(*[where[p] for p in positions], strict=True)
        axes.fill([min(xs) - 0.45, max(xs) + 0.45, max(xs) + 0.45, min(xs) - 0.45],
                  [-min(ys) + 0.45, -min(ys) + 0.45, -max(ys) - 0.45, -max(ys) - 0.45],
                  fc=CELL, ec=LINE, lw=0.8)  # fmt: skip
    for position, node in enumerate(network.nodes):
        at = where[position]
        for name in node.inputs:
            if name in network.producers:
                source = where[network.producers[name]]
                axes.annotate("", (at[0], -at[1]), (source[0], -source[1]), arrowprops={
                    "arrowstyle": "-|>", "color": INK, "lw": 0.8, "shrinkA": 11, "shrinkB": 11,
                })  # fmt: skip
        box = {"fc": "white", "ec": INK, "lw": 0.8, "boxstyle": "round,pad=0.25"}
        axes.text(at[0], -at[1], node.op, ha="center", va="center", fontsize=6.5, bbox=box)
    axes.text(6, 0.12, "parked", ha="center", color=LINE, fontsize=8)
    axes.axis("off")


def draw_intervals(axes: Any) -> None:
    """One point a network: half-width of its interval, and the error that was made."""
    found = json.loads(ANSWERS.read_text(encoding="utf-8"))[TARGET]["regimes"]
    for regime, (text, colour) in REGIMES.items():
        widths, errors = [], []
        for network in found[regime]["networks"]:
            low, high = network["interval_us"]
            predicted, measured = network["predicted_us"], network["measured_us"]
            above = measured > predicted
            widths.append(100 * ((high if above else low) / predicted - 1) * (1 if above else -1))
            errors.append(100 * abs(measured / predicted - 1))
        outside = sum(e > MOST_PERCENT for e in errors)
        text += f" ({outside} further off)" if outside else ""
        held = sum(e <= w for e, w in zip(errors, widths, strict=True)) / len(errors)
        axes.scatter(widths, errors, s=12, color=colour, label=f"{text}: {held:.0%} held")
    axes.plot([0, 12], [0, 12], color=INK, lw=0.8)
    axes.text(11.8, 10.6, "below: held", color=INK, fontsize=8, ha="right", va="top")
    axes.set(xlim=(2, 12), ylim=(0, MOST_PERCENT), xlabel="interval on that side, %",
             ylabel="error, % of the prediction")  # fmt: skip
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.spines[["top", "right"]].set_visible(False)


def draw_family(axes: Any) -> None:
    """A 3x3 convolution on a 28x28 map: its latency over its base, on three tasks."""
    import numpy as np

    from hybridlat.engines import device_sheets
    from hybridlat.graph.builder import NetworkBuilder
    from hybridlat.graph.signature import sign
    from hybridlat.model.family import shipped
    from hybridlat.model.family.observations import kernel_set
    from hybridlat.model.family.physics import table_of_texts
    from hybridlat.schema.target import Target

    widths = np.arange(16, 513, 16)
    texts = []
    for width in widths.tolist():
        b = NetworkBuilder()
        b.conv(b.input((1, width, 28, 28)), width, 3)
        texts.append(sign(b.network()).text)
    for text, colour in TASKS.items():
        target = Target.parse(text)
        device = device_sheets.of_target(target)
        model = shipped.load(shipped.folders("tensorrt")[-1])  # the one that ships
        task = shipped.task_of(target, model.tasks, model.seen)
        sets = [kernel_set(table_of_texts([t], [1.0]), device, target.precision) for t in texts]
        points = np.stack([model.embedding(one.descriptors, one.classes)[0] for one in sets])
        logs = points @ model.coefficients([task])[task]
        spreads = model.gp.spreads(points, [task] * len(points))
        seen = model.seen[model.tasks.index(task)] if task in model.tasks else 0
        label = f"{text}: {seen} networks" if seen else f"{text}: none of its own"
        axes.plot(widths, np.exp(logs), color=colour, label=label)
        axes.fill_between(widths, np.exp(logs - spreads), np.exp(logs + spreads), color=colour,
                          alpha=0.15, lw=0)  # fmt: skip
    axes.set(xlabel="channels of a 3x3 convolution on a 28x28 map", ylabel="latency / base",
             ylim=(0, None), xlim=(16, 512))  # fmt: skip
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Draw all pictures again."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "hybridlat"})
    from matplotlib import pyplot as plt

    PICTURES.mkdir(exist_ok=True)
    for name, draw, size in (
        ("cells.png", draw_cells, (9, 2.4)),
        ("blocks.svg", draw_blocks, (9, 2.6)),
        ("intervals.png", draw_intervals, (6, 3.6)),
        ("family.png", draw_family, (6.5, 3.2)),
    ):
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        draw(axes)
        about = {"Software": None} if name.endswith("png") else {"Date": None}
        figure.savefig(PICTURES / name, dpi=150, metadata=about)
        print(PICTURES / name)
        plt.close(figure)


if __name__ == "__main__":
    main()
