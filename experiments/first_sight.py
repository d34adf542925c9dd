"""How near an answer is on a machine that was never measured: predictions against plain loops.

    python experiments/first_sight.py NET.onnx ... --stores DIR [--together]

Each network is predicted in a process and an empty store of its own, between two plain loops before
and two after, each in a process of its own; the truth is the mean of the middle two. ``--together``
keeps one store for all: then those after the tenth are met by a machine that is known. What is in
``--stores`` already is not measured again. The machine must be otherwise idle.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
LOOP = "import sys; from pathlib import Path; from plain_loop import loop_us; "
FIRST = 10  # networks of ``--together`` that make the machine known
STEADY = 1.15  # the largest over the least loop of a network whose truth is known


def loop_us(network: Path) -> float:
    """A plain loop in a process of its own."""
    command = [sys.executable, "-c", f"{LOOP}print(loop_us(Path(sys.argv[1])))", str(network)]
    done = subprocess.run(
        command, cwd=ROOT / "experiments", capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def met(network: Path, store: Path) -> dict[str, object]:
    """A network's loops and what is predicted of it between them."""
    loops = [loop_us(network), loop_us(network)]
    command = [sys.executable, "-m", "hybridlat", "predict", str(network), "--json"]
    done = subprocess.run(
        [*command, "--store", f"sqlite:///{store}"], capture_output=True, text=True, check=True
    )
    answer = json.loads(done.stdout)
    loops += [loop_us(network), loop_us(network)]
    return {"loops_us": loops, **{key: answer[key] for key in ("latency_us", "interval_us")}}


def summary(title: str, rows: Sequence[dict[str, object]]) -> str:
    """Errors and coverage of some networks, and how far their loops are apart."""
    loops = np.sort([row["loops_us"] for row in rows], axis=1)
    truth = loops[:, 1:3].mean(axis=1)
    ratios = np.array([row["latency_us"] for row in rows]) / truth
    low, high = np.array([row["interval_us"] for row in rows], float).T
    inside = (low <= truth) & (truth <= high)
    width = float(np.median(high / (ratios * truth)) - 1)
    floor = 100 * np.sqrt(np.mean(np.var(np.log(loops), axis=1, ddof=1)))
    return (
        f"| {title} | {len(rows)} | {100 * np.sqrt(np.mean((ratios - 1) ** 2)):.1f} "
        f"| {100 * (np.exp(np.mean(np.log(ratios))) - 1):+.1f} | {inside.sum()} "
        f"({100 * inside.mean():.0f} %) | {100 * width:.1f} | {floor:.1f} |"
    )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", type=Path, nargs="+")
    parser.add_argument("--stores", type=Path, required=True)
    parser.add_argument("--together", action="store_true")
    given = parser.parse_args()
    given.stores.mkdir(parents=True, exist_ok=True)
    rows = []
    for network in (path.resolve() for path in given.networks):
        kept = given.stores / f"{network.stem}.json"
        if not kept.exists():
            store = (given.stores / ("all" if given.together else network.stem)).resolve()
            kept.write_text(json.dumps(met(network, store.with_suffix(".db"))), encoding="utf-8")
            print(kept.read_text(encoding="utf-8"), file=sys.stderr)
        rows.append(json.loads(kept.read_text(encoding="utf-8")))
    counted = rows[FIRST:] if given.together else rows
    steady = [row for row in counted if max(row["loops_us"]) < STEADY * min(row["loops_us"])]
    print("| networks | number | RMSPE, % | bias, % | inside | half-width, % | loops apart, % |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    print(summary("all", counted))
    if steady:
        print(summary("whose loops agree", steady))


if __name__ == "__main__":
    main()
