"""Which model is in use: the champion a new one is held against, and putting the new one in place.

A version is written whole beside the others, then one file that names the version in use is
replaced (see estimate/lookup/models.py). Whatever step a process dies at, readers find the old
version or the new one.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from hybridlat.errors import StoreError
from hybridlat.estimate.compose.composition import Composition
from hybridlat.estimate.compose.target_composition import read_composition
from hybridlat.estimate.lookup.models import (
    CURRENT_FILE,
    VERSIONS_FOLDER,
    folder_in_use,
    model_folders,
    model_hash,
    read_model,
    readable,
)
from hybridlat.evaluation import tracking
from hybridlat.model.cell_model import CellModel
from hybridlat.schema.target import Target

_DELETED_AFTER_S = 600.0  # a reader that has just read a version's name may still be loading it


@dataclass(frozen=True)
class Champion:
    """The model in use, and where it came from."""

    model: CellModel
    composition: Composition
    trained_networks: frozenset[str]

    @classmethod
    def find(
        cls, tracker: tracking.Tracker, target: Target, root: Path, scratch: Path
    ) -> Champion | None:
        """What carries the alias, else the files in ``root``, else the user's or shipped ones.

        What is damaged or of a format that is gone is no rival: it is passed over with a warning.
        """
        version = tracker.champion(target)
        places: list[Path] = []
        if version is not None:
            download_folder = scratch / "champion"
            download_folder.mkdir()
            fetched = tracker.download(version, download_folder)
            places.append(fetched)
        installed = folder_in_use(root / target.folder)
        places += [installed] if installed is not None else []
        for folder in (*places, *model_folders(target)):
            champion = readable(cls.read, folder)
            if champion is not None:
                return champion
        return None

    @classmethod
    def read(cls, folder: Path) -> Champion | None:
        """The model in a folder, None where it has no composition; StoreError for damaged files."""
        composition = read_composition(folder)
        if composition is None:
            return None
        model = read_model(folder)
        names = model.card.get("trained_networks", ())
        if not isinstance(names, list | tuple):
            raise StoreError(
                f"the card of the model in {folder} does not list the networks it was trained on "
                f"(trained_networks is {names!r}): train its target again with `hybridlat train`, "
                "or delete the model's folder"
            )
        return cls(model, composition, frozenset(map(str, names)))


def install(folder: Path, model_folder: Path) -> Path:
    """Make the files of ``folder`` those in use of the target whose models lie in ``model_folder``.

    Gives the folder they now lie in. Versions that were in use before are deleted at the next
    installation, when no reader can be loading them.
    """
    versions = model_folder / VERSIONS_FOLDER
    versions.mkdir(parents=True, exist_ok=True)
    _clear(model_folder)
    name = f"{model_hash(folder)}-{uuid.uuid4().hex[:8]}"
    partial = versions / f".{name}.partial"
    shutil.copytree(folder, partial)
    _to_disk(partial)
    partial.replace(versions / name)
    pointer = model_folder / f".{CURRENT_FILE}.{name}"
    pointer.write_text(name + "\n", encoding="utf-8")
    _to_disk(pointer)
    before = folder_in_use(model_folder)
    if before is not None and before != model_folder:
        os.utime(before)  # from now on it is no longer in use
    pointer.replace(model_folder / CURRENT_FILE)
    return versions / name


def _to_disk(path: Path) -> None:
    """Have the bytes on the disk before anything names them."""
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())


def _clear(model_folder: Path) -> None:
    """Delete what is neither in use nor young: versions of before, and what a crash left."""
    in_use = folder_in_use(model_folder)
    left = [*(model_folder / VERSIONS_FOLDER).iterdir(), *model_folder.glob(f".{CURRENT_FILE}.*")]
    for path in left:
        if path != in_use and time.time() - path.stat().st_mtime > _DELETED_AFTER_S:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
