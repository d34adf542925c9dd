"""The shipped networks in 8 bits, as ONNX Runtime's static quantiser writes them.

Activations and weights are uint8 and int8, both int8 (weights by channel), and for every third
network both uint8. Weights are random, and calibration is on one random image: neither enters a
latency. What quantised networks cost on the CPU is measured on these files:

    python experiments/quantised_networks.py --to nets8   # 4 min, 2.3 GB
    to="--precision int8 --store sqlite:///int8.db"
    for types in u8s8 s8s8 u8u8; do                       # three quarters of an hour
        python experiments/sum_of_cells.py measure --nets nets8/$types $to
    done
    python experiments/sum_of_cells.py sweep --kernels 2400 $to
    python experiments/sum_of_cells.py pack --nets nets8/u8s8 --lean $to  # to data/packs

Needs sympy beside the project.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hybridlat import onnx_io

LEAST_SET = 13  # the first whose quantisers may have a scale for each channel
TYPES: dict[str, dict[str, Any]] = {
    "u8s8": {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8},
    "s8s8": {
        "activation_type": QuantType.QInt8,
        "weight_type": QuantType.QInt8,
        "per_channel": True,
    },
    "u8u8": {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QUInt8},
}


class OneImage(CalibrationDataReader):
    """Calibration on one random image."""

    def __init__(self, file: Path) -> None:
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        random = np.random.default_rng(0)
        sizes = {
            i.name: [n if isinstance(n, int) else 1 for n in i.shape] for i in session.get_inputs()
        }
        drawn = {name: random.standard_normal(shape, np.float32) for name, shape in sizes.items()}
        self._images: Iterator[dict[str, Any]] = iter([drawn])

    def get_next(self) -> dict[str, Any]:
        return next(self._images, {})


def quantise(source: Path, to: Path, types: tuple[str, ...]) -> None:
    """Write a network in 8 bits, into a folder for each of ``types``."""
    model = onnx.load(source)
    if next(each.version for each in model.opset_import if not each.domain) < LEAST_SET:
        model = version_converter.convert_version(model, 17)
    network = onnx_io.read_network(model, name=source.stem)
    with tempfile.TemporaryDirectory() as scratch:
        filled, folded = Path(scratch) / "filled.onnx", Path(scratch) / "folded.onnx"
        filled.write_bytes(onnx_io.to_onnx(network, 0))
        quant_pre_process(str(filled), str(folded), skip_symbolic_shape=True)
        for name in types:
            result = to / name / f"{source.stem}@{name}.onnx"
            result.parent.mkdir(parents=True, exist_ok=True)
            quantize_static(str(folded), str(result), OneImage(folded), **TYPES[name])


def main() -> None:
    """Quantise what ``data/nets`` holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--to", type=Path, required=True, help="folder of the files")
    to: Path = parser.parse_args().to
    for place, source in enumerate(sorted((ROOT / "data" / "nets").glob("*.onnx"))):
        print(source.stem, file=sys.stderr, flush=True)
        quantise(source, to, (*TYPES,)[: 2 if place % 3 else 3])


if __name__ == "__main__":
    main()
