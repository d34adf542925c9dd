"""A plan while it is being put together: models, what to time in which order, what it will mean."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridlat import board, onnx_io
from hybridlat.errors import InputError
from hybridlat.graph.cells import Cell, cut, file_part, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.signature import Signature, sign
from hybridlat.schema.measurement import Kind
from hybridlat.schema.target import Target

PLAN_FORMAT = 1
Lower = Callable[[Network], Lowered]
ItemKey = str

_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
_COPIES = {"network": 1, "cell": 4}
_LARGE_WEIGHTS_BYTES = 24e6  # beyond this one copy's weights are cold anyway


@dataclass
class Draft:
    """A plan for one device and engine; ``runtime`` may lack its version until the board tells it.

    ``samples`` of each visit, ``rounds`` visits by run.sh, ``warm_s`` of sustained warm-up and
    ``limit_s`` of sampling a visit are what the runners go by; a build that takes longer than
    ``build_s`` is given up.
    """

    device: str
    runtime: str
    samples: int = 200
    rounds: int = 3
    warm_s: float = 0.3
    limit_s: float = 2.0
    build_s: float = 600.0
    _models: dict[str, bytes] = field(default_factory=dict)
    _items: dict[str, dict[str, Any]] = field(default_factory=dict)
    _tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    _records: list[dict[str, Any]] = field(default_factory=list)
    _texts: dict[str, str] = field(default_factory=dict)
    _breakdowns: list[dict[str, Any]] = field(default_factory=list)
    _noise: dict[str, int] = field(default_factory=dict)
    _reference: ItemKey = ""

    def item(self, network: Network, precision: str, kind: Kind) -> ItemKey:
        """A model to build in one precision; the same model twice is one item."""
        if precision not in _PRECISIONS:
            raise InputError(
                f"a plan cannot ask for {precision!r}: choose one of {', '.join(_PRECISIONS)}"
            )
        from hybridlat.onnx_io import external_weights

        data = onnx_io.to_onnx(network, None)
        content, sizes = external_weights.prepare(data)
        digest = hashlib.sha256(content).hexdigest()
        key = hashlib.sha256(f"{digest} {precision} {kind}".encode()).hexdigest()[:16]
        if key in self._items:
            return key
        spec: dict[str, Any] = {
            "file": self._add_model(content, digest),
            "sha256": digest,
            "precision": precision,
            "alone": kind != "network",
            "copies": 1 if network.weight_bytes > _LARGE_WEIGHTS_BYTES else _COPIES.get(kind, 1),
        }
        all_sizes = [self._noise, sizes]
        if precision == "fp16":
            typed, typed_sizes = external_weights.prepare(data, half=True)
            all_sizes.append(typed_sizes)
            spec["typed_file"] = self._add_model(typed, hashlib.sha256(typed).hexdigest())
        self._noise = external_weights.largest(all_sizes)
        self._items[key] = spec
        return key

    def _add_model(self, content: bytes, digest: str) -> str:
        name = f"models/{digest[:16]}.onnx"
        self._models[name] = content
        return name

    def time(
        self,
        items: tuple[ItemKey, ...],
        *,
        stage: int = 0,
        title: str = "",
        label: str = "",
        again: int = 0,
        rounds: int = 1,
    ) -> str:
        """Time an item, or a pair in turn; what was asked already is one task. Its name.

        Tasks run in the order of ``stage``, then as they were added; ``again`` sets a repetition
        in a later stage apart.
        """
        key = "-".join(items) + (f"-again{again}" if again else "")
        if key not in self._tasks:
            self._tasks[key] = {
                "task": key, "items": list(items), "stage": stage, "title": title,
                "label": label, "rounds": rounds,
            }  # fmt: skip
        return key

    def record(
        self,
        signature: Signature,
        kind: Kind,
        precision: str,
        task: str,
        method: str,
        labels: Mapping[str, str] | None = None,
        item: ItemKey | None = None,
    ) -> None:
        """What a task's result is the latency of: its first item less its second, if it has one.

        With ``item`` it is that item's own latency, as the task timed it in turn with another.
        """
        self._texts[signature.hash] = signature.text
        self._records.append(
            {
                "signature": signature.hash,
                "kind": kind,
                "precision": precision,
                "task": task,
                "method": method,
                "labels": dict(labels or {}),
                **({"item": item} if item else {}),
            }
        )

    def add_reference(self, network: Network, precision: str) -> None:
        """The kernel that is timed beside everything else, so that the board's drift is seen."""
        self._reference = self.item(network, precision, "cell")

    def add_network(
        self, name: str, network: Network, precision: str, *, stage: int = 0, title: str = "",
        again: int = 0, labels: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """A whole network, optimised by the engine as it always does."""
        task = self.time(
            (self.item(network, precision, "network"),),
            stage=stage, title=title or f"networks {precision}", label=name, again=again,
        )  # fmt: skip
        self.record(
            sign(network), "network", precision, task, "whole", {"network": name, **(labels or {})}
        )
        return task

    def add_cells(
        self, name: str, network: Network, lowered: Lowered, precision: str, *, stage: int = 1,
        title: str = "", methods: tuple[str, ...] = ("differential",),
        wanted: Callable[[str], bool] = lambda _: True,
    ) -> tuple[Cell, ...]:  # fmt: skip
        """The cells of a lowered network that ``wanted`` says yes to, by signature hash.

        ``differential``: timed behind the cell before it, which is taken off; ``isolated``: timed
        alone, copies with their own weights in turn. A cell that was met before is not added again.
        Where both are asked for, a cell's time alone is read from the task that takes it off.
        """
        cells = cut(lowered, network)
        met = {(r["signature"], r["precision"], r["method"]) for r in self._records}
        before: Cell | None = None
        both = {"differential", "isolated"} <= set(methods)
        for place, cell in enumerate(cells):
            signature = sign(cell.network)
            for method in methods:
                key = (signature.hash, precision, method)
                if key in met or not wanted(signature.hash):
                    continue
                if both and method == "isolated" and place + 1 < len(cells):
                    behind = (sign(cells[place + 1].network).hash, precision, "differential")
                    if behind not in met and wanted(behind[0]):
                        continue  # added below, with the cell that is timed behind this one
                met.add(key)
                parts = [cell.origins]
                if method == "differential" and before is not None:
                    parts = [(*before.origins, *cell.origins), before.origins]
                items = tuple(
                    self.item(file_part(network, lowered, origins), precision, "cell")
                    for origins in parts
                )
                task = self.time(
                    items, stage=stage, title=title or f"cells {method} {precision}",
                    label=f"{name}: {' '.join(cell.ops)}",
                )  # fmt: skip
                self.record(
                    signature, "cell", precision, task, method,
                    {"network": name, "method": method},
                )  # fmt: skip
                if both and len(items) > 1 and before is not None:
                    alone = sign(before.network)
                    if (alone.hash, precision, "isolated") not in met and wanted(alone.hash):
                        met.add((alone.hash, precision, "isolated"))
                        self.record(
                            alone, "cell", precision, task, "isolated",
                            {"network": name, "method": "isolated"}, items[1],
                        )  # fmt: skip
            before = cell
        return cells

    def add_breakdown(self, name: str, network: Network, lowered: Lowered, precision: str) -> None:
        """How a network falls into cells and unfused layers, kept with its measurement."""
        unfused = Lowered(network, tuple((i,) for i in range(len(network.nodes))), (), "file")
        self._breakdowns.append(
            {
                "network": name,
                "signature": sign(network).hash,
                "precision": precision,
                "cells": self._count(cut(lowered, network)),
                "layers": self._count(kernels(unfused, network)),
            }
        )

    def _count(self, parts: tuple[Cell, ...]) -> list[list[Any]]:
        counts: dict[str, int] = {}
        for part in parts:
            signature = sign(part.network)
            self._texts[signature.hash] = signature.text
            counts[signature.hash] = counts.get(signature.hash, 0) + 1
        return [[key, count] for key, count in counts.items()]

    @property
    def has_tasks(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self._tasks)

    def manifest(self) -> dict[str, Any]:
        """All of the plan but the models' bytes, with the hash ``plan`` that names it."""
        body: dict[str, Any] = {
            "format": PLAN_FORMAT,
            "device": self.device,
            "runtime": self.runtime,
            "settings": {
                "samples": self.samples, "rounds": self.rounds,
                "warm_s": self.warm_s, "limit_s": self.limit_s, "build_s": self.build_s,
            },
            "items": self._items,
            "tasks": sorted(self._tasks.values(), key=lambda task: int(task["stage"])),
            "records": self._records,
            "noise": self._noise,
            "reference": self._reference,
            "breakdowns": self._breakdowns,
            "signatures": self._texts,
        }  # fmt: skip
        text = json.dumps(body, sort_keys=True)
        return {**body, "plan": hashlib.sha256(text.encode()).hexdigest()[:16]}

    def write(self, folder: Path) -> None:
        """Write the plan's folder; InputError when there is another plan in it."""
        from hybridlat.onnx_io import external_weights

        if not self._tasks:
            raise InputError("there is nothing to measure: every cell asked for is known already")
        Target(self.device, self.runtime, self._items[next(iter(self._items))]["precision"])
        manifest = self.manifest()
        path = folder / "manifest.json"
        if path.exists() and json.loads(path.read_text())["plan"] != manifest["plan"]:
            raise InputError(f"{folder} holds another plan: give a new folder")
        for name in ("models", "blocks"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, content in self._models.items():
            (folder / name).write_bytes(content)
        for name in self._noise:
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
