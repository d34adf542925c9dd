"""Never-seen architectures: do the rules lower them as ONNX Runtime does, and how quickly?

    python experiments/24_quick_lowering.py agree [--set NAME] [--progress FILE] [--minutes M]
        [--journal FILE]
    python experiments/24_quick_lowering.py rates [--networks 1000] [--journal FILE]
    python experiments/24_quick_lowering.py report --journal FILE [--write]

``agree`` asks the engine for every network of four sets and holds its answer against the quick way,
which starts each set knowing nothing; it ends after M minutes, and goes on where it stopped when it
is started again with the same file of progress. ``rates`` predicts networks given as ModelProtos
with a Predictor that measures nothing: never-seen, and again. ``report`` prints what is in the
journal (JSON lines), ``--write`` makes ``experiments/quick_lowering.md`` of it. A million requests:
``tests/benchmarks/bench_million.py``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onnx import ModelProto

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201
from experiments.block_spaces import SPACES
from hybridlat.api import Predictor
from hybridlat.engines.onnxruntime import lowering
from hybridlat.engines.onnxruntime.quick import QuickLowering
from hybridlat.engines.onnxruntime.quick import agree as agrees
from hybridlat.engines.onnxruntime.rules import draft
from hybridlat.errors import HybridlatError
from hybridlat.estimate.partition.partition import Partition, partition_network
from hybridlat.graph.network import Lowered, Network
from hybridlat.onnx_io import OnnxFile, load
from hybridlat.schema.target import Target

PAGE = ROOT / "experiments" / "quick_lowering.md"
NETS = ROOT / "data" / "nets"
HERE = Target("here", "onnxruntime", "fp32", 1)
KNOWN = "epyc-26-2/onnxruntime-1.31/fp32/1t"
Row = dict[str, Any]


def candidates(space: str, count: int, seed: int) -> Iterator[ModelProto]:
    """Different networks of a search space, drawn at random."""
    rng = random.Random(seed)
    if space == "nasbench201":
        live = (a for a in nasbench201.sample(2 * count, seed) if nasbench201.live_edges(a))
        yield from (nasbench201.build(arch) for arch, _ in zip(live, range(count), strict=False))
        return
    for architecture in sorted({SPACES[space].sample(rng) for _ in range(count)}):
        yield SPACES[space].build(architecture)


def same(one: Partition, other: Partition) -> bool:
    """Whether two partitions hold the same cells, of the same operators of the file."""
    return (one.uses, one.removed, one.batch) == (other.uses, other.removed, other.batch)


def agree(name: str, files: Iterator[OnnxFile], progress: Path | None, until: float) -> Row:
    """One set of networks, every one asked for, by the quick way and by the engine.

    Of networks that ``progress`` has from an earlier run the engine is not asked again where the
    draft was right then: it stands in for the answer, so that the quick way learns what it learned.
    """
    answers: dict[str, Lowered] = {}

    def told(network: Network) -> Lowered:
        return answers["told"]

    quick = QuickLowering(told, lowering.context_of, lowering.identity(HERE))
    before = [row for row in read_rows(progress) if row["set"] == name]
    networks = differ = refused = fresh = 0
    asked_s = quick_s = 0.0
    for index, file in enumerate(files):
        if time.monotonic() > until:
            break
        row = before[index] if index < len(before) else None
        try:
            network = file.network()
            found = draft(network, quick.block, lowering.context_of(network), quick.by)
            if row is not None and row["right"] and found is not None:
                answers["told"] = found.lowered
            else:
                started = time.perf_counter()
                answers["told"] = lowering.lower(network, HERE)
                asked_s += time.perf_counter() - started
                fresh += 1
        except HybridlatError:
            refused += 1
            write_row(progress if row is None else None, {"set": name, "right": False})
            continue
        right = found is not None and agrees(found.lowered, answers["told"])
        truth = partition_network(network, answers["told"], file.node_names)
        started = time.perf_counter()
        lowered = quick.lower(network)
        quick_s += time.perf_counter() - started
        networks += 1
        if not same(partition_network(network, lowered, file.node_names), truth):
            differ += 1
            print(f"DIFFERS: {file.name}", file=sys.stderr)
        write_row(progress if row is None else None, {"set": name, "right": right})
    return {
        "part": "agree", "set": name, "networks": networks, "refused": refused, "differ": differ,
        "patterns": len(quick.confirmed), "banned": len(quick.banned),
        **asdict(quick.tally),
        "engine_ms": round(1e3 * asked_s / max(fresh, 1), 2),
        "quick_ms": round(1e3 * quick_s / max(networks, 1), 3),
    }  # fmt: skip


def read_rows(path: Path | None) -> list[Row]:
    """The lines of a journal; none where there is no file."""
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_row(path: Path | None, row: Row) -> None:
    """One more line of a journal."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def sets() -> Iterator[tuple[str, Iterator[OnnxFile]]]:
    """What agreement is measured on."""
    yield "data/nets", (load(path) for path in sorted(NETS.glob("*.onnx")))
    yield "NAS-Bench-201", map(load, candidates("nasbench201", 1000, 24))
    for space in SPACES:
        yield space, map(load, candidates(space, 500, 24))


def rates(space: str, count: int, target: str | None) -> list[Row]:
    """Networks a second: never-seen from the first one on, the second half of them, and again."""
    drawn = candidates(space, count, 25)
    models = list({model.SerializeToString(): model for model in drawn}.values())
    lowering.quick_lowering.cache_clear()
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Predictor(target, store=f"sqlite:///{folder}/store.db", measure="never") as predictor,
    ):
        predictor.predict(NETS / "resnet18.onnx")  # loads what is loaded once
        half = len(models) // 2
        for label, part in (
            ("never-seen, first half", models[:half]),
            ("never-seen, second half", models[half:]),
            ("again", models[half:]),
        ):
            before = lowering.quick_lowering(1).tally
            started = time.perf_counter()
            for model in part:
                predictor.predict(model)
            took_s = time.perf_counter() - started
            after = lowering.quick_lowering(1).tally
            asked = sum(asdict(after).values()) - sum(asdict(before).values())
            asked -= after.foretold - before.foretold + after.disagreed - before.disagreed
            rows.append({
                "part": "rates", "set": space, "target": target or "this machine", "what": label,
                "networks": len(part), "per_s": round(len(part) / took_s, 1), "asked": asked,
            })  # fmt: skip
    return rows


def report(rows: Sequence[Row]) -> str:
    """The journal's newest rows as tables."""
    newest = {(r["part"], r.get("set"), r.get("target"), r.get("what")): r for r in rows}
    lines = [
        "| set | networks | foretold | asked: not covered | not confirmed | sampled "
        "| draft was wrong | answer differs | engine ms | quick ms |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in newest.values():
        if row["part"] == "agree":
            lines.append(
                f"| {row['set']} | {row['networks']} | {row['foretold']} | {row['uncovered']} "
                f"| {row['unconfirmed']} | {row['sampled']} | {row['disagreed']} "
                f"| **{row['differ']}** | {row['engine_ms']} | {row['quick_ms']} |"
            )
    lines += ["", "| set | target | what | networks | a second | engine asked |",
              "|---|---|---|--:|--:|--:|"]  # fmt: skip
    for row in newest.values():
        if row["part"] == "rates":
            lines.append(
                f"| {row['set']} | {row['target']} | {row['what']} | {row['networks']} "
                f"| {row['per_s']} | {row['asked']} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Quick lowering: agreement and rates.")
    parser.add_argument("part", choices=["agree", "rates", "report"])
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--set", action="append")
    parser.add_argument("--progress", type=Path)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    known = [name for name, _ in sets()] if options.part == "agree" else ["nasbench201", *SPACES]
    if unknown := sorted(set(options.set or ()).difference(known)):
        parser.error(f"there is no set {', '.join(unknown)}: there are {', '.join(known)}")
    until = time.monotonic() + 60 * options.minutes
    made: list[Row] = []
    if options.part == "agree":
        for name, files in sets():
            if not options.set or name in options.set:
                made.append(agree(name, files, options.progress, until))
                print(json.dumps(made[-1]), flush=True)
    elif options.part == "rates":
        for target in (KNOWN, None):
            for space in options.set or ("nasbench201", *SPACES):
                for row in rates(space, options.networks, target):
                    made.append(row)
                    print(json.dumps(row), flush=True)
    else:
        text = report(read_rows(options.journal))
        print(text)
        if options.write:
            head, mark, _ = PAGE.read_text().partition("<!-- tables -->\n")
            PAGE.write_text(head + mark + text)
        return
    for row in made:
        write_row(options.journal, row)


if __name__ == "__main__":
    main()
