"""Train one target: fit, calibrate, judge on held-out networks, promote only what is not worse.

Of the networks that ``candidate`` does not hold out come the model, and by cross-fitting the
composition and its interval. A model that is refused only MLflow has, with the reason. The same
records give the same files, and what is in use already is not installed again.
"""

import os
import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hybridlat.engines.registry import float_precision
from hybridlat.errors import InputError, StoreError
from hybridlat.estimate.lookup import models, whole_networks
from hybridlat.estimate.predict import family
from hybridlat.evaluation import tracking
from hybridlat.evaluation.cross_fitting import FOLDS, device_of
from hybridlat.evaluation.dataset import Dataset, OnlyNetworks, load
from hybridlat.evaluation.evaluate import parameters_of, refuse_few, sources_of
from hybridlat.evaluation.metrics import OWN, MethodResult, Score, TargetReport, noise_floor
from hybridlat.model.cell_model import CellModel
from hybridlat.model.fit import FitConfig
from hybridlat.model.model_files import user_models_folder
from hybridlat.report.units import count_text
from hybridlat.schema.files import all_readable, is_writable, scratch_folder
from hybridlat.schema.target import Device, Target
from hybridlat.schema.workers import OnMessage, silent, steady_fits
from hybridlat.store import Store
from hybridlat.training.candidate import Candidate, Champion, Verdict

_PRIORS_BELOW = 1500
_KIN_BELOW = 8000
_DELETED_AFTER_S = 600.0  # a reader that has just read a version's name may still be loading it


@dataclass(frozen=True)
class Trained(Verdict):
    """What became of a training.

    ``folder`` holds the files that predictions use from now on, those of before where the model is
    the same; None when the model was refused. ``version`` is the registry's, empty without one.
    """

    target: Target
    held_out: int
    scores: Mapping[str, Score]
    model_hash: str
    folder: Path | None
    mlflow_run: str
    version: str


class NothingToTrain(InputError):
    """Only whole networks of the target are recorded, and every prediction uses them already."""


@dataclass(frozen=True)
class TrainingOptions:
    """How a target is trained.

    The files go to ``out/<target>/``, by default among the user's models; ``device`` overrides the
    data sheet; ``track`` keeps everything in MLflow.
    """

    out: Path | None = None
    device: Device | None = None
    seed: int = 0
    track: bool = True


@steady_fits()
def train_target(
    target: Target,
    options: TrainingOptions,
    *,
    store: str | None = None,
    on_message: OnMessage = silent,
) -> Trained:
    """Train ``target`` from the store and its shipped packs; see the module.

    Raises InputError where there are too few records to learn from, NothingToTrain where whole
    networks alone are recorded: every prediction uses them already.
    """
    with Store(store) as opened, scratch_folder() as scratch:
        dataset, folder = _dataset(target, opened), scratch / "model"
        root = options.out or user_models_folder()
        if not is_writable(root / target.folder):  # not after minutes of fitting
            raise StoreError(f"models cannot be written to {root}: give a folder with --out")
        device = options.device or device_of(target, opened)
        config = FitConfig(device, float_precision(target), options.seed, _priors(target, dataset))
        candidate = Candidate(dataset, config, on_message)
        candidate.save(folder)
        champion, made = Champion.find(target, root), models.model_hash(folder)
        in_use = _in_use(champion, made, options.out)
        verdict = candidate.compare(champion, in_use is not None)
        installed = install(folder, root / target.folder) if verdict.accepted else in_use
        run = version = ""
        if options.track:
            on_message(f"{target}: recording the training in MLflow")
            about = tracking.about(target, "training")
            about |= {"accepted": str(verdict.accepted).lower(), "reason": verdict.reason}
            about[tracking.MODEL_HASH] = made
            with (
                tracking.optional(),
                tracking.opened(opened.url),
                tracking.run(f"{target} · {OWN} · train", about) as run,
            ):
                _log(candidate, verdict, opened.place.address)
                if in_use is None or not tracking.champion(target):
                    alias = tracking.CHAMPION if installed else tracking.CHALLENGER
                    tags = {name: f"{v:.3f}" for name, v in verdict.errors.items() if v is not None}
                    tags |= {"data_hash": dataset.data_hash, tracking.MODEL_HASH: made}
                    tags["accepted"] = str(installed is not None).lower()
                    version = tracking.register(target, folder, alias, verdict.reason, tags)
        return Trained(
            **vars(verdict),
            target=target,
            held_out=candidate.held_out,
            scores=candidate.scores,
            model_hash=made,
            folder=installed,
            mlflow_run=run,
            version=version,
        )


def pull(target: Target, out: Path | None = None, *, store: str | None = None) -> dict[str, str]:
    """Install the champion that MLflow's registry has of ``target``, as ``train_target`` does.

    Gives what ``train --pull --json`` prints. Raises MissingExtra without MLflow, TrackingError
    where it cannot be reached, InputError where it has no champion, StoreError where the files are
    not those registered or of another format.
    """
    with Store(store) as opened, scratch_folder() as scratch:
        with tracking.opened(opened.url, reads=True):
            version = tracking.champion(target)
            if not version:
                raise InputError(
                    f"MLflow's registry has no champion of {tracking.model_name(target)}: "
                    f"`hybridlat train --target {target}` makes one"
                )
            folder, stated_hash = tracking.fetch(target, version, scratch)
        title = f"version {version} of {tracking.model_name(target)}"
        try:
            made = models.model_hash(folder)
            if made != stated_hash or models.read_target(folder) != target:
                raise StoreError("its files are not those that were registered")
            if Champion.read(folder) is None:
                raise StoreError("it has no composition")
        except (OSError, StoreError) as error:
            why = str(error.__cause__ or error).replace(str(folder), "it")
            raise StoreError(f"{title} is not installed: {why}") from error
        root = out or user_models_folder()
        in_use = _in_use(Champion.find(target, root), made, out)
        reason = f"{title} is in use already" if in_use else f"{title} is installed"
        installed = in_use or install(folder, root / target.folder)
        document = {"target": str(target), "reason": reason, tracking.MODEL_HASH: made}
        return document | {"folder": str(installed), "version": version}


def _in_use(champion: Champion | None, made: str, out: Path | None) -> Path | None:
    """The champion's folder where that is the new model, and lies where it is to lie."""
    if champion is None or not (out is None or champion.folder.is_relative_to(out)):
        return None
    return champion.folder if models.model_hash(champion.folder) == made else None


def _dataset(target: Target, store: Store) -> Dataset:
    try:
        dataset = load(target, sources_of(target, store))
    except OnlyNetworks:
        model = family.model_of(target, models.known_device(target, store))
        count = 0 if model is None else len(whole_networks.measured_networks(store, target))
        if not count:
            raise
        raise NothingToTrain(
            f"{target}: nothing has to be trained: every prediction uses the "
            f"{count_text(count, 'whole network')} of the store already"
        ) from None
    refuse_few(dataset)
    return dataset


def _priors(target: Target, dataset: Dataset) -> tuple[CellModel, ...]:
    """Models of other targets to start from, where the target has few records of its own.

    Of those with the same engine more can be learned, so they serve longer.
    """
    if len(dataset.cells) >= _KIN_BELOW:
        return ()
    folders, few = dict[str, Path](), len(dataset.cells) < _PRIORS_BELOW
    for folder, other in reversed([*models.models_with_targets()]):
        if other != target and (few or other.engine == target.engine):
            folders[other.folder] = folder
    chosen = [folders[name] for name in sorted(folders)]
    return tuple(all_readable(models.read_model, chosen))


def _log(candidate: Candidate, verdict: Verdict, store: str) -> None:
    dataset = candidate.dataset
    networks, cells = len(dataset.complete_networks), len(dataset.cells)
    judged = (
        MethodResult(regime, OWN, [each], per_cell=regime == "unseen_cells")
        for regime, each in candidate.predictions.items()
    )
    floor = noise_floor([n.repeats_us for n in candidate.networks])
    report = TargetReport(dataset.target, dataset.data_hash, tuple(judged), floor, networks, cells)
    parameters = parameters_of(report, candidate.config, store)
    parameters |= {"held_out": candidate.held_out}
    parameters["protocol"] = f"held out: one fold of {FOLDS}, by name"
    main = tracking.of_regime(tracking.MAIN, verdict.errors)
    tracking.log(parameters, {**tracking.metrics(report.rows()), **main}, candidate.predictions)


def install(folder: Path, model_folder: Path) -> Path:
    """Make the files of ``folder`` those in use of the target whose models lie in ``model_folder``.

    A version is written whole beside the others, then the file that names the one in use is
    replaced. So readers find the old version or the new one wherever the process dies. Gives the
    new one's folder. Older versions go at the next call, when no reader can be loading them.
    """
    versions = model_folder / models.VERSIONS_FOLDER
    versions.mkdir(parents=True, exist_ok=True)
    _clear(model_folder)
    name = f"{models.model_hash(folder)}-{uuid.uuid4().hex[:8]}"
    partial = versions / f".{name}.partial"
    shutil.copytree(folder, partial)
    _to_disk(partial)
    partial.replace(versions / name)
    pointer = model_folder / f".{models.CURRENT_FILE}.{name}"
    pointer.write_text(name + "\n", encoding="utf-8")
    _to_disk(pointer)
    before = models.folder_in_use(model_folder)
    if before is not None and before != model_folder:
        os.utime(before)  # from now on it is no longer in use
    pointer.replace(model_folder / models.CURRENT_FILE)
    return versions / name


def _to_disk(path: Path) -> None:
    """Have the bytes on the disk before anything names them."""
    for file in (path, *path.rglob("*")):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def _clear(model_folder: Path) -> None:
    """Delete what is neither in use nor young: versions of before, and what a crash left."""
    in_use = models.folder_in_use(model_folder)
    pointers = model_folder.glob(f".{models.CURRENT_FILE}.*")
    for path in (*(model_folder / models.VERSIONS_FOLDER).iterdir(), *pointers):
        if path != in_use and time.time() - path.stat().st_mtime > _DELETED_AFTER_S:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
