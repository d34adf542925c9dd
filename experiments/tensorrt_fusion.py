"""How well the table of TensorRT's fusion rules agrees with TensorRT-RTX's compiler.

``python experiments/tensorrt_fusion.py [--nets DIR --answers DIR] [--exports DIR] [--engines DIR]
[--record]``

Prints the tables of experiments/tensorrt_fusion.md: the share of operators in identical groups,
FP32 and FP16, for the networks that shaped the rules and for those that did not, and every kind of
disagreement. ``--nets`` takes a folder of ONNX files besides, of which two thirds may shape the
rules and one third judges: of the latter nothing but the agreement is printed.
``--exports`` takes a folder of exports by network (``<network>/*.onnx``), of which 20 are drawn at
random, none of a network of data/nets, and the compiler is asked (an hour for attention).
``--engines`` takes a folder with ``layers.parquet``, layers of published engines, and ``nets``.

What the compiler says of data/nets is read from tests/golden/rtx_layers; ``--record`` asks it anew
(extra ``rtx``). What it says of the folder is kept in ``--answers``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import tensorrt_engines, tensorrt_networks
from experiments.tensorrt_networks import ATTENTION, DRAWN, JUDGING, PRECISIONS, SHAPING, UNSEEN
from experiments.tensorrt_verdicts import Kind, Verdict, verdict
from hybridlat.engines import rtx_compiler
from hybridlat.engines.fusion.groups import Groups
from hybridlat.errors import MeasurementError
from hybridlat.graph.network import Network

SHAPING_HALF, OTHER_HALF = "half that shaped the rules", "the other half"
HALVES = (SHAPING_HALF, OTHER_HALF)
PARTS = (*HALVES, SHAPING, JUDGING, UNSEEN, DRAWN, ATTENTION)
SHOWN_KINDS = 10
NETS = ROOT / "data" / "nets"
PAGE = ROOT / "experiments" / "tensorrt_fusion.md"
GOLDEN = ROOT / "tests" / "golden" / "rtx_layers"


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
    groups, by = rtx_compiler.groups_of(network)
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
        truth, _ = rtx_compiler.groups_of(network)
    part = SHAPING_HALF if name in shaping() else OTHER_HALF
    return verdict(name, precision, part, network, truth)


def figures(verdicts: Sequence[Verdict]) -> list[str]:
    """Agreement of each part in each precision, and how far kernels and bytes are off."""
    lines = [
        "| networks | precision | n | mean of networks % | all operators % | worst % "
        "| kernels off % | bytes off % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [(part, lambda v, p=part: v.part == p) for part in PARTS]
    both = (f"{JUDGING}, with {UNSEEN}", lambda v: v.part in (JUDGING, UNSEEN))
    for part, belongs in [*rows[:4], both, *rows[4:]]:
        for precision in PRECISIONS:
            chosen = [v for v in verdicts if v.precision == precision and belongs(v)]
            if chosen:
                pooled = sum(v.agreement * v.nodes for v in chosen) / sum(v.nodes for v in chosen)
                lines.append(
                    f"| {part} | {precision} | {len(chosen)} | {_mean(chosen, _agreement)} "
                    f"| {100 * pooled:.1f} | {100 * min(map(_agreement, chosen)):.1f} "
                    f"| {_mean(chosen, lambda v: abs(v.kernels))} "
                    f"| {_mean(chosen, lambda v: abs(v.bytes))} |"
                )
    return lines


def kinds_table(verdicts: Iterable[Verdict], parts: Sequence[str], most: int = 0) -> list[str]:
    """Kinds of disagreement of some parts: what they cost, how often they were met, and where.

    Ordered by part, then by the operators concerned; ``most`` of them, or all.
    """
    grouped: dict[tuple[str, str, str], list[tuple[Kind, str]]] = defaultdict(list)
    for one in verdicts:
        if one.part in parts:
            for kind in one.kinds:
                grouped[one.part, kind.rules, kind.compiler].append((kind, one.name))
    ordered = sorted(
        grouped.items(), key=lambda item: (parts.index(item[0][0]), -len(item[1]), item[0])
    )
    lines = [
        "| part | rules | compiler | costs | bytes of the network % | count | networks |",
        "|---|---|---|---|---|---|---|",
    ]
    for (part, rules, compiler), met in ordered[: most or None]:
        sides = [f"`{side}`".replace("|", "\\|") for side in (rules, compiler)]
        names = sorted({name for _, name in met})
        told = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        share = 100 * statistics.fmean(kind.bytes_share for kind, _ in met)
        lines.append(
            f"| {part} | {sides[0]} | {sides[1]} | {met[0][0].costs} | {share:+.2f} "
            f"| {len(met)} | {told} |"
        )
    return lines


def _mean(verdicts: Iterable[Verdict], of: Callable[[Verdict], float]) -> str:
    return f"{100 * statistics.fmean(map(of, verdicts)):.1f}"


def _agreement(verdict: Verdict) -> float:
    return verdict.agreement


def main() -> None:
    """Record or judge; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--nets", type=Path, help="a folder of further ONNX files")
    parser.add_argument("--answers", type=Path, help="where what is said of them is kept")
    parser.add_argument("--exports", type=Path, help="a folder of exports by network")
    parser.add_argument("--engines", type=Path, help="layers of published engines")
    parser.add_argument("--record", action="store_true", help="write the recordings anew")
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
    if arguments.nets is not None:
        answers = arguments.answers or arguments.nets.with_name("rtx_answers")
        asks = rtx_compiler.installed()
        verdicts += tensorrt_networks.verdicts(arguments.nets, answers, frozenset(names), asks)
    if arguments.exports is not None:
        verdicts += tensorrt_networks.drawn(arguments.exports, frozenset(names))
    print(*figures(verdicts), "", *kinds_table(verdicts, HALVES), sep="\n")
    if arguments.nets is not None:
        print("", *kinds_table(verdicts, (SHAPING,), SHOWN_KINDS), sep="\n")
    if arguments.exports is not None:
        print("", *kinds_table(verdicts, (DRAWN, ATTENTION), SHOWN_KINDS), sep="\n")
    if arguments.engines is not None:
        print("", *tensorrt_engines.table(arguments.engines), sep="\n")


if __name__ == "__main__":
    main()
