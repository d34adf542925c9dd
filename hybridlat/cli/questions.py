"""``hybridlat recommend``, ``explain`` and ``sweep``: what people ask besides the latency."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

import hybridlat
from hybridlat.api.explain_log import require_gpu
from hybridlat.cli.options import command
from hybridlat.cli.output import OVER, UNTRUSTED, ProgressShown, Run, aside, console, print_json
from hybridlat.report.explain import layers_of, read_layers
from hybridlat.report.prediction_table import choice_table, csv_of, order_note, record_of
from hybridlat.report.units import latency_text, percent_text

_ROWS = 20  # without --all
_WIDE = 150  # characters of a terminal that has room for all columns
_NOT_LISTED = ("cells", "removed", "warnings", "remarks")  # in the JSON of hundreds of targets


@command(
    "network",
    click.argument("pattern", default="*"),
    "precision store batch shape fps max_latency confidence json html csv every_row",
)
def recommend(run: Run) -> int:
    """Rank the GPUs that keep a budget for NET.onnx: every device and mode with a data sheet.

    PATTERN is of devices in any wording, under TensorRT, or of targets. Those that keep the budget
    come first, each by the power of the board, then by its memory.

    \b
    hybridlat recommend net.onnx jetson --fps 30
    hybridlat recommend net.onnx 'orin-*' --max-latency 20ms --precision fp16
    hybridlat recommend net.onnx '*/torch/amp' --fps 200 --batch 8 --csv gpus.csv

    Exit codes: 0 some keep it, 1 none does, 2 bad input, 3 some may.
    """
    if run.fps is not None and run.budget is not None:
        raise click.UsageError("Give one budget: --fps or --max-latency.")
    how = run.among("precision store batch shapes confidence")
    argument, limit = run.budget or ("fps", run.fps)
    with ProgressShown().at(f"looking at what fits {run.pattern!r}", run.on_message):
        estimates = hybridlat.recommend(run.network, run.pattern, **how, **{argument: limit})
    kept = [one for one in estimates if one.verdict != "over"]
    shown = estimates if run.every_row else (kept or estimates)[:_ROWS]
    verdicts = Counter(one.verdict for one in estimates)  # None without a budget
    within, unsure, over = (verdicts[name] for name in ("within", "unsure", "over"))
    run.write_page(shown, choice=choice_table(shown, wide=True))  # before a reader may go away
    run.write_tables(csv=lambda: csv_of(map(record_of, estimates)))
    if run.as_json:
        bodies = [one.to_json() for one in estimates]
        print_json([{k: v for k, v in body.items() if k not in _NOT_LISTED} for body in bodies])
    elif not run.prints_document:
        out = console()
        choice_table(shown, wide=out.width >= _WIDE).print(out)
        if left := len(estimates) - len(shown):
            out.print(f"{left} more rows (--all)")
        if within or unsure or over:
            most = latency_text(estimates[0].max_latency_us)
            out.print(f"{within} within {most}, {unsure} unsure, {over} over")
        if len({one.basis for one in shown}) > 1:
            out.print("Rows that rest on different things do not compare closely.")
        if note := order_note(shown):
            out.print(note)
    if over and not within and not unsure:
        return OVER
    return UNTRUSTED if unsure and not within else 0


@command("network target device threads store measured layers known batch shape json")
def explain(run: Run) -> int:
    """Say whether a measured latency is normal, and which circumstance explains it best.

    Suspects are predicted as the network is: another precision, power mode, batch, size or number
    of threads, copies, launches, a lower clock, other programs. Each comes with what tells it from
    the others.

    \b
    hybridlat explain resnet50 --target orin-nano/tensorrt/fp16 --measured 10ms
    hybridlat explain a.onnx --target l4/tensorrt/fp16 --measured run.log --layers profile.json

    Exit codes: 0 normal or explained, 2 bad input, 3 nothing explains it.
    """
    sizes = run.among("batch shapes")
    layers = None if run.layers is None else read_layers(run.layers)
    with run.opened(run.target, measure="never") as (predictor, progress):
        if layers is not None:
            require_gpu(run.layers, predictor.target)
        progress.at(f"explaining {run.network}", run.on_message)
        predictor.give(run.latencies, **sizes)
        measured = run.measured
        if isinstance(measured, tuple):  # images a second
            _, fps = measured
            measured = predictor.predict(run.network, **sizes).batch * 1e6 / fps
            shown = f"{fps:g} fps are {latency_text(measured)} a batch"
            aside(f"{shown}; frames of a whole program hold its own work too")
        explanation = predictor.explain(run.network, measured, **sizes)
    profile = layers and layers_of(explanation.estimate, layers)
    body, lines = explanation.to_json(), str(explanation).split("\n")
    if profile:
        known_us, other_us = (sum(us.values()) for us in (profile.cells_us, profile.others))
        if other_us > known_us:
            share = percent_text(other_us / (known_us + other_us), 0)
            whose = f"{run.layers} is of no operator of {run.network}"
            aside(f"{share} of {whose}: is it of this network?")
        body["layers"] = profile.to_json()
    run.show(body, *lines, *(["", profile.table()] if profile else []))
    return UNTRUSTED if explanation.verdict == "not explained" else 0


@command(
    "network target device threads store size width batch_curve shape tolerance",
    "confidence measure json html csv",
)
def sweep(run: Run) -> int:
    """Show one network's latency over batches, input sizes or widths, its flat parts and steps.

    flat: the lower value saves less than 2 %. step: more is paid than along the whole curve.
    reverse: more is faster. knee: from here, throughput grows little. The next value that saves
    stands beside those whose neighbour does not.

    \b
    hybridlat sweep resnet18 --target orin-nano/tensorrt/fp16 --width 0.25:1:0.125
    hybridlat sweep a.onnx --target l4/tensorrt/fp16 --size 320:640:64 --html sizes.html
    hybridlat sweep a.onnx --target l4/tensorrt/fp16 --batch 1,2,4,8 --csv batches.csv

    Exit codes: 0 done, 2 bad input, 3 a value cannot be had, or is not to be trusted.
    """
    batch = run.batch or ()
    batches = batch if len(batch) > 1 else ()  # a single one is that of another curve
    axes: dict[Any, Any] = {"size": run.size, "width": run.width, "batch": batches}
    curves = [(over, values) for over, values in axes.items() if values]
    if len(curves) != 1:
        raise click.UsageError("Give one of --size, --width and --batch with two values or more.")
    ((over, values),) = curves
    fixed = int(batch[0]) if batch and over != "batch" else None
    with run.opened(run.target) as (predictor, progress):
        progress.at(f"predicting {run.network} over {over}", run.on_message)
        curve = predictor.sweep(run.network, over, values, batch=fixed, shapes=run.shapes)
    estimates = list(curve.estimates.values())
    run.write_page(estimates, sweep=curve)
    run.write_tables(csv=curve.to_csv)
    run.show(curve.to_json(), curve.table())
    if curve.refused:
        aside(curve.left_out)
    doubtful = curve.refused or not all(estimate.trusted for estimate in estimates)
    return UNTRUSTED if doubtful else 0
