"""MLflow: runs of evaluations and trainings, and the registry of models."""

import contextlib
import json
import logging
import os
import platform
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from hybridlat.board import BoardError
from hybridlat.board.lock import held
from hybridlat.errors import HybridlatError, MissingExtra, TrackingError
from hybridlat.evaluation import leaderboard
from hybridlat.evaluation.metrics import OWN, PARTS, Prediction, ResultRow, TargetReport
from hybridlat.model.family.observations import architecture_of, family_of
from hybridlat.model.model_files import user_models_folder
from hybridlat.schema.target import Target
from hybridlat.store.place import StorePlace, without_password

EXPERIMENT = VIEW = "hybridlat"
MAIN = "accuracy"  # stands first, since MLflow sorts groups of metrics by name
_MAIN = ("rmspe", "rmspe_of_rival", "rmspe_floor", "coverage", "median")  # the first 4: columns
_WIDTHS = {"tags.`target`": 250, "tags.`method`": 90, "tags.`kind`": 90}
_WIDTHS |= {f"metrics.`{MAIN}/{name}`": 165 for name in _MAIN[:4]}
_COLUMNS = {"selectedColumns": [*_WIDTHS], "columnOrder": [*_WIDTHS], "columnWidths": _WIDTHS}
_FILTER = {"searchFilter": "tags.kind != 'method'", "orderByKey": "attributes.start_time"}
_EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # the pages of runs, not those of chats
    f"mlflow.sharedViewState.{VIEW}": json.dumps({**_FILTER, "orderByAsc": False, **_COLUMNS}),
}
CHAMPION, CHALLENGER, MODEL_HASH = "champion", "challenger", "model_hash"
_NAMES = str.maketrans({"%": "pct", "@": "_at_"})  # as MLflow takes them
_MOST_LINES = 2000
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_UV_AUTO_DETECT": "false",  # a model holds nothing of the folder it is trained in
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",  # half a minute without a server, not four
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",  # two minutes where one does not answer, not ten
}
Parameters = Mapping[str, object]
Metrics = Mapping[tuple[str, int], float | None]  # by name and step, 0 but in curves
Answers = Mapping[str, Sequence[Prediction]]  # by regime


@contextlib.contextmanager
def opened(store_url: str, uri: str = "", *, reads: bool = False) -> Iterator[str]:
    """A block in which MLflow keeps runs; their experiment's id; or MissingExtra, TrackingError.

    What only ``reads`` makes no database: TrackingError where there is none.
    """
    if find_spec("mlflow") is None:
        raise MissingExtra("mlflow", "track", "hybridlat mlflow")
    uri, before = uri or tracking_uri(store_url), dict(os.environ)
    os.environ.update(QUIET | before, MLFLOW_TRACKING_URI=uri)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.ExitStack() as after:
            import mlflow.types.responses  # else log_model does, which switches the stream on

            stream = mlflow.utils.logging_utils.MLFLOW_LOGGING_STREAM
            after.callback(setattr, stream, "enabled", stream.enabled)
            stream.enabled = False
            yield _experiment(uri, reads)
    except HybridlatError:
        raise
    except Exception as error:  # of MLflow, its drivers and its migrations: any
        shown, why = without_password(uri), str(error).strip().split("\n")[0]
        why = why.replace(uri.rstrip("/"), shown) or type(error).__name__
        raise TrackingError(f"MLflow fails at {shown}: {why}") from error
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def optional() -> Iterator[None]:
    """A block that MLflow's absence ends without a message, and its failure with a warning."""
    try:
        with contextlib.suppress(MissingExtra):
            yield
    except TrackingError as error:
        logging.getLogger(__name__).warning("%s (the results are kept)", error)


def tracking_uri(store_url: str) -> str:
    """``MLFLOW_TRACKING_URI``, else a SQLite file beside the store's, else in the data folder."""
    if uri := os.environ.get("MLFLOW_TRACKING_URI", "").strip():
        return uri
    file = StorePlace(store_url).file
    return f"sqlite:///{file.parent if file else user_models_folder().parent}/mlflow.db"


def _experiment(uri: str, reads: bool) -> str:
    from mlflow import MlflowClient

    name = os.environ.pop("MLFLOW_EXPERIMENT_NAME", "") or EXPERIMENT
    chosen, location = os.environ.get("MLFLOW_EXPERIMENT_ID"), None
    with contextlib.ExitStack() as alone:
        if file := re.match(r"sqlite[^:]*:///([^?]+)", uri):
            if reads and not Path(file[1]).exists() and not os.environ.get("MLFLOW_REGISTRY_URI"):
                fix = "`hybridlat evaluate` and `hybridlat train` make it"
                raise TrackingError(f"there is no {file[1]} to read: {fix}")
            folder = Path(file[1]).resolve().parent
            folder.mkdir(parents=True, exist_ok=True)
            # MLflow would put them below the folder it happens to be started in.
            location = (folder / "mlflow-artifacts").as_uri()
            # Of two processes that make the tables of a new database at once, one would fail.
            with contextlib.suppress(BoardError):  # a file system without locks
                alone.enter_context(held(str(folder / ".mlflow.lock"), lambda _: None))
        client = MlflowClient()
        known = client.get_experiment(chosen) if chosen else client.get_experiment_by_name(name)
        made = str(known.experiment_id if known else client.create_experiment(name, location))
        for key in _EXPERIMENT_TAGS.keys() - (known.tags if known else {}).keys():
            client.set_experiment_tag(made, key, _EXPERIMENT_TAGS[key])
    os.environ["MLFLOW_EXPERIMENT_ID"] = made
    return made


@contextlib.contextmanager
def run(name: str, tags: Mapping[str, str]) -> Iterator[str]:
    """The id of a new run below the caller's, if any; it fails or is killed with its block."""
    import mlflow

    above = os.environ.pop("MLFLOW_RUN_ID", None)  # MLflow would rename that run, and end it
    parent = mlflow.active_run() or (mlflow.get_run(above) if above else None)
    # Only in the experiment of its parent does MLflow show a run below that.
    of = parent and parent.info
    place = {"experiment_id": of.experiment_id, "parent_run_id": of.run_id} if of else {}
    made = mlflow.start_run(run_name=name, nested=True, tags=dict(tags), **place)
    try:
        yield str(made.info.run_id)
    except BaseException as error:
        with contextlib.suppress(Exception):  # a server that is gone hides no Ctrl-C
            mlflow.end_run("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")
        raise
    mlflow.end_run()


def log_evaluation(store: str, report: TargetReport, parameters: Parameters) -> list[ResultRow]:
    """The rows of a report, each with its method's run; where MLflow fails, those that it has."""
    rows, made = report.rows(), dict[str, str]()
    tags = about(report.target, "evaluation")
    note = f"{leaderboard.tables(rows)[0].markdown()}\n\n{leaderboard.legend(rows)}"
    rivals = {row.regime: row for row in leaderboard.best(rows, but={OWN, *PARTS})}
    predictions = {r.regime: r.predictions for r in report.results if r.method == OWN}
    with optional(), opened(store):
        import mlflow
        from pandas import DataFrame

        with run(f"{report.target} · {OWN} · evaluate", tags | {"mlflow.note.content": note}):
            own = metrics([row for row in rows if row.method == OWN], rivals)
            log({"method": OWN, **parameters}, own, predictions)
            for method in dict.fromkeys(row.method for row in rows):
                below = {**tags, "kind": "method", "method": method}
                with run(f"{method} · {report.target}", below) as made[method]:
                    figures = metrics([row for row in rows if row.method == method])
                    log({"method": method, **parameters}, figures, {})
            lines = [row.to_json() | {"calibration": None} for row in leaderboard.ordered(rows)]
            mlflow.log_table(DataFrame(lines), "leaderboard.json")
            _log_picture(report, predictions)
    return [replace(row, mlflow_run=made.get(row.method, "")) for row in rows]


def about(target: Target, kind: str) -> dict[str, str]:
    """The tags by which the runs of a target are filtered."""
    tags = {"kind": kind, "method": OWN, "target": str(target), "engine": target.engine}
    tags |= {"machine": platform.node(), "hybridlat": metadata.version("hybridlat")}
    return tags | {"mlflow.source.name": "hybridlat"}


def log(parameters: Parameters, figures: Metrics, predictions: Answers) -> None:
    """Add to the open run: parameters, the records that they name, figures, a table."""
    import mlflow
    from mlflow.entities import Dataset, DatasetInput
    from pandas import DataFrame

    mlflow.log_params(dict(parameters))
    for step in {step for _, step in figures}:
        known = {n: v for (n, at), v in figures.items() if at == step and v is not None}
        mlflow.log_metrics({name.translate(_NAMES): v for name, v in known.items()}, step)
    target, digest = str(parameters["target"]), str(parameters["data_hash"])
    source = json.dumps({"store": parameters["store"]})
    counts = json.dumps({name: parameters[name] for name in ("cells", "networks")})
    data = Dataset(target, digest, "hybridlat", source, profile=counts)
    mlflow.MlflowClient().log_inputs(mlflow.active_run().info.run_id, [DatasetInput(data)])
    table = []
    for regime, each in predictions.items():
        for p in each[:_MOST_LINES]:  # MLflow's tables have no columns of lists
            line = {"regime": regime, **asdict(p), "error_percent": 100 * p.error_share}
            line["low_us"], line["high_us"] = line.pop("interval_us") or (None, None)
            table.append(line)
    if table:
        mlflow.log_table(DataFrame(table), "per_network.json")


def metrics(rows: Sequence[ResultRow], rivals: Mapping[str, ResultRow] = {}) -> Metrics:
    """Figures by regime; those of ``unseen``, most ``cells`` or the last first, as ``accuracy``."""
    held_out = [row for row in rows if row.regime.partition("@")[0] in ("unseen", "cells")]
    made = dict[tuple[str, int], float | None]()
    for row in rows:
        figures = asdict(row.score) | {"median": row.median, "rmspe_floor": row.noise_floor}
        if row.regime in rivals:
            figures["rmspe_of_rival"] = rivals[row.regime].score.rmspe
        if row is (held_out or rows)[-1] and row.score.rmspe is not None:
            made = {**of_regime(MAIN, {key: figures.get(key) for key in _MAIN}), **made}
        made |= of_regime(row.regime, figures)
        for confidence, level in row.calibration.items():
            made[f"{row.regime}/calibration", round(100 * confidence)] = level.coverage
    return made


def of_regime(regime: str, figures: Mapping[str, float | None]) -> Metrics:
    """Figures of a regime; ``cells@300`` is the point at step 300 of the curve ``cells``."""
    group, _, number = regime.partition("@")
    group, step = (group, int(number)) if number.isdigit() else (regime, 0)
    return {(f"{group}/{key}", step): value for key, value in figures.items()}


def _log_picture(report: TargetReport, predictions: Answers) -> None:
    """Predicted beside measured, coverage, and errors by family and by part."""
    import mlflow
    from matplotlib.figure import Figure

    regime = "unseen" if "unseen" in predictions else next(iter(predictions))
    figure = Figure(figsize=(14.0, 12.0), layout="constrained")
    (predicted, calibration), (families, parts) = figure.subplots(2, 2)
    predicted.set(title=f"{report.target} · {regime}", xlabel="measured [µs]", ylabel=f"{OWN} [µs]")
    calibration.set(title="calibration", xlabel="stated confidence", ylabel="coverage")
    families.set(title=regime, xlabel="error by family [%]")
    parts.set(title="cells" if report.cell_errors else "regimes", xlabel="error [%]")
    each = sorted(predictions[regime][:_MOST_LINES], key=lambda p: p.name)
    truth, bounds = [p.true_us for p in each], [p.interval_us or (p.true_us,) * 2 for p in each]
    predicted.vlines(truth, *zip(*bounds, strict=True), lw=0.7)
    predicted.loglog(truth, [p.predicted_us for p in each], "o", ms=3)
    calibration.axline((1, 1), slope=1, color="gray", label="as stated")
    for name, levels in report.calibration.items():
        calibration.plot([*levels], [x.coverage for x in levels.values()], label=name)
    calibration.legend()
    by_regime = {name: [p.error_share for p in own] for name, own in predictions.items()}
    for name, errors in (report.cell_errors or by_regime).items():
        parts.plot([100 * error for error in errors], [name] * len(errors), "o", ms=3)
    if report.networks:
        names = [family_of(architecture_of(p.name)) for p in each]
        families.plot([100 * p.error_share for p in each], names, "o", ms=3)
    mlflow.log_figure(figure, "evaluation.png")


def model_name(target: Target) -> str:
    """The registered model of a target: a name without the characters MLflow keeps for itself."""
    return f"hybridlat-{re.sub(r'[/:]', '_', target.folder)}"


def register(target: Target, folder: Path, alias: str, reason: str, tags: Mapping[str, str]) -> str:
    """Keep a model's files in the open run, as a version of the target's model; its number."""
    from mlflow import MlflowClient, pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from pandas import DataFrame

    columns = (("string", "path"), ("long", "batch"), ("string", "cell"))
    inputs = [ColSpec(*column, required=False) for column in columns]
    outputs = [ColSpec("double", column) for column in ("latency_us", "low_us", "high_us")]
    client, name = MlflowClient(), model_name(target)
    made = pyfunc.log_model(
        name="model",
        loader_module="hybridlat",  # has the function that MLflow calls
        data_path=str(folder),
        signature=ModelSignature(Schema(inputs), Schema(outputs)),
        input_example=DataFrame({"path": ["resnet18"], "batch": [1]}),
        pip_requirements=[],  # an index may have another package of hybridlat's name
        registered_model_name=name,
    )
    version = str(made.registered_model_version)
    client.update_model_version(name, version, reason)
    for key, text in tags.items():
        client.set_model_version_tag(name, version, key, text)
    client.set_registered_model_alias(name, alias, version)
    return version


def champion(target: Target) -> str:
    """The version of the target's champion; empty where there is none."""
    from mlflow import MlflowClient

    models = MlflowClient().search_registered_models(f"name = '{model_name(target)}'")
    return str(models[0].aliases.get(CHAMPION, "")) if models else ""


def fetch(target: Target, version: str, scratch: Path) -> tuple[Path, str]:
    """The model files of a version, below ``scratch``, and the hash that they were kept with."""
    from mlflow import MlflowClient, artifacts

    uri = f"models:/{model_name(target)}/{version}"
    files = Path(artifacts.download_artifacts(uri, dst_path=str(scratch)))
    tags = MlflowClient().get_model_version(model_name(target), version).tags
    return next(files.glob("data/*"), files), tags.get(MODEL_HASH, "")
