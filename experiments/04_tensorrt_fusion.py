"""How well the table of TensorRT's fusion rules agrees with TensorRT-RTX's compiler.

``python experiments/04_tensorrt_fusion.py [--record] [--all-kinds]``

Prints the share of operators in identical groups, FP32 and FP16, for the networks that shaped the
rules and for those that did not, and every kind of disagreement of the former. The kinds of the
latter are shown with ``--all-kinds`` only: whoever has seen them and then changes the rules must
judge on other networks. Where the compiler is installed (extra ``rtx``) it is asked, else its
recordings in tests/golden/rtx_layers are read; ``--record`` writes those.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hybridlat.core.network import Network
from hybridlat.errors import MeasurementError
from hybridlat.lowering import rules, tensorrt, tensorrt_rtx
from hybridlat.lowering.fused import Groups, agreement, differing, is_partition
from hybridlat.onnx_io import read_network

ROOT = Path(__file__).resolve().parents[1]
NETS = ROOT / "data" / "nets"
GOLDEN = ROOT / "tests" / "golden" / "rtx_layers"
PRECISIONS = ("fp32", "fp16")


@dataclass(frozen=True)
class Verdict:
    """The rules and the compiler on one network; ``agreement`` is a share (0..1) of operators."""

    name: str
    precision: str
    shaping: bool
    nodes: int
    agreement: float
    kinds: tuple[str, ...]


def shaping() -> frozenset[str]:
    """Names of the networks that the rules were shaped on."""
    return frozenset(json.loads((GOLDEN / "halves.json").read_text())["shaping"])


def network_of(name: str, precision: str) -> Network:
    """A network of data/nets in a precision."""
    network = read_network(NETS / f"{name}.onnx")
    return network if precision == "fp32" else tensorrt_rtx.in_half_precision(network)


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
    found = rules.apply(network, tensorrt.RULES)
    if not is_partition(network, found) or not is_partition(network, truth):
        raise AssertionError(f"{name}: an operator is in no group or in two")
    share = agreement(found, truth, len(network.nodes))
    kinds = tuple(disagreements(network, found, truth))
    return Verdict(name, precision, name in shaping(), len(network.nodes), share, kinds)


def disagreements(network: Network, found: Groups, truth: Groups) -> list[str]:
    """What the rules say and what is true, once for each connected set of differing operators."""
    places: list[dict[int, tuple[int, ...]]] = [
        {node: kernel for kernel in groups.kernels for node in kernel} for groups in (found, truth)
    ]
    told: list[str] = []
    seen: set[int] = set()
    for start in differing(found, truth):
        if start in seen:
            continue
        together, waiting = set[int](), [start]
        while waiting:
            node = waiting.pop()
            if node not in together:
                together.add(node)
                waiting.extend(other for place in places for other in place.get(node, ()))
        seen |= together
        sides = [
            " | ".join(
                "+".join(network.nodes[i].op for i in kernel) or "removed"
                for kernel in sorted({place.get(node, ()) for node in together})
            )
            for place in places
        ]
        told.append(f"rules: {sides[0]}   compiler: {sides[1]}")
    return told


def report(verdicts: list[Verdict], all_kinds: bool) -> None:
    """Print the figures and the kinds of disagreement."""
    for precision in PRECISIONS:
        for half, is_shaping in (("shaped the rules", True), ("did not", False)):
            chosen = [v for v in verdicts if v.precision == precision and v.shaping == is_shaping]
            if not chosen:
                continue
            shares = [v.agreement for v in chosen]
            nodes = sum(v.nodes for v in chosen)
            pooled = sum(v.agreement * v.nodes for v in chosen) / nodes
            worst = min(chosen, key=lambda v: v.agreement)
            print(
                f"{precision} {len(chosen):3} networks that {half:16}: mean over networks "
                f"{100 * statistics.fmean(shares):5.1f} %, all operators {100 * pooled:5.1f} %, "
                f"worst {100 * worst.agreement:5.1f} % ({worst.name})"
            )
    print()
    for verdict in verdicts:
        mark = "shaping" if verdict.shaping else ""
        print(f"{verdict.name:28} {verdict.precision} {100 * verdict.agreement:6.1f} % {mark}")
    kinds = Counter(k for v in verdicts if v.shaping or all_kinds for k in v.kinds)
    print("\nKinds of disagreement:" if kinds else "\nNo disagreement.")
    for kind, count in kinds.most_common():
        print(f"{count:4} × {kind}")


def main() -> None:
    """Record or judge; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="write the recordings anew")
    parser.add_argument("--all-kinds", action="store_true", help="show the judging half's too")
    arguments = parser.parse_args()
    names = sorted(path.stem for path in NETS.glob("*.onnx"))
    if arguments.record:
        for name in names:
            for precision in PRECISIONS:
                try:
                    record(name, precision)
                except MeasurementError as error:
                    print(f"{name} {precision}: {error}")
    live = tensorrt_rtx.installed()
    print(f"Truth: {'TensorRT-RTX ' + tensorrt_rtx.version() if live else 'recordings'}\n")
    verdicts = [
        judge(name, precision, None if live and not arguments.record else recorded(name, precision))
        for name in names
        for precision in PRECISIONS
        if recording(name, precision).exists()
    ]
    report(verdicts, arguments.all_kinds)


if __name__ == "__main__":
    main()
