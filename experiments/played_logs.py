"""How often played logs of trtexec tell what happened to a run.

python experiments/played_logs.py --seed 41 42  # two minutes of CPU each
"""

import argparse
import math
import random
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from experiments.questions import COPIED, KINDS, Case, Player
from hybridlat import Predictor
from hybridlat.errors import HybridlatError
from hybridlat.report.table import Table, titled
from hybridlat.schema.target import Target

RUNS = range(400)


def files_of(case: Case, draw: random.Random) -> tuple[str, str]:
    """The summary of a played log, and what stands above it in a whole log.

    Runs of a quiet machine vary by 0.2 to 5 %, one in a hundred is held up. A program beside them
    holds each up by its own time, in one case of four all by the same.
    """
    sd, one = math.exp(draw.uniform(math.log(0.002), math.log(0.05))), case.estimate
    us = case.measured_us - case.added_us
    times = [
        us * math.exp(draw.gauss(0, sd)) * (1.3 if draw.random() < 0.01 else 1.0) for _ in RUNS
    ]
    if case.kind == "busy" and draw.random() < 0.75:
        shape = draw.choice((0.7, 1.0, 2.0, 4.0))
        held = [draw.gammavariate(shape, 1.0) for _ in RUNS]
        middle = sorted(held)[len(held) // 2]
        times = [
            t * (1 + (case.times - 1) * h / middle) / case.times
            for t, h in zip(times, held, strict=True)
        ]
    times.sort()
    rate, start_us = draw.choice(COPIED)
    copies_us = case.added_us or case.copied / rate / 1e3 + start_us
    enqueue_us = draw.uniform(2, 6) * sum(len(cell.ops) * cell.uses for cell in one.cells)
    lines = []
    for name, each in {
        "Latency": [t + copies_us for t in times],
        "Enqueue Time": [min(enqueue_us, us / 2)] * len(times),
        "GPU Compute Time": times,
    }.items():
        low, middle, high, most = (each[int(share * 399)] / 1e3 for share in (0, 0.5, 0.9, 1))
        text = f"min = {low} ms, max = {most} ms, mean = {middle} ms, median = {middle} ms"
        lines.append(f"[I] {name}: {text}, percentile(90%) = {high} ms")
    target, asked = Target.parse(one.target), Target.parse(case.target)
    major, minor = asked.version.split(".")
    tag = f"v{major}{'0' if major == '10' else ''}{minor}00"[: 7 if major == "10" else 5]
    option = "" if target.precision == "fp32" else f"--{target.precision}"
    above = [f"&&&& RUNNING TensorRT.trtexec [TensorRT {tag}] # trtexec --onnx=x.onnx {option}"]
    for shape in case.shapes:
        dims = "x".join(map(str, shape))
        above.append(f"[I] Created input binding for input with dimensions {dims}")
    return "\n".join(lines), "\n".join(above)


def logs(seed: int, folder: Path) -> None:
    """Where the planted circumstance comes by the number, by a summary and by a whole log.

    The logs are written to ``folder``.
    """
    player, draw, right = Player(seed, []), random.Random(seed), Counter[str]()
    predict, kept = Predictor.predict, dict[str, Any]()

    def once(self: Predictor, source: Any, **how: Any) -> Any:
        name = getattr(source, "name", source)  # of a file that is loaded
        key = f"{self.target} {self.sessions.first.data.is_replayed} {name} {how}"
        if key not in kept:
            with suppress(HybridlatError):
                kept[key] = predict(self, source, **how)
        return kept[key] if key in kept else predict(self, source, **how)

    Predictor.predict = once  # type: ignore[method-assign,assignment]
    lines, file, whole = list[list[str]](), folder / "played.log", folder / "x.log"
    for kind in [*KINDS, "clock"] * 2:
        while (case := player.planted(kind)) is None or not case.is_question():
            pass
        summary, above = files_of(case, draw)
        file.write_text(summary)
        whole.write_text(f"{above}\n{summary}")
        row = [kind, f"{Path(case.network).stem} on {case.target}", case.source]
        ways: Any = {"number": case.measured_us, "summary": file, "whole log": whole}
        for way, measured in ways.items():
            with Predictor(case.target, measure="never") as predictor:
                answer = predictor.explain(case.network, measured)
            kinds = list(dict.fromkeys([answer.cause.kind, *(one.kind for one in answer.suspects)]))
            rank, tied = kinds.index(kind) + 1 if kind in kinds else 0, len(answer.tied)
            named = {answer.cause.kind, *(one.kind for one in answer.tied[1:])}
            right[f"{way}: first"] += rank == 1
            right[f"{way}: named"] += kind in named
            right[f"{way}: names"] += tied
            right[f"{way}: one is named"] += tied == 1
            right[f"{way}: one is named, rightly"] += tied == 1 and kind in named
            row.append(f"{rank} ({kinds[0]} {answer.suspects[0].probability:.0%})")
        lines.append(row)
    titles = titled("planted", "network", "circumstance", "number", "summary", "whole log")
    print(Table(titles, lines).markdown(), "\n\nseed", seed, dict(right), flush=True)


def main() -> None:
    """Each seed in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[41])
    with tempfile.TemporaryDirectory() as folder:
        for seed in parser.parse_args().seed:
            logs(seed, Path(folder))


if __name__ == "__main__":
    main()
