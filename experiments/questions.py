"""How often answers to users' questions are right: explanations, ratios and ranks, steps of sweeps.

python experiments/questions.py played --seed 1 6  # 2 to 4 chose; a minute of CPU each
python experiments/questions.py ratios             # laws without each device: ten minutes
python experiments/questions.py sweep              # measures under ONNX Runtime
"""

import argparse
import math
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from experiments.whole_networks import load
from experiments.whole_networks_data import Row
from hybridlat import Predictor, onnx_io
from hybridlat.api.arguments import Item, Query
from hybridlat.api.explain_log import modes_of
from hybridlat.api.questions import image_shapes, sweep_of
from hybridlat.errors import HybridlatError
from hybridlat.evaluation.metrics import spearman
from hybridlat.model.conformal import ELSEWHERE, normal_quantile
from hybridlat.model.family import shipped as files
from hybridlat.onnx_io.file import shipped_networks
from hybridlat.report.table import Table, titled
from hybridlat.schema.target import Target

CACHE, SHARED = ROOT / ".cache/whole_networks", ROOT.parent / "shared/data"
DATA = [SHARED / name for name in ("whole_networks", "gpu_networks", "gpu_networks2")]
NETWORKS, NOISE = sorted(shipped_networks()), 0.05
COPIED = ((12.0, 20.0), (6.0, 40.0), (3.0, 100.0))  # GB/s and µs: pinned, half of that, pageable
TARGETS = (
    "t4/tensorrt-8.6/fp16", "l4/tensorrt-8.6/fp16", "a10/tensorrt-8.6/fp16",
    "a100/tensorrt-8.6/fp16", "rtx-3090/tensorrt-8.6/fp16", "rtx-4090/tensorrt-10.0/fp16",
    "rtx-2080-ti/tensorrt-8.6/int8", "orin-nano/tensorrt-8.6/fp16", "orin-agx/tensorrt-8.6/int8",
    "orin-nx/tensorrt-8.6/fp16", "xavier-nx/tensorrt-8.0/fp16", "jetson-nano/tensorrt-8.0/fp16",
)  # fmt: skip
FINER, BATCHES = ("fp32", "fp16", "int8"), (2, 4, 8, 16, 32)
SIZES = (96, 128, 160, 192, 256, 288, 320, 384, 448, 512, 640)
KINDS = ("precision", "power mode", "host copies", "batch", "busy", "size")
SWEPT: Any = {"width": (0.5, 0.625, 0.75, 1), "size": (128, 160, 192, 224), "batch": (1, 2, 4)}
CHOSEN = "v100", "t4", "rtx-3090", "rtx-2080", "orin-nano/", "orin-agx", "xavier-nx", "rtx-4090"
CPU, SAME, ROUNDS = "epyc-26-2/onnxruntime-1.31/fp32/1t", 0.02, 12


@dataclass(frozen=True)
class Case:
    """A number that a user brings, and the ``kind`` of circumstance that it came of."""

    kind: str
    network: str
    target: str
    batch: int
    measured_us: float
    source: str
    estimate: Any = None
    times: float = 1.0
    added_us: float = 0.0
    copied: float = 0.0
    shapes: Sequence[tuple[int, ...]] = ()

    def is_question(self) -> bool:
        """Whether the number is out of the interval, so that somebody asks."""
        one = estimate_of(self.network, self.target, batch=self.batch)
        low_us, high_us = (one and one.interval_us) or (0.0, math.inf)
        return not low_us <= self.measured_us <= high_us


def estimate_of(network: str, target: str, **how: Any) -> Any:
    """None for a file that is fixed to its sizes."""
    with suppress(HybridlatError), Predictor(target, measure="never") as predictor:
        return predictor.predict(network, **how)
    return None


class Player:
    """Draws cases by a seed, of published rows and of targets."""

    def __init__(self, seed: int, rows: Sequence[Row]) -> None:
        self.random = random.Random(seed)
        self.pairs: dict[str, dict[str, list[tuple[Row, Row]]]] = {kind: {} for kind in KINDS}
        alike: dict[tuple[str, ...], list[Row]] = {}
        for row in (one for one in rows if not one.suspect):
            table = f"{row.timed} {row.folder} {row.layout} {row.task.graphs}"
            name, copies, batch, t = row.onnx, str(row.task.copies), str(row.batch), row.target
            stem, others = re.sub(r"__\d+(x\d+)?$", "", name), table.replace(t.precision, "*")
            for key in (
                ("host copies", table, name, batch), ("batch", table, copies, name),
                ("size", table, copies, batch, stem), ("precision", others, copies, name, batch),
            ):  # fmt: skip
                alike.setdefault(key, []).append(row)
        for (kind, table, *_), same in alike.items():
            for own, other in permutations(same, 2):
                one, two = (FINER.index(row.target.precision) for row in (own, other))
                is_copied = other.task.copies and not own.task.copies
                if kind == "size" or one > two or own.batch < other.batch or is_copied:
                    self.pairs[kind].setdefault(table, []).append((own, other))

    def cases(self) -> Iterator[Case]:
        """Two of each kind, the first a published one where there are any; two of nothing."""
        for kind in KINDS:
            for draw in (self.published if self.pairs[kind] else self.planted, self.planted):
                while (case := draw(kind)) is None or not case.is_question():
                    pass
                yield case
        yield from filter(None, (self.planted("nothing", far) for far in (1 / 60, 300)))

    def published(self, kind: str) -> Case:
        """A row of a table as it is expected, and the number of one in the circumstance."""
        table = self.random.choice(sorted(self.pairs[kind]))
        own, other = self.random.choice(self.pairs[kind][table])
        file = min(CACHE.glob(f"*/nets/{own.onnx}.onnx"))
        what = f"published {other.onnx} {other.target.precision} {other.batch}"
        return Case(kind, str(file), str(own.timed), own.batch, other.latency_us, what)

    def planted(self, kind: str, times: float = 1.0) -> Case | None:
        """A network of this package on a target, in a circumstance as the predictor has it."""
        own = target = Target.parse(self.random.choice(TARGETS))
        network, choice, how = self.random.choice(NETWORKS), self.random.choice, dict[str, Any]()
        added_us, opened = 0.0, Item(network).opened(Query())
        if kind == "precision":
            target = replace(own, precision=choice(FINER[: FINER.index(own.precision)]))
        elif kind == "power mode":
            modes = [one for one in modes_of(own) if one != own]
            if not modes:
                return None
            target = choice(sorted(modes, key=lambda one: one.device))
        elif kind == "batch":
            how = {"batch": choice(BATCHES)}
        elif kind == "busy":
            times = math.exp(self.random.uniform(math.log(1.3), math.log(4.0)))
        elif kind == "clock":
            times = self.random.uniform(1.15, 1.6)
        elif kind == "size":
            with suppress(HybridlatError):  # sides that would not be whole are drawn again
                how = {"shapes": image_shapes(opened, choice(SIZES))}
            if not how:
                return None
        elif kind == "host copies":
            rate, start_us = choice(COPIED)
            added_us = opened.network().copied_bytes / rate / 1e3 + start_us
        if (one := estimate_of(network, str(target), **how)) is None or not one.latency_us:
            return None
        us = (one.latency_us * times + added_us) * self.random.uniform(1 - NOISE, 1 + NOISE)
        what = f"{target.device} {target.precision} {how or ''} {times:.2f} {added_us:.0f} µs"
        run = Item(network).opened(Query(**how)).network()
        shapes = [run.types[name].shape for name in run.inputs]
        more = times, added_us, run.copied_bytes, shapes
        return Case(kind, network, str(own), 1, us, what, one, *more)


def played(seed: int) -> None:
    """The cases of a seed, each beside what explains it."""
    lines, right = list[list[str]](), Counter[str]()
    for case in Player(seed, load("tensorrt", DATA, CACHE, "", print).rows).cases():
        with Predictor(case.target, measure="never") as predictor:
            answer = predictor.explain(case.network, case.measured_us, batch=case.batch)
        kinds = [one.kind for one in answer.suspects]
        kinds = ["nothing", *kinds] if answer.verdict == "not explained" else kinds
        rank = kinds.index(case.kind) + 1 if case.kind in kinds else 0
        right[f"first, {case.kind}"] += rank == 1
        right["among two"] += rank in (1, 2)
        shown = ", ".join(f"{one.kind} {one.probability:.0%}" for one in answer.suspects[:3])
        times = f"{case.measured_us / (answer.estimate.latency_us or 1):.2f}"
        of = f"{Path(case.network).stem} on {case.target}, batch {case.batch}"
        lines.append([case.kind, of, case.source, times, str(rank), shown])
    titles = titled("planted", "network", "number", "times", "place", "likeliest")
    print(Table(titles, lines).markdown(), "\n\nseed", seed, dict(right))


def ratios(_seed: int) -> None:
    """Ranks, the order of pairs and the intervals of their ratios."""
    figures = dict[str, list[float]]()
    world = load("tensorrt", DATA, CACHE, "", print)
    calibration: Any = files.load(ROOT / "models/family_tensorrt").calibration
    large = {n: t for n, t in world.tables.items() if len({world.rows[i].onnx for i in t}) >= 10}
    for label, every in large.items():
        batch = Counter(world.rows[i].batch for i in every).most_common(1)[0][0]
        places = [i for i in every if world.rows[i].batch == batch]
        if len({world.rows[i].onnx for i in places}) < 10:
            continue
        model: Any = world.regimes.without(world.rows[every[0]].target.device)
        answers, rows = world.predict(model, places), [world.observations[i] for i in places]
        pairs = np.triu_indices(len(places), 1)
        alone = [calibration.half_width(one.log_sd, ELSEWHERE) for one in answers]
        half = normal_quantile(0.9) * model.ratio_log_sds(rows, answers)
        half = np.minimum(half, np.hypot.outer(alone, alone))[pairs]
        both = [one.median_us for one in answers], [one.latency_us for one in rows]
        said, real = (np.subtract.outer(us, us)[pairs] for us in np.log(both))
        sure, ordered, held = abs(said) > half, said * real > 0, abs(said - real) <= half
        shares = [100 * float(x.mean()) for x in (ordered, sure, ordered[sure], held)]
        figures[label] = [float(len(places)), spearman(*both) or 0.0, *shares]
    chosen = {label for label in figures if label.startswith(CHOSEN)}
    for name, some in ("chosen on *", chosen), ("others", figures.keys() - chosen):
        if some:
            figures[f"mean, {name}"] = list(np.mean([figures[one] for one in some], axis=0))
    lines = [
        [name + " *" * (name in chosen), f"{n:.0f}", f"{rank:.3f}", *(f"{x:.0f}" for x in each)]
        for name, (n, rank, *each) in figures.items()
    ]
    titles = ("networks", "Spearman", "ordered, %", "told apart, %", "right, %", "held, %")
    print(Table([*titled("table"), *titled(*titles, right=True)], lines).markdown())


def sweep(seed: int) -> None:
    """Steps measured to go up or down by more than 2 %, and how many are predicted so."""
    steps, right = Counter[str](), Counter[str]()
    with Predictor(CPU, measure="never") as predictor:
        for name in random.Random(seed).sample(NETWORKS, 4):
            for over, values in SWEPT.items():
                with suppress(HybridlatError):  # a file that is fixed to its sizes
                    curve = predictor.sweep(name, over, values).estimates
                    us: Any = sweep_of(measured_us, name, None, over, list(curve)).estimates
                    both = [*us.values()], [curve[value].latency_us for value in us]
                    real, said = np.diff(np.log(both))
                    steps[over] += int((abs(real) > SAME).sum())
                    right[over] += int((real * said > 0)[abs(real) > SAME].sum())
    print("seed", seed, {over: f"{right[over]} of {steps[over]}" for over in SWEPT})


def measured_us(source: Any, batch: int | None = None, shapes: Any = None, **_: Any) -> Any:
    """The least time of the CPU of one run: other programs take no part in it."""
    import onnxruntime

    made = onnx_io.to_onnx(Item(source).opened(Query(batch, shapes)).network(), seed=0)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made, options, providers=["CPUExecutionProvider"])
    one, least = session.get_inputs()[0], math.inf
    for _round in range(ROUNDS):
        image, began = np.ones(one.shape, np.float32), time.process_time()
        session.run(None, {one.name: image})
        least = min(least, time.process_time() - began)
    return 1e6 * least


def main() -> None:
    """One part, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("played", "ratios", "sweep"))
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    for seed in (given := parser.parse_args()).seed:
        {"played": played, "ratios": ratios, "sweep": sweep}[given.part](seed)


if __name__ == "__main__":
    main()
