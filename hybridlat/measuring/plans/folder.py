"""The folder of a plan: its models, the lists that run.sh reads, and the code of both runners."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hybridlat import board
from hybridlat.errors import InputError
from hybridlat.onnx_io import external_weights


def write_folder(folder: Path, manifest: Mapping[str, Any], models: Mapping[str, bytes]) -> None:
    """Write a plan; InputError when there is another plan in ``folder``.

    ``models`` are the files that the manifest's items name.
    """
    path = folder / "manifest.json"
    if path.exists() and json.loads(path.read_text())["plan"] != manifest["plan"]:
        raise InputError(f"{folder} holds another plan: give a new folder")
    for name in ("models", "blocks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, content in models.items():
        (folder / name).write_bytes(content)
    for name in manifest["noise"]:
        (folder / "blocks" / name).write_bytes(external_weights.block(name))
    _write_lists(folder, manifest)
    _write_runners(folder)
    path.write_text(json.dumps(manifest, indent=1) + "\n")  # last: a plan with it is whole


def _write_lists(folder: Path, manifest: Mapping[str, Any]) -> None:
    """What run.sh reads: a plan's items in the order of its tasks, tabs between the columns."""

    def row(key: str) -> str:
        spec = manifest["items"][key]
        columns = [key, spec["precision"], spec["file"], spec.get("typed_file", "-")]
        return "\t".join(column.removeprefix("models/") for column in columns) + "\n"

    reference = manifest["reference"]
    order = dict.fromkeys(key for task in manifest["tasks"] for key in task["items"])
    (folder / "items.txt").write_text("".join(row(key) for key in order))
    (folder / "reference.txt").write_text((reference or "-") + "\n")
    (folder / "reference_item.txt").write_text(row(reference) if reference else "")
    (folder / "noise.txt").write_text(
        "".join(f"{name}\t{size}\n" for name, size in manifest["noise"].items())
    )
    (folder / "plan.txt").write_text(manifest["plan"] + "\n")
    (folder / "rounds.txt").write_text(f"{manifest['settings']['rounds']}\n")


def _write_runners(folder: Path) -> None:
    source = Path(board.__file__).parent
    target = folder / "hybridlat_board"
    target.mkdir(exist_ok=True)
    for path in source.glob("*.py"):
        if path.name != "worker.py":
            shutil.copyfile(path, target / path.name)
    for name in ("worker.py", "run.sh"):
        shutil.copyfile(source / name, folder / name)
        (folder / name).chmod(0o755)
