"""Does an answer fall where the work grows? Counts pairs of answers that do.

    python experiments/growing_work.py [TARGET ...]

All networks of ``data/nets``, nothing measured: at batches 1 to 32, each doubled; those that take
several sizes at inputs of 192 to 320; and a residual block, one to sixteen times over. A row of the
page ``batches.md`` for each target.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hybridlat import Predictor
from hybridlat.errors import HybridlatError
from hybridlat.graph.builder import NetworkBuilder
from hybridlat.onnx_io import load, to_onnx

TARGETS = (
    "v100/tensorrt/fp16", "v100/tensorrt/fp32", "rtx-4090/torch-2.9/amp",
    "rtx-4090/torch-compile-2.9/amp", "v100/torch-1.6/fp32", "v100/torch-ngc/amp", "l4/torch/amp",
    "t4/tensorrt/fp16", "t4/tensorrt/int8", "l4/tensorrt/fp16", "orin-nano/tensorrt/fp16",
    "h100/tensorrt/fp16", "epyc-26-2/onnxruntime-1.31/fp32/1t",
)  # fmt: skip
BATCHES, SIZES, BLOCKS = (1, 2, 4, 8, 16, 32), (192, 224, 256, 288, 320), (1, 2, 3, 4, 6, 8, 12, 16)
ROUNDING = 1e-6
NETS = sorted((ROOT / "data/nets").glob("*.onnx"))


def blocks(times: int, channels: int = 64, size: int = 28) -> bytes:
    """So many residual blocks, all alike."""
    made = NetworkBuilder("blocks")
    shape = (1, channels, size, size)
    x = made.input(shape)
    for _ in range(times):
        inner = made.op("Relu", [made.conv(x, channels)], shape, 14)
        x = made.op("Relu", [made.op("Add", [made.conv(inner, channels), x], shape, 14)], shape, 14)
    return to_onnx(made.network(x), seed=1)


def ladders(predictor: Predictor, what: str) -> Iterator[list[float]]:
    """Latencies in us of each network as its work grows."""
    if what == "blocks":
        yield [predictor.predict(blocks(n)).latency_us or 0.0 for n in BLOCKS]
        return
    for path in NETS:
        with suppress(HybridlatError):  # a file for one size alone
            if what == "batches":
                estimates = [predictor.predict(path, batch=size) for size in BATCHES]
            else:
                name = load(path).facts.inputs[0]
                each = ({name: (1, 3, size, size)} for size in SIZES)
                estimates = [predictor.predict(path, shapes=shapes) for shapes in each]
            yield [estimate.latency_us or 0.0 for estimate in estimates]


def row(target: str) -> str:
    """A line of the page's table."""
    cells = [target]
    with Predictor(target, store="sqlite://", measure="never") as predictor:
        for what in ("batches", "sizes", "blocks"):
            pairs = [b / a - 1 for one in ladders(predictor, what) for a, b in pairwise(one)]
            falls = [change for change in pairs if change < -ROUNDING]
            worst = f", {100 * min(falls):.2g} %".replace("-", "−") if falls else ""
            cells.append(f"{len(falls)} of {len(pairs)}{worst}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """A row for each target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    targets: Sequence[str] = parser.parse_args().targets
    print("| target | batches | sizes | blocks |\n|---|---|---|---|")
    for target in targets:
        print(row(target), flush=True)


if __name__ == "__main__":
    main()
