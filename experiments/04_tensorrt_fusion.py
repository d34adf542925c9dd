"""How well the table of TensorRT's fusion rules agrees with TensorRT-RTX's compiler.

``python experiments/04_tensorrt_fusion.py [--record] [--write]``

Prints the share of operators in identical groups, FP32 and FP16, for the networks that shaped the
rules and for those that did not, and every kind of disagreement. ``--shaping`` leaves out the kinds
of the latter, for whoever is to change the rules: who has seen them must judge on other networks.
Where the compiler is installed (extra ``rtx``) it is asked, else its recordings in
tests/golden/rtx_layers are read; ``--record`` writes those, ``--write`` the page
experiments/tensorrt_fusion.md.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import json
import statistics
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments.tensorrt_kinds import name_of
from hybridlat.engines.fusion import rewriter
from hybridlat.engines.fusion.groups import Groups, agreement, differing, is_partition
from hybridlat.engines.tensorrt import fusion_rules
from hybridlat.engines.tensorrt_rtx import lowering as tensorrt_rtx
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network
from hybridlat.onnx_io import read_network

NETS = ROOT / "data" / "nets"
GOLDEN = ROOT / "tests" / "golden" / "rtx_layers"
PAGE = ROOT / "experiments" / "tensorrt_fusion.md"
PRECISIONS = ("fp32", "fp16")


@dataclass(frozen=True)
class Verdict:
    """The rules and the compiler on one network; ``agreement`` is a share (0..1) of operators."""

    name: str
    precision: str
    shaping: bool
    nodes: int
    agreement: float
    kinds: tuple[tuple[str, str], ...]


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
    found = rewriter.apply(network, fusion_rules.RULES)
    if not is_partition(network, found) or not is_partition(network, truth):
        raise AssertionError(f"{name}: an operator is in no group or in two")
    share = agreement(found, truth, len(network.nodes))
    kinds = tuple(disagreements(network, found, truth))
    return Verdict(name, precision, name in shaping(), len(network.nodes), share, kinds)


def disagreements(network: Network, found: Groups, truth: Groups) -> list[tuple[str, str]]:
    """What the rules say and what is true, once for each connected set of differing operators."""
    places: list[dict[int, tuple[int, ...]]] = [
        {node: kernel for kernel in groups.kernels for node in kernel} for groups in (found, truth)
    ]
    told: list[tuple[str, str]] = []
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
        rules_say, compiler_says = (
            " | ".join(
                "+".join(network.nodes[i].op for i in kernel) or "removed"
                for kernel in sorted({place.get(node, ()) for node in together})
            )
            for place in places
        )
        told.append((rules_say, compiler_says))
    return told


def page(verdicts: list[Verdict], truth: str, command: str, shaping_only: bool) -> str:
    """The published page: figures, networks and kinds of disagreement, as Markdown."""
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return "\n".join([
        "# The rules of TensorRT against TensorRT-RTX's compiler",
        "",
        f"Made by `{command}` on {day}. Machine: two-core AMD EPYC VM, no GPU. Truth: {truth}, "
        "batch 1, SM of no particular GPU, no auxiliary streams.",
        "",
        "Agreement is the share of a network's operators that stand in the same kernel with the "
        "same others, or are removed, in both. One half of the networks shaped the rules "
        "(`tests/golden/rtx_layers/halves.json`), the other did not. The compiler stands in for "
        "classic TensorRT's grouping, which has not been seen here.",
        "",
        *figures(verdicts),
        "",
        "## Every kind of disagreement",
        "",
        "Kernels are set apart by `|`. Counted once for each connected set of operators, in both "
        "precisions.",
        "",
        *kinds_table(verdicts, shaping_only),
        "",
        "## Networks",
        "",
        "| network | shaped the rules | operators | FP32 % | FP16 % |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {'yes' if name in shaping() else 'no'} | {by['fp32'].nodes} "
            f"| {100 * by['fp32'].agreement:.1f} | {100 * by['fp16'].agreement:.1f} |"
            for name, by in by_name(verdicts).items()
        ),
        "",
    ])  # fmt: skip


def by_name(verdicts: list[Verdict]) -> dict[str, dict[str, Verdict]]:
    """The verdicts of each network by precision."""
    found: dict[str, dict[str, Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.name, {})[verdict.precision] = verdict
    return found


def figures(verdicts: list[Verdict]) -> list[str]:
    """Agreement over each half in each precision."""
    lines = [
        "| networks | precision | n | mean of networks % | all operators % | worst % | (network) |",
        "|---|---|---|---|---|---|---|",
    ]
    for half, is_shaping in (("half that shaped the rules", True), ("the other half", False)):
        for precision in PRECISIONS:
            chosen = [v for v in verdicts if v.precision == precision and v.shaping == is_shaping]
            if not chosen:
                continue
            mean = statistics.fmean(v.agreement for v in chosen)
            pooled = sum(v.agreement * v.nodes for v in chosen) / sum(v.nodes for v in chosen)
            worst = min(chosen, key=lambda v: v.agreement)
            lines.append(
                f"| {half} | {precision} | {len(chosen)} | {100 * mean:.1f} | {100 * pooled:.1f} "
                f"| {100 * worst.agreement:.1f} | {worst.name} |"
            )
    return lines


def kinds_table(verdicts: list[Verdict], shaping_only: bool) -> list[str]:
    """Every kind of disagreement with its name, how often it was met, and where."""
    counts: Counter[tuple[bool, tuple[str, str]]] = Counter()
    where: dict[tuple[bool, tuple[str, str]], set[str]] = {}
    for verdict in verdicts:
        for kind in verdict.kinds:
            counts[verdict.shaping, kind] += 1
            where.setdefault((verdict.shaping, kind), set()).add(verdict.name)
    lines = [
        "| half | kind | rules | compiler | count | networks |",
        "|---|---|---|---|---|---|",
    ]
    for key, count in sorted(counts.items(), key=lambda item: (not item[0][0], -item[1], item[0])):
        is_shaping, kind = key
        if is_shaping or not shaping_only:
            sides = [f"`{side}`".replace("|", "\\|") for side in kind]
            lines.append(
                f"| {'shaping' if is_shaping else 'other'} | {name_of(kind)} | {sides[0]} "
                f"| {sides[1]} | {count} | {', '.join(sorted(where[key]))} |"
            )
    return lines


def main() -> None:
    """Record or judge; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--record", action="store_true", help="write the recordings anew")
    parser.add_argument("--shaping", action="store_true", help="no kinds of the judging half")
    parser.add_argument("--write", action="store_true", help="write tensorrt_fusion.md")
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
    verdicts = [
        judge(name, precision, None if live and not arguments.record else recorded(name, precision))
        for name in names
        for precision in PRECISIONS
        if recording(name, precision).exists()
    ]
    truth = f"TensorRT-RTX {tensorrt_rtx.version()}" if live else "recordings of TensorRT-RTX"
    command = "python experiments/04_tensorrt_fusion.py --write"
    text = page(verdicts, truth, command, arguments.shaping)
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
