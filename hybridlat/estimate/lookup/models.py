"""The folders of models, and what is read from them; what is damaged is passed over.

A target's folder holds whole versions and a file that names the one in use::

    models/<target>/current                     the name of a version
    models/<target>/versions/<name>/card.json, composition.json, model.json, ...

Shipped models lie in the target's folder itself. The hash of each file, in the card, is checked
before reading: XGBoost ends the process over some damaged files.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path

from hybridlat.engines import device_sheets
from hybridlat.errors import HybridlatError, StoreError, TargetError
from hybridlat.model import model_files
from hybridlat.model.cell_model import CellModel
from hybridlat.model.model_files import CARD_FILE, MODEL_FILES, PRIOR_FOLDER
from hybridlat.schema.files import all_readable, decode_or_none, listing, read_bytes
from hybridlat.schema.plugins import shipped
from hybridlat.schema.target import Device, Target
from hybridlat.store import Store

COMPOSITION_FILE = "composition.json"
CURRENT_FILE = "current"
VERSIONS_FOLDER = "versions"


def model_folders(target: Target | None) -> list[Path]:
    """Folders of models of ``target`` (None: of any), the user's own before those shipped."""
    pattern = target.folder if target is not None else "*"
    roots = (model_files.user_models_folder(), shipped("models"))
    entries = [entry for root in roots for entry in listing(root, pattern)]
    return [*filter(None, map(folder_in_use, entries))]


def folder_in_use(parent: Path) -> Path | None:
    """The folder of the version in use, of a target whose models lie in ``parent``."""
    try:
        name = (parent / CURRENT_FILE).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        name = ""
    versions = [parent / VERSIONS_FOLDER / name] if name and Path(name).name == name else []
    return next((f for f in (*versions, parent) if listing(f, CARD_FILE)), None)


def model_hash(folder: Path) -> str:
    """Hash of all that predictions depend on, 16 hex digits; the card's date is not part of it."""
    files = [folder / name for name in (*MODEL_FILES, COMPOSITION_FILE)]
    while (folder := folder / PRIOR_FOLDER).is_dir():
        files += [folder / name for name in MODEL_FILES]
    there = [file for file in files if file.name != COMPOSITION_FILE or file.is_file()]
    return hashlib.sha256(b"".join(map(read_bytes, there))).hexdigest()[:16]


def read_card(folder: Path) -> Mapping[str, object]:
    """The card of a model; StoreError where it cannot be read."""
    return read_json(folder / CARD_FILE)


def read_json(path: Path) -> Mapping[str, object]:
    """A JSON object of a model's folder; StoreError where it cannot be read."""
    with using(path):
        return model_files.read_json(path)


def read_target(folder: Path) -> Target:
    """The target of a model; StoreError where its card does not name one."""
    name = read_card(folder).get("target")
    with using(folder / CARD_FILE):
        return Target.parse(str(name))


def read_model(folder: Path) -> CellModel:
    """The model of unseen cells; StoreError where it is damaged or of another format."""
    check(folder / MODEL_FILES[0])
    with using(folder):
        return model_files.load_model(folder)


def check(file: Path) -> None:
    """StoreError unless the card beside a file has its hash."""
    hashes = read_card(file.parent).get(model_files.HASHES)
    with using(file):
        is_own = isinstance(hashes, dict) and (
            hashes.get(file.name) == model_files.hash_of(read_bytes(file))
        )
    if not is_own:
        raise _damaged(file, "it is not the file that was installed")


def models_with_targets() -> Iterator[tuple[Path, Target]]:
    """The folder of every model whose card names a target, and that target."""
    for folder in model_folders(None):
        yield from ((folder, target) for target in all_readable(read_target, [folder]))


@contextmanager
def using(path: Path) -> Iterator[None]:
    """StoreError that names the file or folder of a model where it cannot be used."""
    try:
        yield
    except (OSError, ValueError, RecursionError, HybridlatError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, reason: object) -> StoreError:
    return StoreError(
        f"{path} is passed over, it cannot be used ({reason}): "
        "train its target again with `hybridlat train`, or delete the model's folder"
    )


def known_device(target: Target, store: Store) -> Device | None:
    """The device of a target; None where nothing describes it.

    By its data sheet, by the model in use, or by the micro-benchmark in the store's cache.
    """

    def trained_with(folder: Path) -> Device | None:
        check(folder / MODEL_FILES[0])
        return model_files.read_device(folder)

    with suppress(TargetError):
        return device_sheets.load(target.device).under(target.engine)
    device = next(all_readable(trained_with, model_folders(target)), None)
    return device or store.cache_read(_key(target), partial(decode_or_none, form=Device))


def keep_device(target: Target, store: Store, device: Device) -> None:
    """Cache the micro-benchmark of a target's device in the store."""
    store.cache_put({_key(target): json.dumps(asdict(device), sort_keys=True)})


def _key(target: Target) -> str:
    return f"device/{target.device}/{target.threads}"
