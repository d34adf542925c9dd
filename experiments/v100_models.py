"""Train the V100 TensorRT models that ship in models/, and say how good they are.

    python experiments/v100_models.py [--data ../shared/data/v100_tensorrt_conv] [--out models]

One model per precision from every convolution of the public data set: all batch sizes, regular and
depthwise, with and without the fused sum. First a fifth of the rows, drawn at random, is held out:
the errors and the coverage of the 90 % interval on it go into the card. Then all rows are fitted.
"""

import argparse
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.public_data.convolutions import v100_tensorrt_conv
from hybridlat.engines import device_sheets
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit import FitConfig, fit_model
from hybridlat.model.geometry import geometry
from hybridlat.model.model_files import save_model
from hybridlat.schema.target import Target

DATA = ROOT.parent / "shared" / "data" / "v100_tensorrt_conv"
Rows = tuple[list[str], np.ndarray]


def rows_of(data: Path) -> dict[Target, Rows]:
    """Signature texts and latencies of every target in the data set."""
    imported = v100_tensorrt_conv(data)
    result: dict[Target, tuple[list[str], list[float]]] = {}
    for record in imported.measurements:
        texts, latencies = result.setdefault(record.target, ([], []))
        texts.append(imported.signatures[record.signature])
        latencies.append(record.latency_us or 0.0)
    for reason, count in imported.skipped.items():
        print(f"left out {count} rows: {reason}")
    return {target: (texts, np.array(us)) for target, (texts, us) in sorted(result.items())}


def fitted(target: Target, texts: list[str], latencies_us: np.ndarray) -> CellModel:
    """The model of these rows."""
    groups = [str(i) for i in range(len(texts))]
    device = device_sheets.load(target.device)
    return fit_model(texts, latencies_us, groups, FitConfig(device, target.precision))


def held_out(target: Target, rows: Rows) -> dict[str, float]:
    """Errors and coverage on a fifth of the rows that the model has not seen."""
    texts, latencies = rows
    order = np.random.default_rng(0).permutation(len(texts))
    test, train = order[: len(order) // 5], order[len(order) // 5 :]
    model = fitted(target, [texts[i] for i in train], latencies[train])
    made = model.predict_geometry(geometry([texts[i] for i in test]))
    truth = latencies[test]
    error = made.latency_us / truth - 1
    covered = (truth >= made.low_us) & (truth <= made.high_us)
    return {
        "rows": len(test),
        "rmspe": round(100 * float(np.sqrt(np.mean(error**2))), 2),
        "mape": round(100 * float(np.mean(np.abs(error))), 2),
        "within_10": round(float(np.mean(np.abs(error) <= 0.1)), 4),
        "coverage": round(float(np.mean(covered)), 4),
        "width": round(float(np.mean((made.high_us - made.low_us) / made.latency_us)), 4),
        "untrusted": round(float(np.mean(made.novelty > 1)), 4),
    }


def main() -> None:
    """Train, judge and save one model per precision."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=ROOT / "models")
    parser.add_argument("--date", default="", help="date to write into the card (2025-01-31)")
    arguments = parser.parse_args()
    for target, rows in rows_of(arguments.data).items():
        metrics = held_out(target, rows)
        print(f"{target}: held out {metrics}", flush=True)
        model = fitted(target, *rows)
        card = {
            "target": str(target), "held_out": metrics, "date": arguments.date,
            "data": "v100_tensorrt_conv: alibaba/lightweight-neural-architecture-search 8ccaf88",
            "command": "python experiments/v100_models.py",
            "versions": {
                "python": platform.python_version(),
                **{name: version(name) for name in ("numpy", "scikit-learn")},
            },
        }  # fmt: skip
        save_model(model, arguments.out / target.folder, card)
        print(f"{target}: {model.card}", flush=True)


if __name__ == "__main__":
    main()
