"""Plans: folders that measure on a board that has nothing but TensorRT.

A plan holds models, tasks in order, the records that they will make, and the code of both runners:
``sh run.sh`` or ``python3 worker.py run`` in it measures. ``plan_results`` reads what came of it.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hybridlat import board
from hybridlat.board.plan import LISTS, PLAN_FORMAT, cksum, name_of
from hybridlat.engines import registry
from hybridlat.engines.fusion.precision import in_precision
from hybridlat.errors import InputError
from hybridlat.graph.builder import gpu_reference_network
from hybridlat.graph.cells import cut_positions
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import sign, sign_part
from hybridlat.measuring.schedule import Job, pairs_of
from hybridlat.model.family.shipped import timed_as
from hybridlat.onnx_io import tensorrt
from hybridlat.schema.files import write_bytes, write_text
from hybridlat.schema.measurement import Kind
from hybridlat.schema.target import Target

Selection = Callable[[Kind, str], bool]
"""Whether a cell or a network, by kind and signature hash, is to be measured."""
_COPIES_OF_CELLS = 4
_LARGE_WEIGHTS_BYTES = 24e6  # beyond this one copy's weights are cold anyway
_SETTINGS = {"samples": 200, "warm_s": 0.3, "limit_s": 2.0, "build_s": 600.0}
"""Of a visit: samples, sustained warm-up and the most sampling. A longer build is given up."""
_OWN_FILES = {"models", "blocks", "hybridlat_board", "worker.py", "run.sh", "files.txt", *LISTS}
"""What a plan's folder holds, as far as one that was cut off has come."""


@dataclass
class Draft:
    """A plan for a target, whose version the board may know; each task has ``rounds`` visits."""

    target: Target
    rounds: int
    _models: dict[str, bytes] = field(default_factory=dict)
    _items: dict[str, dict[str, Any]] = field(default_factory=dict)
    _tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    _records: list[dict[str, Any]] = field(default_factory=list)
    _texts: dict[str, str] = field(default_factory=dict)
    _breakdowns: list[dict[str, Any]] = field(default_factory=list)
    _noise: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        if self.target.precision not in registry.PLANNED:
            raise InputError(
                f"a plan cannot ask for {self.target.precision!r}: choose one of "
                f"{', '.join(registry.PLANNED)}"
            )
        # What is timed beside everything else, so that the board's drift is seen.
        self._reference = self._item(gpu_reference_network(), "cell")

    def _item(self, network: Network, kind: Kind) -> str:
        """A model to build; the same model twice is one item."""
        precision = self.target.precision
        is_large = network.weight_bytes > _LARGE_WEIGHTS_BYTES
        copies = 1 if is_large or kind == "network" else _COPIES_OF_CELLS
        content, sizes = tensorrt.prepare(network)
        file, digest = self._add_model(content, sizes)
        key = hashlib.sha256(f"{digest} {precision} {kind}".encode()).hexdigest()[:16]
        if key not in self._items:
            self._items[key] = {
                "file": file,
                "sha256": digest,
                "precision": precision,
                "alone": kind != "network",
                "copies": copies,
            }
            if precision == "fp16":
                typed = tensorrt.prepare(in_precision(network, "float16"))
                self._items[key]["typed_file"], _ = self._add_model(*typed)
        return key

    def _add_model(self, content: bytes, sizes: Mapping[str, int]) -> tuple[str, str]:
        """A model's bytes with the noise that it reads: its file's name and digest."""
        digest = hashlib.sha256(content).hexdigest()
        name = f"models/{digest[:16]}.onnx"
        self._models[name] = content
        self._noise |= Counter(sizes)  # of each file the largest use
        return name, digest

    def add(self, name: str, job: Job) -> None:
        """Time a network, or a cell of it and in turn its predecessor, for a record."""
        items = [self._item(each, job.kind) for each in job.networks]
        precision, is_cell = self.target.precision, job.kind == "cell"
        task = {
            "task": "-".join(items),
            "items": items,
            "stage": int(is_cell),
            "title": f"{'cells differential' if is_cell else 'networks'} {precision}",
            "label": f"{name}: {job.network.name}" if is_cell else name,
            "rounds": self.rounds,
        }
        record = {
            "signature": job.signature.hash,
            "kind": job.kind,
            "precision": precision,
            "task": task["task"],
            "method": "differential" if is_cell else "whole",
            "labels": {**job.labels, **({"method": "differential"} if is_cell else {})},
        }
        self._tasks.setdefault("-".join(items), task)
        self._texts[job.signature.hash] = job.signature.text
        self._records.append(record)

    def add_breakdown(self, name: str, network: Network, lowered: Lowered) -> None:
        self._breakdowns.append(
            {
                "network": name,
                "signature": sign(network).hash,
                "precision": self.target.precision,
                "cells": self._count(lowered.network, cut_positions(lowered.network)),
                "layers": self._count(network, [(i,) for i in range(len(network.nodes))]),
            }
        )

    def _count(self, network: Network, parts: Iterable[tuple[int, ...]]) -> list[list[Any]]:
        signatures = [sign_part(network, part)[0] for part in parts]
        self._texts |= {signature.hash: signature.text for signature in signatures}
        return [[key, count] for key, count in Counter(s.hash for s in signatures).items()]

    def manifest(self) -> dict[str, Any]:
        """All of the plan but the models' bytes, with the hash ``plan`` that names it."""
        body: dict[str, Any] = {
            "format": PLAN_FORMAT,
            "device": self.target.device,
            "runtime": self.target.runtime,
            "settings": {**_SETTINGS, "rounds": self.rounds},
            "items": self._items,
            "tasks": sorted(self._tasks.values(), key=lambda task: int(task["stage"])),
            "records": self._records,
            "noise": self._noise,
            "reference": self._reference,
            "breakdowns": self._breakdowns,
            "signatures": self._texts,
        }
        return {**body, "plan": name_of(body)}

    def write(self, folder: Path) -> None:
        """Write the plan's folder; InputError when there is another plan in it."""
        if not self._tasks:
            raise InputError("there is nothing to measure: every cell is known already")
        manifest, path, name = self.manifest(), folder / "manifest.json", folder / "plan.txt"
        there = name.read_text(errors="replace").strip() if name.exists() else ""
        if path.exists() and there != manifest["plan"]:
            raise InputError(f"{folder} holds another plan: give a new folder")
        others = {file.name for file in folder.glob("[!.]*")} - _OWN_FILES
        if others and not path.exists():
            raise InputError(f"{folder} holds {min(others)}, no part of a plan: give a new folder")
        blocks = {f"blocks/{name}": tensorrt.block(name) for name in self._noise}
        for part in ("models", "blocks"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for file, content in (self._models | blocks).items():
            write_bytes(folder / file, content)
        _write_lists(folder, manifest)
        _write_runners(folder)
        write_sums(folder, [*self._models, *blocks, *LISTS])
        write_text(path, json.dumps(manifest, indent=1) + "\n")  # last: a plan with it is whole


def write_sums(folder: Path, names: Iterable[str]) -> None:
    """Write the check sums by which a board sees that all of the plan has come."""
    sums = [f"{cksum((folder / name).read_bytes())} {name}\n" for name in names]
    write_text(folder / "files.txt", "".join(sums) + "end\n")


def _write_lists(folder: Path, manifest: Mapping[str, Any]) -> None:
    """What run.sh reads: a plan's items in the order of its tasks, tabs between the columns."""

    def row(key: str) -> str:
        spec = manifest["items"][key]
        columns = [key, spec["precision"], spec["file"], spec.get("typed_file", "-")]
        return "\t".join(column.removeprefix("models/") for column in columns) + "\n"

    order = dict.fromkeys(key for task in manifest["tasks"] for key in task["items"])
    texts = {
        "items.txt": "".join(row(key) for key in order),
        "reference_item.txt": row(manifest["reference"]),
        "noise.txt": "".join(f"{name}\t{size}\n" for name, size in manifest["noise"].items()),
        "plan.txt": manifest["plan"] + "\n",
        "runtime.txt": manifest["runtime"] + "\n",
        "rounds.txt": f"{manifest['settings']['rounds']}\n",
    }
    for name, text in texts.items():
        write_text(folder / name, text)


def _write_runners(folder: Path) -> None:
    source = Path(board.__file__).parent
    (folder / "hybridlat_board").mkdir(exist_ok=True)
    for path in source.glob("*.py"):
        if path.name != "worker.py":
            shutil.copyfile(path, folder / "hybridlat_board" / path.name)
    for name in ("worker.py", "run.sh"):
        shutil.copyfile(source / name, folder / name)
        (folder / name).chmod(0o755)


def draft_for(
    networks: Sequence[tuple[str, Network]],
    target: Target,
    selects: Selection = lambda kind, signature: True,
    lower: Callable[[Network], Lowered] | None = None,
    rounds: int = 3,
) -> Draft:
    """The plan for (name, network) pairs: whole networks first, then cells by the differential.

    ``lower`` is by default that of the target. InputError for a precision that no plan can ask for.
    """
    lower = lower or partial(registry.lower, target=timed_as(target))
    draft, planned = Draft(target, rounds), set[str]()

    def add_once(name: str, job: Job) -> None:
        if job.key not in planned and selects(job.kind, job.signature.hash):
            planned.add(job.key)
            draft.add(name, job)

    for name, network in networks:
        add_once(name, Job(sign(network), network, "network", {"network": name}))
    for name, network in networks:
        lowered = lower(network)
        for job in pairs_of(name, network, lowered):
            add_once(name, job)
        draft.add_breakdown(name, network, lowered)
    return draft
