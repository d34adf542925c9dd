"""``hybridlat train`` and ``onboard``: a model for a target, from its records or from scratch."""

import time
from collections.abc import Iterator
from dataclasses import asdict

from hybridlat.cli.options import command, nets, option, target_option, time_limit
from hybridlat.cli.output import UNTRUSTED, ProgressShown, Run, aside
from hybridlat.engines.registry import resolve
from hybridlat.errors import BackendUnavailable
from hybridlat.estimate.lookup.named_target import known_target, named_target
from hybridlat.measuring.measurer import Measurer
from hybridlat.report.units import count_text, why_untrusted
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Target
from hybridlat.schema.workers import fitted_by
from hybridlat.store import Store
from hybridlat.training.onboarding import Onboarded, OnboardingOptions, measure_target, train_on
from hybridlat.training.quantise import file_as_target_takes
from hybridlat.training.train import NothingToTrain, Trained, TrainingOptions, pull, train_target

_TARGET = "device/runtime/precision[/threads]: `hybridlat targets` lists them."
_PULL = "Install the champion that MLflow's registry has of the target, and train nothing."
_BUDGET = "How long to measure, training included: 10m, 1h30m."
_FULL = "Measure everything even where another version of the engine is known on this device."
FEW = 10
"""Whole networks of another version from which it is answered, where it has no model."""


@command(
    target_option(_TARGET, required=True),
    "device store out seed jobs no_track",
    option("--pull", "is_pulled", is_flag=True, help=_PULL),
    "json",
)
def train(run: Run) -> int:
    """Train a model of a target on its records, and promote it if it is not worse than the old.

    Both are judged on the same held-out networks: by RMSPE, and by whether intervals hold. A model
    that is refused is kept in MLflow, and the command ends with 3. Where only whole networks are
    recorded, nothing has to be trained: every prediction uses them already. With --pull, what
    somebody else trained is installed, once its digest and its formats are checked.

    \b
    hybridlat train --target epyc-26-2/onnxruntime-1.31/fp32/1t
    hybridlat train --target epyc-26-2/onnxruntime-1.31/fp32/1t --out models --no-track
    hybridlat train --target epyc-26-2/onnxruntime-1.31/fp32/1t --pull
    """
    with Store(run.store) as records:
        named = (named_target if run.is_pulled else known_target)(run.target, records)
    if run.is_pulled:
        pulled = pull(named, run.out, store=run.store)
        words = "{target}: {reason}", "  model {model_hash} in {folder}"
        run.show({"format": 1, **pulled}, *(text.format(**pulled) for text in words))
        return 0
    chosen = TrainingOptions(run.out, seed=run.seed, track=not run.no_track)
    try:
        with fitted_by(run.jobs):
            trained = train_target(named, chosen, store=run.store, on_message=run.on_message)
    except NothingToTrain as why:
        document = {"format": 1, "target": str(named), "accepted": False, "reason": str(why)}
        run.show(document, str(why))
        return 0
    run.show(json_object(trained), *_lines(trained))
    return UNTRUSTED if trained.folder is None else 0


def _lines(trained: Trained) -> Iterator[str]:
    yield f"{trained.target}: {trained.reason}"
    for regime, one in trained.scores.items():
        coverage = "" if one.coverage is None else f", coverage {100 * one.coverage:.0f} %"
        if one.rmspe is not None:
            yield f"  {regime:14} RMSPE {one.rmspe:6.2f} %, MAPE {one.mape:6.2f} %{coverage}"
    yield f"  model {trained.model_hash}" + (f" in {trained.folder}" if trained.folder else "")


def json_object(value: Trained | Onboarded) -> dict[str, object]:
    """What a training or an onboarding came to, as ``--json`` prints it."""
    fields: dict[str, object] = {"format": 1, **vars(value), "target": str(value.target)}
    if isinstance(value, Onboarded):
        trained = None if value.trained is None else json_object(value.trained)
        return {**fields, "trained": trained, "by": str(value.by) if value.by else None}
    scores = {regime: asdict(score) for regime, score in value.scores.items()}
    return {**fields, "scores": scores, "folder": str(value.folder) if value.folder else None}


@command(
    time_limit(_BUDGET, "--budget", "time_limit", required=True),
    nets("ONNX files to measure; those shipped with hybridlat unless given."),
    option("--full", is_flag=True, help=_FULL),
    "target device threads store out seed no_track json",
)
def onboard(run: Run) -> int:
    """Learn this machine within a time limit: measure what there is time for, then train.

    Networks with their cells and random kernels are measured once each, in the order they are
    drawn. The start is the model of another device with the same engine, where there is one. One
    network in five is held out, and judges the model at the end. Run it again and it goes on where
    it stopped: nothing is measured twice. Where another version of the engine is known on this
    device, only what tells how far the two are apart is measured, and nothing is trained: --full
    measures everything. For a target of files in 8 bits networks and kernels are quantised first.

    \b
    hybridlat onboard --time-limit 30m
    hybridlat onboard --time-limit 30m --target epyc-26-2/onnxruntime/int8/1t
    hybridlat onboard --time-limit 1h30m --nets DIR --threads 4
    """
    chosen = OnboardingOptions(run.time_limit, run.store, run.nets, seed=run.seed)
    training = TrainingOptions(run.out, seed=run.seed, track=not run.no_track)
    engine = resolve(None if run.target is None else named_target(run.target), run.threads)
    if engine.backend is None:
        raise BackendUnavailable(engine.why_not)
    onboarded = None if run.full else _by_another_version(run, engine.target, chosen)
    if onboarded is None:
        measurer = Measurer(engine.backend)
        with ProgressShown() as shown:
            measured = measure_target(measurer, chosen, shown, run.on_message)
            onboarded = train_on(measured, training, run.store, run.on_message)
    for note in onboarded.notes:
        aside(note)
    counts = f"{count_text(onboarded.networks, 'network')} and "
    counts += f"{count_text(onboarded.cells, 'cell')} known, "
    counts += f"{count_text(onboarded.kernels, 'random kernel')} measured now"
    line = f"{onboarded.target}: {counts}, in {onboarded.elapsed_s:.0f} s"
    trained = () if onboarded.trained is None else _lines(onboarded.trained)
    run.show(json_object(onboarded), line, *trained)
    return 0 if onboarded.accepted else UNTRUSTED


def _by_another_version(run: Run, target: Target, chosen: OnboardingOptions) -> Onboarded | None:
    """What another version of the engine gives, measured as the gate says; None without one."""
    with run.opened(target, threads=None, settings=chosen.settings) as (predictor, _):
        predictor.store.require_writable()
        data = predictor.sessions.first.data
        alike = (v for v in data.other_versions if v.target.precision == target.precision)
        there = next((v for v in alike if v.model or v.networks >= FEW), None)
        if data.model is not None or there is None:
            return None
        began, measured, networks, wide = time.monotonic(), 0, 0, list[str]()
        for path in sorted((chosen.nets or shipped("data", "nets")).glob("*.onnx")):
            if time.monotonic() - began > chosen.budget_s:
                wide.append("the time was over before all networks were answered")
                break
            answer = predictor.predict(file_as_target_takes(path, target), name=path.stem)
            measured, networks = measured + answer.measured_now, networks + 1
            if not answer.trusted:
                wide.append(f"{answer.network}: {why_untrusted(answer)}")
        cells = sum(each.cells for each in predictor.store.stats() if each.target == target)
    notes = (f"answered from {there.target}, {count_text(measured, 'cell')} measured now", *wide)
    took_s, by = time.monotonic() - began, there.target
    return Onboarded(target, networks, cells, 0, took_s, notes, by=by, accepted=not wide)
