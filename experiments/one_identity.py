"""Is one network the same cells, whichever way it was exported?

    python experiments/one_identity.py FOLDER [--nets data/nets] [--only 'resnet*'] [--out FILE]
    python experiments/one_identity.py FOLDER --make [NETWORK ...]     (PyTorch, timm, torchvision)
    python experiments/one_identity.py FOLDER --draw 22 --seed 58      (others of these, at random)

``FOLDER`` holds a folder for every network, with its exports: ``dynamo-20-trained.onnx`` is the
reference, others are ``EXPORTER-OPSET-WEIGHTS[-WHAT].onnx`` (``legacy-17-fresh``,
``dynamo-20-trained-slim``); ``one_identity_exports.py`` makes them. More variants are derived in
memory from the reference: its weights inside the file as initializers, or as ``Constant`` nodes,
and converted to opset 21; and from ``legacy-17-trained``, converted to opset 20. Of a network of
``--nets`` (exports of earlier years) that has a folder, the file itself is one more variant; one
that has none is its own reference, and is converted, simplified and written with constants.

Every variant is split into cells by each target's rules. What counts is time: of the reference's
predicted time the part in cells that the variant has as well, and of the variant's the part that
the reference has, whichever is less. Under ONNX Runtime its own optimised graphs decide: pairs
whose graphs hold other operators or other sizes stand in a row of their own.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "data" / "nets")]

from experiments import one_identity_exports as exports
from hybridlat import Predictor, onnx_io
from hybridlat.engines import registry
from hybridlat.errors import HybridlatError
from hybridlat.schema.target import Target

REFERENCE = "dynamo-20-trained"
HERE = "this machine"
TARGETS = ("t4/tensorrt-10/fp16", "v100/torch-2.9/fp32", "rtx-4090/torch-compile-2.9/fp32", HERE)
SAME = 0.99
"""Of the time: two files with less than this in common are not the same network."""
Cells = dict[str, tuple[int, float, str]]
"""Of every signature: how often it is used, the latency of one use in us, and its kernels."""


@dataclass(frozen=True)
class Pair:
    """A variant beside its network's reference, under one target."""

    network: str
    variant: str
    target: str
    shared: float
    only_reference: str = ""
    only_variant: str = ""
    same_graph: bool = True
    """Whether the engine itself makes the same of both; known for ONNX Runtime alone."""
    not_made: str = ""
    """Why there is no such variant: what a converter or a simplifier says."""


def predictor_for(target: str) -> Predictor:
    """It measures nothing, and keeps nothing."""
    return Predictor(None if target == HERE else target, store="sqlite://", measure="never")


def cells_of(predictor: Predictor, model: onnx.ModelProto) -> Cells:
    """The cells of a model at batch 1; HybridlatError where it cannot be read."""
    cells = predictor.predict(model, shapes=exports.shapes_at_one(model)).cells
    return {c.signature: (c.uses, c.latency_us or 0.0, ", ".join(c.ops)) for c in cells}


def shared_time(one: Cells, other: Cells) -> float:
    """Of the time of ``one``, the part in uses of cells that ``other`` has as well."""
    total = sum(uses * us for uses, us, _ in one.values())
    both = (min(u, other[s][0]) * us for s, (u, us, _) in one.items() if s in other)
    return sum(both) / total if total else 1.0


def apart(one: Cells, other: Cells) -> str:
    """The kernels of three cells of ``one`` that ``other`` lacks, what takes longest first."""
    missing_us: defaultdict[str, float] = defaultdict(float)
    for signature, (uses, us, ops) in one.items():
        lacking = uses - (other[signature][0] if signature in other else 0)
        if lacking > 0:
            missing_us[ops] += lacking * us
    return "; ".join(sorted(missing_us, key=missing_us.__getitem__, reverse=True)[:3])


def engines_graph(model: onnx.ModelProto, target: Target) -> Counter[tuple[object, ...]]:
    """The operators of the engine's own optimised graph, with the sizes that they read and make."""
    read = onnx_io.load(model)
    network = registry.lower(read.network(None, exports.shapes_at_one(model)), target).network
    types = network.types

    def sizes(names: Sequence[str]) -> tuple[object, ...]:
        constants = [network.constants[n].type.shape for n in names if n in network.constants]
        return (*[types[name].shape for name in names if name in types], *constants)

    return Counter((n.op, sizes(n.inputs), sizes(n.outputs)) for n in network.nodes)


def pairs(folder: Path, nets: Path | None, only: str) -> Iterator[Pair]:
    """Every variant of every network beside its reference, under every target."""
    predictors = [predictor_for(target) for target in TARGETS]
    networks = {place.name: place for place in folder.iterdir() if place.is_dir()}
    names = {*networks, *(path.stem for path in nets.glob("*.onnx"))} if nets else {*networks}
    for name in sorted(filter(lambda name: fnmatch(name, only), names)):
        variants = exports.variants(networks.get(name), nets, name, REFERENCE)
        reference = variants.pop(REFERENCE, None)
        if reference is None:
            print(f"{name}: no {REFERENCE}.onnx", file=sys.stderr)
            continue
        model = reference()
        expected = [read_or_refused(predictor, model) for predictor in predictors]
        for variant, make in variants.items():
            try:
                made = make()
            except Exception as error:  # noqa: BLE001 - a converter's may be anything
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:120]
                yield Pair(name, variant, "", float("nan"), not_made=reason)
                continue
            for target, predictor, cells in zip(TARGETS, predictors, expected, strict=True):
                yield beside(name, variant, target, model, cells, predictor, made)


def read_or_refused(predictor: Predictor, model: onnx.ModelProto) -> Cells | str:
    """The cells, or why there are none."""
    try:
        return cells_of(predictor, model)
    except HybridlatError as error:
        return str(error)[:120]


def beside(
    name: str,
    variant: str,
    target: str,
    reference: onnx.ModelProto,
    expected: Cells | str,
    predictor: Predictor,
    model: onnx.ModelProto,
) -> Pair:
    """One variant beside the reference, whose cells are ``expected``."""
    cells = read_or_refused(predictor, model)
    if isinstance(expected, str) or isinstance(cells, str):
        texts = [text if isinstance(text, str) else "" for text in (expected, cells)]
        return Pair(name, variant, target, 0.0, *texts)
    shared = min(shared_time(expected, cells), shared_time(cells, expected))
    if shared >= SAME:
        return Pair(name, variant, target, shared)
    same = True
    if target == HERE:
        here = registry.resolve(None).target
        same = engines_graph(reference, here) == engines_graph(model, here)
    parts = apart(expected, cells), apart(cells, expected)
    return Pair(name, variant, target, shared, *parts, same)


def table(every: Sequence[Pair]) -> str:
    """By variant and target: mean and least of the time in common, and networks below 99 %."""
    found = [pair for pair in every if not pair.not_made]
    rows = defaultdict(list)
    for pair in found:
        rows[pair.variant, pair.target + ("" if pair.same_graph else ", another graph")].append(
            pair
        )
    lines = [
        "| variant | target | networks | same time, mean | least | below 99 % |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for (variant, target), each in sorted(rows.items()):
        shares = np.array([pair.shared for pair in each]) * 100
        lines.append(
            f"| {variant} | {target} | {len(each)} | {shares.mean():.1f} % | {shares.min():.1f} % "
            f"| {(shares < 100 * SAME).sum()} |"
        )
    for target in TARGETS:
        each = [pair.shared for pair in found if pair.target == target and pair.same_graph]
        if each:
            share, same = np.mean(each) * 100, np.mean(np.array(each) >= SAME) * 100
            lines.append(f"| all | {target} | {len(each)} | {share:.2f} % | | {100 - same:.1f} % |")
    lines += [
        "",
        "| network | variant | target | same time | reference only | variant only |",
        "|---|---|---|--:|---|---|",
    ]
    lines += [
        f"| {p.network} | {p.variant} | {p.target}{'' if p.same_graph else ', another graph'} "
        f"| {100 * p.shared:.1f} % | {p.only_reference} | {p.only_variant} |"
        for p in sorted(found, key=lambda p: (p.variant, p.target, p.shared))
        if p.shared < SAME
    ]
    not_made = {f"- {p.network}, {p.variant}: {p.not_made}" for p in every if p.not_made}
    return "\n".join([*lines, "", *sorted(not_made)])


def main() -> int:
    """Make the exports, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nets", type=Path)
    parser.add_argument("--only", default="*", help="names of networks, such as 'resnet*'")
    parser.add_argument("--out", type=Path, help="also write the tables into this file")
    parser.add_argument("--make", nargs="*", metavar="NETWORK", help="export, all without names")
    parser.add_argument("--draw", type=int, metavar="COUNT", help="export networks at random")
    parser.add_argument("--seed", type=int, default=0, help="of --draw")
    options = parser.parse_args()
    if options.draw:
        drawn = exports.drawn(options.draw, options.seed)
        return exports.make(options.folder, drawn, exports.DRAWN_VARIANTS)
    if options.make is not None:
        return exports.make(options.folder, options.make)
    started = time.monotonic()
    every = []
    for pair in pairs(options.folder, options.nets, options.only):
        every.append(pair)
        if not pair.shared >= SAME:
            print(pair, flush=True)
    text = table(every)
    print(text, f"\n{time.monotonic() - started:.0f} s", sep="\n")
    if options.out:
        options.out.write_text(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
