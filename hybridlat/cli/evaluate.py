"""``hybridlat evaluate``: how good predictions are, beside the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from hybridlat.cli import options
from hybridlat.cli.options import Documents
from hybridlat.cli.output import aside, console, on_message, print_json
from hybridlat.cli.param_types import TOLERANCE
from hybridlat.evaluation import evaluate as evaluation
from hybridlat.evaluation import leaderboard
from hybridlat.evaluation.metrics import ResultRow, TargetReport


@click.command()
@options.target_option("Evaluate this target; may be repeated. Every target with records unless "
                       "given.", "targets", multiple=True)  # fmt: skip
@options.nets("Evaluate only the networks named as the ONNX files of DIR.")
@click.option("--tolerance", "tolerances", type=TOLERANCE, multiple=True, default=("5%",),
              metavar="SHARE", show_default=True,
              help="Tolerance that the gate works towards; may be repeated.")  # fmt: skip
@click.option("--baseline", "baselines", multiple=True, metavar="NAME",
              help="Evaluate this baseline too; may be repeated. All unless given; `no` for "
                   "none.")  # fmt: skip
@click.option("--where", multiple=True, metavar="NAME=VALUE",
              help="Only cells with this size (batch=1, groups=1, has_add=0) or label; may be "
                   "repeated.")  # fmt: skip
@options.as_markdown
@options.device
@options.store
@options.seed
@options.jobs
@options.untracked
@options.as_json
def evaluate(
    targets: Sequence[str],
    nets: Path | None,
    tolerances: Sequence[float],
    baselines: Sequence[str],
    where: Sequence[str],
    markdown: str | None,
    store: str | None,
    seed: int,
    jobs: int,
    no_track: bool,
    as_json: bool,
) -> None:
    """Evaluate predictions on held-out networks, beside every baseline, from the records alone.

    Targets of which whole networks were measured are judged by network: `measured` (all cells
    known), `unseen` (none), `gated@T` (the gate asks for cells until the tolerance is met). Others
    are judged by cell: `cells@N` (learned from N of them). Where only whole networks are recorded,
    all targets of the engine's family are learned together: `unseen`, `unseen_family` (nor any
    variant of its architecture), `zero_shot` (nothing of the device).
    Everything is logged in MLflow.

    \b
    hybridlat evaluate --target v100/tensorrt/fp16 --where batch=1 --where groups=1
    hybridlat evaluate --baseline no --json
    """
    documents = Documents(as_json, markdown)
    chosen = evaluation.EvaluationOptions(
        tolerances=tolerances,
        baselines=None if not baselines else [b for b in baselines if b != "no"],
        networks=None if nets is None else [path.stem for path in sorted(nets.glob("*.onnx"))],
        where=_pairs(where),
        seed=seed,
        track=not no_track,
    )
    rows: list[ResultRow] = []

    def judged(new: Sequence[ResultRow], report: TargetReport | None) -> None:
        rows.extend(new)
        if not documents.fill_standard_output:
            _show(new, report)

    try:
        with options.at_once(jobs):
            evaluation.evaluate_targets(
                targets, chosen, store=store, on_message=on_message(as_json), on_evaluated=judged
            )
    finally:
        # What was judged before an interruption or a failure is not lost.
        if rows:
            documents.write_tables(lambda: leaderboard.markdown(rows) + "\n")
        if rows and as_json:
            print_json([row.to_json() for row in rows])


def _show(rows: Sequence[ResultRow], report: TargetReport | None) -> None:
    """One target's figures, for people."""
    out = console()
    leaderboard.show(rows, out)
    leaderboard.show_calibration(rows, out)
    if report is None:
        return
    for regime, share in report.device_time_share.items():
        out.print(
            f"{report.target} {regime}: {100 * share:.0f} % of the device time that "
            "measuring everything takes"
        )
    for note in report.notes:
        aside(note)


def _pairs(texts: Sequence[str]) -> Mapping[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, for example batch=1")
        pairs[name.strip()] = value.strip()
    return pairs
