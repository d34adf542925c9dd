"""Do the rules lower never-seen networks as ONNX Runtime does?

    python experiments/quick_lowering.py [--networks 1000] [--set NAME] [--write]

Asks the installed engine for every network of five sets and compares the rules' answer kernel by
kernel; it ends with 1 where one differs. ``--write`` enters the engine's version into the list of
those under which the rules are used, with how many networks of each set were compared. How quick
they are: ``tests/benchmarks/bench_predict.py``.
"""

import argparse
import datetime
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from onnx import ModelProto

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from experiments import nasbench201
from experiments.block_spaces import SPACES
from experiments.random_graphs import random_graph
from hybridlat.engines.ort import lowering
from hybridlat.engines.ort.lowering import CHECKED_VERSIONS, agree
from hybridlat.errors import HybridlatError
from hybridlat.onnx_io import OnnxFile, load
from hybridlat.schema.target import Target

NETS = ROOT / "data" / "nets"
HERE = Target("here", "onnxruntime", "fp32", 1)
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
    counted = Agreement()
    for file in files(name, count):
        counted.networks += 1
        try:
            network = file.network()
            predicted = lowering.predict(network)
            if predicted is None:
                counted.uncovered += 1
                continue
            answer = lowering.lower(network, HERE)
        except HybridlatError:
            counted.refused += 1
            continue
        counted.compared += 1
        if not agree(predicted, answer):
            counted.differ += 1
            print(f"DIFFERS: {file.name}", file=sys.stderr)
    return counted


def enter(version: str, compared: dict[str, Agreement]) -> None:
    """Add a version to the list of those under which the rules are used."""
    listed = json.loads(CHECKED_VERSIONS.read_text())
    name = ".".join(version.split(".")[:2])
    before = listed.get(name, {})
    networks = before["networks"] if before.get("version") == version else {}
    listed[name] = {
        "version": version,
        "block": lowering.engine_block(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "networks": networks | {name: one.compared for name, one in compared.items()},
    }
    CHECKED_VERSIONS.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    print("| set | networks | compared | differ | not covered | refused |")
    print("|---|--:|--:|--:|--:|--:|")
    compared: dict[str, Agreement] = {}
    for name in options.set or SETS:
        compared[name] = compare(name, options.networks)
        counts = " | ".join(map(str, asdict(compared[name]).values()))
        print(f"| {name} | {counts} |", flush=True)
    if any(one.differ for one in compared.values()):
        sys.exit(1)
    if options.write:
        enter(lowering.installed_version(), compared)


if __name__ == "__main__":
    main()
