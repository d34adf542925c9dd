"""The folder of a plan: written here, and read back with the results of boards, all checked.

It holds the models, the lists that run.sh reads, and the code of both runners.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridlat import board
from hybridlat.board import BoardError
from hybridlat.board.journal import read_lines
from hybridlat.board.plan import PLAN_FORMAT, check_names
from hybridlat.errors import InputError, StoreError
from hybridlat.onnx_io import external_weights
from hybridlat.schema.target import Target

_LONGEST_US = 60e6


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


@dataclass
class BoardLines:
    """The lines of one results file: all of one board."""

    path: Path
    header: Mapping[str, Any]
    visits: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def facts(self) -> Mapping[str, str]:
        return {k: str(v) for k, v in self.header["board"].items() if v not in ("", None)}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The plan in a folder; StoreError where it is damaged or names files outside of it."""
    try:
        content = json.loads((folder / "manifest.json").read_text())
    except OSError as error:
        if not folder.is_dir():
            why = "there is no such folder"
        elif (folder / "manifest.json").exists():
            why = f"its manifest.json cannot be read ({error.strerror})"
        else:
            why = "it has no manifest.json"
        raise StoreError(
            f"{folder} is no plan: {why}; give the folder that hybridlat plan -o wrote"
        ) from error
    except ValueError as error:
        raise StoreError(f"{folder} is no plan: its manifest.json is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("format") != PLAN_FORMAT:
        raise StoreError(f"{folder / 'manifest.json'} is not a plan of format {PLAN_FORMAT}")
    body = {key: value for key, value in content.items() if key != "plan"}
    text = json.dumps(body, sort_keys=True)
    if hashlib.sha256(text.encode()).hexdigest()[:16] != content.get("plan"):
        raise StoreError(f"{folder / 'manifest.json'} was changed after the plan was written")
    try:
        check_names(content)
    except BoardError as error:
        raise StoreError(f"{folder / 'manifest.json'}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{folder / 'manifest.json'} lacks {error}") from error
    for spec in content["items"].values():
        path = folder / spec["file"]
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != spec["sha256"]:
            raise StoreError(f"{path} is not the model that the plan was written with")
    return content


def read_board(path: Path, manifest: Mapping[str, Any], board_id: str | None) -> BoardLines:
    """The lines of one results file; StoreError unless all are of this plan and of one board."""
    board: BoardLines | None = None
    try:
        for line in read_lines(str(path)):
            if line.get("format") != 1:
                raise StoreError(f"{path} has a line of format {line.get('format')!r}, not 1")
            if line.get("kind") == "board":
                if line.get("plan") != manifest["plan"]:
                    raise StoreError(f"{path} holds results of another plan ({line.get('plan')})")
                board = board or BoardLines(path, line)
            if board is None:
                raise StoreError(f"{path} does not say which board it is from")
            if line.get("board_id") != board.header["board_id"]:
                raise StoreError(
                    f"{path} mixes results of two boards ({board.header['board_id']} and "
                    f"{line.get('board_id')}): measure each into a file of its own"
                )
            if line["kind"] == "visit":
                board.visits.append(_checked(line, manifest, path))
            elif line["kind"] == "failure":
                board.failures.append(line)
    except BoardError as error:
        raise StoreError(str(error)) from error
    except (KeyError, TypeError) as error:
        raise StoreError(f"{path} has a line that lacks {error}") from error
    if board is None:
        raise StoreError(f"{path} is empty")
    if board_id is not None and board.header["board_id"] != board_id:
        raise StoreError(
            f"{path} is from the board {board.header['board_id']} "
            f"({board.facts.get('gpu') or board.facts.get('model', 'unnamed')}), not {board_id}"
        )
    return board


def _checked(line: dict[str, Any], manifest: Mapping[str, Any], path: Path) -> dict[str, Any]:
    for item, samples in line["samples_us"].items():
        if item not in manifest["items"]:
            raise StoreError(f"{path} has a result of {item}, which is not in the plan")
        if not all(isinstance(s, int | float) and 0 < s < _LONGEST_US for s in samples):
            raise StoreError(f"{path} has samples of {item} that cannot be latencies")
    return line


def target_of(manifest: Mapping[str, Any], board: BoardLines, precision: str) -> Target:
    """The plan's target with the engine version of the board; StoreError where the two disagree."""
    planned = Target(manifest["device"], manifest["runtime"], precision)
    engine, version = board.facts.get("engine", ""), board.facts.get("engine_version", "")
    if planned.engine != engine:
        raise StoreError(f"{board.path} was measured with {engine}, and the plan is for {planned}")
    if planned.runtime not in (engine, f"{engine}-{version}"):
        raise StoreError(
            f"{board.path} was measured with {engine} {version}, not {planned.runtime}"
        )
    return Target(planned.device, f"{engine}-{version}", precision)
