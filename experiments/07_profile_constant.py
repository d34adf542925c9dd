"""How far a TensorRT profile's sum is from the engine, and what one constant per layer mends.

Claim: on one GPU, a constant per profiled layer explains most of what a profile's sum has too
much. Judged out of sample: the constant is fitted on all engines of a GPU but one network's (in
all its precisions), and applied to that network. The data is public (exports that come with
NVIDIA's trt-engine-explorer); it is not part of this repository and is looked for in
``../shared/data/trt_layer_profiles``.

    python experiments/07_profile_constant.py [--data FOLDER]

Result, 21 November 2026 (sum of the profile against the engine's own median):

| GPU | engines | RMSPE of the sum % | constant µs a layer | in sample % | held out % |
|---|--:|--:|--:|--:|--:|
| GeForce RTX 3090 | 3 | 6.17 | 2.90 | 0.33 | cannot be judged: one network |
| TITAN RTX | 2 | 35.93 | 1.66 | 0.55 | 1.11 |

Five engines of two GPUs are few. What they say: a profile's sum is too high by 2 to 38 %, the more
the shorter the layers are, and a constant that is fitted on one network leaves 1 % on another of
the same GPU. It differs between GPUs, so it has to be fitted on each, with one engine whose latency
is known: ``experiments.trtexec_profile.report`` does that and shows it.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from experiments.trtexec_profile import ProfiledEngine, fit_constant

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "trt_layer_profiles"


@dataclass(frozen=True)
class Row:
    """One engine of the data set."""

    device: str
    family: str
    name: str
    engine: ProfiledEngine


def read(folder: Path) -> list[Row]:
    """Engines with a profile and a latency. Precisions of one network are one family."""
    rows = []
    with (folder / "networks.csv").open() as source:
        for line in csv.DictReader(source):
            family = line["model"].replace("-qat", "").replace(".qat", "").split(".")[0]
            engine = ProfiledEngine(
                int(line["n_layers"]),
                float(line["sum_layers_avg_us"]),
                float(line["net_median_us"] or line["net_mean_us"]),
            )
            device = line["device"].replace("NVIDIA ", "")
            rows.append(Row(device, family, f"{line['model']} {line['precision']}", engine))
    return rows


def rmspe(errors: list[float]) -> float:
    """Root mean square of relative errors, percent."""
    return 100.0 * (sum(e * e for e in errors) / len(errors)) ** 0.5


def main() -> int:
    """Print the table; 0 done, 2 where the data is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    folder = parser.parse_args().data
    if not (folder / "networks.csv").exists():
        print(f"the data is not at {folder}: give its folder with --data", file=sys.stderr)
        return 2
    by_device: dict[str, list[Row]] = defaultdict(list)
    for row in read(folder):
        by_device[row.device].append(row)
    print("| GPU | network | layers | engine µs | sum off % | constant µs (others) | off % |")
    print("|---|---|--:|--:|--:|--:|--:|")
    summary = []
    for device, rows in sorted(by_device.items()):
        raw, held_out, seen = [], [], []
        whole = fit_constant([r.engine for r in rows])
        for row in rows:
            e = row.engine
            others = [r.engine for r in rows if r.family != row.family]
            raw.append(e.sum_us / e.latency_us - 1.0)
            seen.append((e.sum_us - whole * e.layers) / e.latency_us - 1.0)
            if others:
                constant = fit_constant(others)
                held_out.append((e.sum_us - constant * e.layers) / e.latency_us - 1.0)
                after = f"{constant:.2f} | {100 * held_out[-1]:+.2f}"
            else:
                after = "no other network | "
            print(
                f"| {device} | {row.name} | {e.layers} | {e.latency_us:.1f} "
                f"| {100 * raw[-1]:+.2f} | {after} |"
            )
        out = f"{rmspe(held_out):.2f}" if held_out else "cannot be judged: one network"
        summary.append(
            f"| {device} | {len(rows)} | {rmspe(raw):.2f} | {whole:.2f} "
            f"| {rmspe(seen):.2f} | {out} |"
        )
    print("\n| GPU | engines | RMSPE of the sum % | constant µs, all | in sample % | held out % |")
    print("|---|--:|--:|--:|--:|--:|")
    print("\n".join(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
