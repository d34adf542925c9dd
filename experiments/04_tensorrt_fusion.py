"""How well the table of TensorRT's fusion rules agrees with TensorRT-RTX's compiler.

``python experiments/04_tensorrt_fusion.py [--nets DIR --answers DIR] [--record] [--write]``

Prints the share of operators in identical groups, FP32 and FP16, for the networks that shaped the
rules and for those that did not, and every kind of disagreement. ``--nets`` takes a folder of ONNX
files besides, of which two thirds may shape the rules and one third judges: for the latter nothing
but the agreement is told, since who has seen more must judge on other networks. ``--shaping``
leaves out the kinds of the half of data/nets that did not shape the rules, too.

What the compiler says of data/nets is read from tests/golden/rtx_layers; ``--record`` asks it anew
(extra ``rtx``). What it says of the folder is kept in ``--answers``, and asked for where it is not
there. ``--write`` writes the page experiments/tensorrt_fusion.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import gzip
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import tensorrt_networks
from experiments.tensorrt_networks import PRECISIONS
from experiments.tensorrt_page import (
    OTHER_HALF,
    SHAPING_HALF,
    figures,
    kinds_table,
    page,
)
from experiments.tensorrt_verdicts import Verdict, verdict
from hybridlat.engines import tensorrt_rtx
from hybridlat.engines.fusion.groups import Groups
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network

__all__ = ["PRECISIONS", "figures", "kinds_table"]
HALVES = (SHAPING_HALF, OTHER_HALF)
NETS = ROOT / "data" / "nets"
GOLDEN = ROOT / "tests" / "golden" / "rtx_layers"
PAGE = ROOT / "experiments" / "tensorrt_fusion.md"


def shaping() -> frozenset[str]:
    """Names of the networks of data/nets that the rules were shaped on."""
    return frozenset(json.loads((GOLDEN / "halves.json").read_text())["shaping"])


def network_of(name: str, precision: str) -> Network:
    """A network of data/nets in a precision."""
    return tensorrt_networks.read(NETS / f"{name}.onnx", precision)


def recording(name: str, precision: str) -> Path:
    """Where the compiler's groups of a network are kept."""
    return GOLDEN / f"{name}.{precision}.json.gz"


def record(name: str, precision: str) -> None:
    """Ask the compiler and keep its groups."""
    network = network_of(name, precision)
    groups, by = tensorrt_rtx.groups_of(network)
    body = {
        "by": by,
        "nodes": len(network.nodes),
        "kernels": [list(kernel) for kernel in groups.kernels],
        "removed": list(groups.removed),
    }
    text = json.dumps(body, separators=(",", ":"))
    recording(name, precision).write_bytes(gzip.compress(text.encode(), mtime=0))


def recorded(name: str, precision: str) -> Groups:
    """The compiler's groups as they were recorded."""
    body = json.loads(gzip.decompress(recording(name, precision).read_bytes()))
    return Groups(tuple(map(tuple, body["kernels"])), tuple(body["removed"]))


def judge(name: str, precision: str, truth: Groups | None = None) -> Verdict:
    """Hold the rules against the compiler, or against ``truth`` where that is given."""
    network = network_of(name, precision)
    if truth is None:
        truth, _ = tensorrt_rtx.groups_of(network)
    part = SHAPING_HALF if name in shaping() else OTHER_HALF
    return verdict(name, precision, part, network, truth)


def truth() -> str:
    """Who says what is true, with the version that the recordings were made with."""
    body = json.loads(gzip.decompress(next(iter(sorted(GOLDEN.glob("*.gz")))).read_bytes()))
    return str(body["by"]).replace("tensorrt-rtx", "TensorRT-RTX")


def without_kinds(told: Verdict) -> Verdict:
    """A verdict that tells no disagreement."""
    return dataclasses.replace(told, kinds=())


def main() -> None:
    """Record or judge; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nets", type=Path, help="a folder of further ONNX files")
    parser.add_argument("--answers", type=Path, help="where what is said of them is kept")
    parser.add_argument("--kept", action="store_true", help="only networks with a kept answer")
    parser.add_argument("--record", action="store_true", help="write the recordings anew")
    parser.add_argument("--shaping", action="store_true", help="no kinds of the other half")
    parser.add_argument("--write", action="store_true", help="write tensorrt_fusion.md")
    arguments = parser.parse_args()
    names = sorted(path.stem for path in NETS.glob("*.onnx"))
    for name in names if arguments.record else ():
        for precision in PRECISIONS:
            try:
                record(name, precision)
            except MeasurementError as error:
                print(f"{name} {precision}: {error}", file=sys.stderr)
    verdicts = [
        judge(name, precision, recorded(name, precision))
        for name in names
        for precision in PRECISIONS
        if recording(name, precision).exists()
    ]
    command = "python experiments/04_tensorrt_fusion.py --write"
    if arguments.nets is not None:
        answers = arguments.answers or arguments.nets.with_name("rtx_answers")
        asks = tensorrt_rtx.installed() and not arguments.kept
        verdicts += tensorrt_networks.verdicts(arguments.nets, answers, frozenset(names), asks)
        kept = " --kept" if arguments.kept else ""
        command = command.replace("--write", f"--nets DIR --answers DIR{kept} --write")
    if arguments.shaping:
        verdicts = [v if v.part != OTHER_HALF else without_kinds(v) for v in verdicts]
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = page(verdicts, truth(), command, day)
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
