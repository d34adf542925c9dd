"""How good predictions are on GPUs that others measured: every regime, ours and every baseline.

    python experiments/replay_gpus.py [--data ../shared/data] [--keep DIR]

Imports the public convolution data into a store made for the purpose, judges each GPU as
`hybridlat evaluate --target T` does, and prints one table. Models learn from 300, from 3,000 and
from four fifths of a GPU's rows, drawn at random, and are tested on all the rest; every figure is
the mean of three seeds. `gated_cells@20%`: a model of four fifths of the rows, and the fifth of
the test rows that the gate asks for is played back as measured. Ends with 1 where a baseline is
better than hybridlat anywhere.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from experiments.public_data import READERS
from hybridlat.evaluation import evaluate
from hybridlat.evaluation.metrics import OWN
from hybridlat.model.geometry import geometry
from hybridlat.schema.target import Target
from hybridlat.store import Store

DATA = ROOT.parent / "shared" / "data"
DATA_SETS = ("v100_tensorrt_conv", "conv_cdecatapult", "conv_neusight")
FIGURES = ("rmspe", "coverage", "cells")
Rows = list[dict[str, object]]
SHOWN = ("kernel_forest", "wave_model", "roofline")
BASELINES = (*SHOWN, "flops_linear")


@dataclass(frozen=True)
class Judged:
    """One line of the table's first column: a target, and which of its rows."""

    target: str
    where: Mapping[str, float] = field(default_factory=dict)


# Regular convolutions of batch 1, without the fused sum.
SLICE = {"batch": 1.0, "groups": 1.0, "has_add": 0.0}
TARGETS = (
    Judged("v100/tensorrt/fp16", SLICE),
    Judged("v100/tensorrt/fp32", SLICE),
    *(
        Judged(f"{device}/tensorflow-1/fp32")
        for device in ("k40", "k80", "m60", "gtx-1080-ti", "p100")
    ),
    *(Judged(f"{device}/pytorch-2.1/fp32") for device in ("p100", "p4", "t4")),
)


def filled(data: Path, folder: Path) -> str:
    """URL of a store with the records of the data sets."""
    with Store(folder / "replay.db") as store:
        for name in DATA_SETS:
            imported = READERS[name](data / name)
            store.add_signatures(imported.signatures)
            print(f"{name}: {store.add(imported.measurements):,} records", file=sys.stderr)
    return store.url


def judge(url: str, what: Judged, seeds: int) -> Rows:
    """The rows of one target, as ``evaluate --json`` prints them."""
    options = evaluate.EvaluationOptions(baselines=BASELINES, track=False, trials=seeds)
    target = Target.parse(what.target)
    with tempfile.TemporaryDirectory() as folder:
        with Store(url) as everything, Store(f"{folder}/chosen.db") as chosen:
            records = list(everything.measurements(target))
            texts = everything.signature_texts([record.signature for record in records])
            kept = {hash_: text for hash_, text in texts.items() if is_in(text, what.where)}
            chosen.add_signatures(kept)
            chosen.add(record for record in records if record.signature in kept)
        return evaluate.evaluate_targets(
            [target], options, store=f"{folder}/chosen.db",
            on_message=lambda line: print(line, file=sys.stderr),
        ).to_json()  # fmt: skip


def is_in(text: str, where: Mapping[str, float]) -> bool:
    """Whether the first kernel of a cell has these sizes."""
    sizes = geometry([text])
    return all(float(sizes.column(name)[0]) == size for name, size in where.items())


def table(judged_rows: Sequence[tuple[Judged, Rows]]) -> tuple[str, int]:
    """The Markdown table, and in how many lines a baseline is better."""
    head = ("target", "rows", "regime", "hybridlat", "90 % interval holds", *SHOWN)
    lines = [f"| {' | '.join(head)} |", "|---|---|---|" + "---:|" * (len(head) - 3)]
    lost = 0
    for what, rows in judged_rows:
        target = what.target
        for regime in dict.fromkeys(str(row["regime"]) for row in rows):
            score = {str(row["method"]): row for row in rows if row["regime"] == regime}
            own = {name: float(score[OWN][name] or 0) for name in FIGURES}
            errors = {name: float(score[name]["rmspe"] or 0) for name in BASELINES}
            lost += min(errors.values()) <= own["rmspe"]
            cells = (
                target, f"{own['cells']:,.0f}", regime, f"**{own['rmspe']:.1f}**",
                f"{100 * own['coverage']:.1f} %", *(f"{errors[name]:.1f}" for name in SHOWN),
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
            target = ""
    return "\n".join(lines), lost


def main() -> int:
    """Judge every target; 1 where a baseline is better."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", default="", help="targets that begin with this")
    parser.add_argument(
        "--keep", type=Path, help="folder of finished targets: a run that was cut off goes on"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="random draws that figures are means of"
    )
    arguments = parser.parse_args()
    missing = [name for name in DATA_SETS if not (arguments.data / name).is_dir()]
    if missing:
        print(f"skipped: {arguments.data} lacks {', '.join(missing)}")
        return 0
    chosen = [what for what in TARGETS if what.target.startswith(arguments.only)]
    result: list[tuple[Judged, Rows]] = []
    with tempfile.TemporaryDirectory() as folder:
        url = ""
        for what in chosen:
            name = f"{what.target.replace('/', '_')}.json"
            kept = arguments.keep / name if arguments.keep else None
            if kept is not None and kept.is_file():
                before = json.loads(kept.read_text())
                result.append((what, before["rows"]))
                continue
            url = url or filled(arguments.data, Path(folder))
            rows = judge(url, what, arguments.seeds)
            result.append((what, rows))
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps({"seeds": arguments.seeds, "rows": rows}))
    body, lost = table(result)
    print(body)
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
