"""How good predictions are on GPUs that others measured: every regime, ours and every baseline.

    python experiments/09_replay_gpus.py [--data ../shared/data] [-o experiments/replay_gpus.md]

Imports the public convolution data into a store made for the purpose, judges each GPU as
`hybridlat evaluate --target T` does, and writes one table. Models learn from 300, from 3,000 and
from four fifths of a GPU's rows, drawn at random, and are tested on all the rest; every figure is
the mean of three seeds. `gated_cells@20%`: a model of four fifths of the rows, and the fifth of
the test rows that the gate asks for is played back as measured. Ends with 1 where a baseline is
better than hybridlat anywhere.
"""

from __future__ import annotations

import argparse
import datetime
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
from hybridlat.store import Store

DATA = ROOT.parent / "shared" / "data"
DATA_SETS = ("v100_tensorrt_conv", "conv_cdecatapult", "conv_neusight")
FIGURES = ("rmspe", "mape", "within_10", "coverage", "width", "cells")
Rows = list[dict[str, object]]
BASELINES = ("kernel_forest", "wave_model", "roofline", "flops_linear")


@dataclass(frozen=True)
class Judged:
    """One line of the table's first column: a target, and which of its rows."""

    target: str
    words: str = ""
    where: Mapping[str, str] = field(default_factory=dict)


SLICE = {"batch": "1", "groups": "1", "has_add": "0"}
TARGETS = (
    Judged("v100/tensorrt/fp16", "batch 1, regular, without the fused sum", SLICE),
    Judged("v100/tensorrt/fp32", "batch 1, regular, without the fused sum", SLICE),
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
    options = evaluate.EvaluationOptions(
        where=what.where, baselines=BASELINES, track=False, trials=seeds,
        packs_folder=Path("no packs"),
    )  # fmt: skip
    return evaluate.evaluate_targets(
        [what.target], options, store=url, on_message=lambda line: print(line, file=sys.stderr)
    ).to_json()


def known(keep: Path | None, what: Judged) -> Path | None:
    """The file that the rows of a target are kept in."""
    return None if keep is None else keep / f"{what.target.replace('/', '_')}.json"


def table(judged_rows: Sequence[tuple[Judged, int, Rows]]) -> tuple[str, int]:
    """The Markdown table, and in how many lines a baseline is better."""
    head = ("target", "seeds", "rows", "regime", "hybridlat", "MAPE", "within 10 %",
            "90 % interval holds", "interval width", *BASELINES,
            "best baseline's error / ours")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * 4 + "---:|" * (len(head) - 4)]
    lost = 0
    for what, seeds, rows in judged_rows:
        words = f"{what.target} ({what.words})" if what.words else what.target
        for regime in dict.fromkeys(str(row["regime"]) for row in rows):
            score = {str(row["method"]): row for row in rows if row["regime"] == regime}
            own = {name: float(score[OWN][name] or 0) for name in FIGURES}
            errors = [float(score[name]["rmspe"] or 0) for name in BASELINES]
            lost += min(errors) <= own["rmspe"]
            cells = (
                words, str(seeds), f"{own['cells']:,.0f}", regime, f"**{own['rmspe']:.1f}**",
                f"{own['mape']:.1f}", f"{100 * own['within_10']:.0f} %",
                f"{100 * own['coverage']:.1f} %", f"{100 * own['width']:.0f} %",
                *(f"{e:.1f}" for e in errors), f"{min(errors) / own['rmspe']:.2f}",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
            words = ""
    return "\n".join(lines), lost


def page(body: str, lost: int, left: Sequence[str], date: str) -> str:
    """The whole document."""
    verdict = (
        "hybridlat is better than every baseline on every GPU of the table in every regime."
        if not lost
        else f"In {lost} of the lines a baseline is better than hybridlat."
    )
    if left:
        verdict += f" Not judged in this run: {', '.join(left)}."
    return f"""# GPUs that others measured

`python experiments/09_replay_gpus.py`, {date}, on a two-core AMD EPYC VM; records were measured
by others on the GPUs named (`--data` names where they come from, see `public_data`).

Per cell, RMSPE in percent unless said otherwise, mean of the seeds. `cells@N`: learned from N
rows drawn at random, tested on the rest (`rows`). `gated_cells@20%`: learned from four fifths, and
the fifth of the test rows that the gate asks for is played back as measured, to every method.
`layerwise_measured`, `layerwise_learned` and `lookup_only` have no answer here: nothing was
measured unfused, and no test row is known; `model_only` is hybridlat's model itself.

{body}

{verdict}
"""


def main() -> int:
    """Judge every target and write the page; 1 where a baseline is better."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", default="", help="targets that begin with this")
    parser.add_argument(
        "--keep", type=Path, help="folder of finished targets: a run that was cut off goes on"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="random draws that figures are means of"
    )
    parser.add_argument(
        "--finished", action="store_true", help="write the page from what --keep has, judge no more"
    )
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "experiments" / "replay_gpus.md")
    arguments = parser.parse_args()
    missing = [name for name in DATA_SETS if not (arguments.data / name).is_dir()]
    if missing and not arguments.finished:
        print(f"skipped: {arguments.data} lacks {', '.join(missing)}")
        return 0
    chosen = [what for what in TARGETS if what.target.startswith(arguments.only)]
    result: list[tuple[Judged, int, Rows]] = []
    with tempfile.TemporaryDirectory() as folder:
        url = ""
        for what in chosen:
            kept = known(arguments.keep, what)
            if kept is not None and kept.is_file():
                before = json.loads(kept.read_text())
                result.append((what, before["seeds"], before["rows"]))
                continue
            if arguments.finished:
                continue
            url = url or filled(arguments.data, Path(folder))
            rows = judge(url, what, arguments.seeds)
            result.append((what, arguments.seeds, rows))
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps({"seeds": arguments.seeds, "rows": rows}))
    left = [what.target for what in chosen if all(what is not done for done, *_ in result)]
    body, lost = table(result)
    text = page(body, lost, left, datetime.datetime.now(datetime.UTC).date().isoformat())
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
