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
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hybridlat import evaluate, importers
from hybridlat.evaluation.results import OWN, Row
from hybridlat.store import Store

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
DATA_SETS = ("v100_tensorrt_conv", "conv_cdecatapult", "conv_neusight")
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
    Judged("v100/tensorrt/fp16", "all"),
    Judged("v100/tensorrt/fp32", "all"),
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
            found = importers.load(name).read(data / name)
            store.add_signatures(found.signatures)
            print(f"{name}: {store.add(found.measurements):,} records", file=sys.stderr)
    return store.url


def judge(url: str, what: Judged) -> tuple[Row, ...]:
    """The rows of one target."""
    return evaluate.run(
        [what.target], store=url, where=what.where, baselines=BASELINES, track=False,
        packs_folder=Path("no packs"), tell=lambda line: print(line, file=sys.stderr),
    ).rows  # fmt: skip


def table(found: Sequence[tuple[Judged, tuple[Row, ...]]]) -> tuple[str, int]:
    """The Markdown table, and in how many lines a baseline is better."""
    head = ("target", "rows", "regime", "hybridlat", "MAPE", "within 10 %", "90 % interval holds",
            "interval width", *BASELINES, "best baseline's error / ours")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * 3 + "---:|" * (len(head) - 3)]
    lost = 0
    for what, rows in found:
        words = f"{what.target} ({what.words})" if what.words else what.target
        for regime in dict.fromkeys(row.regime for row in rows):
            score = {row.method: row.score for row in rows if row.regime == regime}
            own = score[OWN]
            errors = [score[name].rmspe for name in BASELINES]
            best = min(e for e in errors if e is not None)
            lost += best <= (own.rmspe or 0.0)
            cells = (
                words, f"{own.answered:,}", regime, f"**{own.rmspe:.1f}**", f"{own.mape:.1f}",
                f"{100 * (own.within_10 or 0):.0f} %", f"{100 * (own.coverage or 0):.1f} %",
                f"{100 * (own.width or 0):.0f} %",
                *("–" if e is None else f"{e:.1f}" for e in errors),
                f"{best / (own.rmspe or 1):.2f}",
            )  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
            words = ""
    return "\n".join(lines), lost


def page(body: str, lost: int, date: str) -> str:
    """The whole document."""
    verdict = (
        "hybridlat is better than every baseline on every GPU in every regime."
        if not lost
        else f"In {lost} of the lines a baseline is better than hybridlat."
    )
    return f"""# GPUs that others measured

`python experiments/09_replay_gpus.py`, {date}, on a two-core AMD EPYC VM; the records were measured
by others on the GPUs named (`--data` names where they come from, see the importers).

Per cell, RMSPE in percent unless said otherwise, mean of three seeds. `cells@N`: learned from N
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
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "experiments" / "replay_gpus.md")
    arguments = parser.parse_args()
    missing = [name for name in DATA_SETS if not (arguments.data / name).is_dir()]
    if missing:
        print(f"skipped: {arguments.data} lacks {', '.join(missing)}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        url = filled(arguments.data, Path(folder))
        chosen = [what for what in TARGETS if what.target.startswith(arguments.only)]
        found = [(what, judge(url, what)) for what in chosen]
    body, lost = table(found)
    text = page(body, lost, datetime.datetime.now(datetime.UTC).date().isoformat())
    arguments.out.write_text(text, encoding="utf-8")
    print(text)
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main())
