"""Do the rules lower never-seen networks as ONNX Runtime does, and how quickly?

    python experiments/quick_lowering.py agree [--networks 1000] [--set NAME] [--write]
    python experiments/quick_lowering.py rates [--networks 1000] [--set NAME]

``agree`` asks the installed engine for every network of five sets and compares the rules' answer
kernel by kernel; it ends with 1 where one differs. ``--write`` enters the engine's version into the
list of those under which the rules are used, with how many networks of each set were compared.
``rates`` predicts networks given as ModelProtos with a Predictor that measures nothing, in
networks per second of CPU. A million requests: ``bench_predict.py``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from onnx import ModelProto

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201
from experiments.block_spaces import SPACES
from experiments.random_graphs import random_graph
from hybridlat import Predictor
from hybridlat.engines import onnxruntime as lowering
from hybridlat.engines.onnxruntime import CHECKED_VERSIONS, agree
from hybridlat.errors import HybridlatError
from hybridlat.onnx_io import OnnxFile, load
from hybridlat.schema.target import Target

NETS = ROOT / "data" / "nets"
HERE = Target("here", "onnxruntime", "fp32", 1)
KNOWN = "epyc-26-2/onnxruntime-1.31/fp32/1t"
RANDOM = "random graphs"
SETS = ("data/nets", "NAS-Bench-201", *SPACES, RANDOM)


@dataclass
class Agreement:
    """Networks of a set: compared, differing, left to the engine by the rules, refused by it."""

    networks: int = 0
    compared: int = 0
    differ: int = 0
    uncovered: int = 0
    refused: int = 0


def candidates(name: str, count: int, seed: int) -> Iterator[ModelProto]:
    """Different networks of a set, drawn at random."""
    rng = random.Random(seed)
    if name == "NAS-Bench-201":
        live = (a for a in nasbench201.sample(2 * count, seed) if nasbench201.live_edges(a))
        yield from (nasbench201.build(arch) for arch, _ in zip(live, range(count), strict=False))
    elif name == RANDOM:
        yield from map(random_graph, range(seed, seed + count))
    else:
        for architecture in sorted({SPACES[name].sample(rng) for _ in range(count)}):
            yield SPACES[name].build(architecture)


def files(name: str, count: int) -> Iterator[OnnxFile]:
    """The networks of a set, all of those in the repository."""
    if name == "data/nets":
        return map(load, sorted(NETS.glob("*.onnx")))
    return map(load, candidates(name, count, 24))


def compare(name: str, count: int) -> Agreement:
    """What the rules and the installed engine make of every network of a set."""
    found = Agreement()
    for file in files(name, count):
        found.networks += 1
        try:
            network = file.network()
            predicted = lowering.predict(network)
            if predicted is None:
                found.uncovered += 1
                continue
            answer = lowering.lower(network, HERE)
        except HybridlatError:
            found.refused += 1
            continue
        found.compared += 1
        if not agree(predicted, answer):
            found.differ += 1
            print(f"DIFFERS: {file.name}", file=sys.stderr)
    return found


def enter(version: str, found: dict[str, Agreement]) -> None:
    """Add a version to the list of those under which the rules are used."""
    listed = json.loads(CHECKED_VERSIONS.read_text())
    name = ".".join(version.split(".")[:2])
    before = listed.get(name, {})
    networks = before["networks"] if before.get("version") == version else {}
    listed[name] = {
        "version": version,
        "block": lowering.engine_block(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "networks": networks | {name: one.compared for name, one in found.items()},
    }
    CHECKED_VERSIONS.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")


def rates(name: str, count: int, target: str | None) -> Iterator[tuple[str, int, float]]:
    """Never-seen networks, the second half of them and those once more: what, how many, CPU ms."""
    drawn = candidates(name, count, 25)
    models = list({model.SerializeToString(): model for model in drawn}.values())
    half = len(models) // 2
    parts = {"first half": models[:half], "second half": models[half:], "again": models[half:]}
    with (
        tempfile.TemporaryDirectory() as folder,
        Predictor(target, store=f"sqlite:///{folder}/store.db", measure="never") as predictor,
    ):
        predictor.predict(NETS / "resnet18.onnx")  # loads what is loaded once
        for label, part in parts.items():
            started = time.process_time()
            for model in part:
                predictor.predict(model)
            yield label, len(part), 1e3 * (time.process_time() - started) / len(part)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Lowering by rules: agreement and rates.")
    parser.add_argument("part", choices=["agree", "rates"])
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.part == "agree":
        print("| set | networks | compared | differ | not covered | refused |")
        print("|---|--:|--:|--:|--:|--:|")
        found: dict[str, Agreement] = {}
        for name in options.set or SETS:
            found[name] = compare(name, options.networks)
            counts = " | ".join(map(str, asdict(found[name]).values()))
            print(f"| {name} | {counts} |", flush=True)
        if any(one.differ for one in found.values()):
            sys.exit(1)
        if options.write:
            enter(lowering.installed_version(), found)
        return
    print("| set | target | what | networks | CPU ms each |")
    print("|---|---|---|--:|--:|")
    for target in (KNOWN, None):
        for name in options.set or ("NAS-Bench-201", *SPACES):
            for label, count, cpu_ms in rates(name, options.networks, target):
                where = target or "this machine"
                print(f"| {name} | {where} | {label} | {count} | {cpu_ms:.2f} |", flush=True)


if __name__ == "__main__":
    main()
