"""A plan under construction: its models, its tasks in order, and the records they will make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hybridlat import onnx_io
from hybridlat.board.plan import PLAN_FORMAT
from hybridlat.engines import registry
from hybridlat.errors import InputError
from hybridlat.graph.cells import Cell, cut, kernels
from hybridlat.graph.network import Lowered, Network
from hybridlat.graph.reference_networks import gpu_reference_network
from hybridlat.graph.signature import Signature, sign
from hybridlat.measuring.pairs import parts_of
from hybridlat.measuring.plans.folder import write_folder
from hybridlat.onnx_io import external_weights
from hybridlat.schema.measurement import Kind
from hybridlat.schema.target import Target

Lower = Callable[[Network], Lowered]
ItemKey = str
RecordKey = tuple[Kind, str]
"""A cell or a network, by its signature hash."""

_COPIES = {"network": 1, "cell": 4}
_LARGE_WEIGHTS_BYTES = 24e6  # beyond this one copy's weights are cold anyway

Wish = Callable[[str], bool]


def _always(signature: str) -> bool:
    return True


@dataclass
class Draft:
    """A plan for one device and engine; ``runtime`` may lack its version, which the board knows.

    ``samples`` of each visit, ``rounds`` visits of every model or pair, ``warm_s`` of sustained
    warm-up and ``limit_s`` of sampling a visit are what the runners go by; a build that takes
    longer than ``build_s`` is given up.
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
    _met: set[tuple[str, str, str]] = field(default_factory=set)
    _reference: ItemKey = ""

    def item(self, network: Network, precision: str, kind: Kind) -> ItemKey:
        """A model to build in one precision; the same model twice is one item."""
        if precision not in registry.PLANNED:
            raise InputError(
                f"a plan cannot ask for {precision!r}: choose one of {', '.join(registry.PLANNED)}"
            )
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
    ) -> str:
        """Time an item, or a pair in turn; the same items again are the same task. Its name.

        Tasks run in the order of ``stage``, then as they were added; ``again`` sets a repetition
        in a later stage apart.
        """
        key = "-".join(items) + (f"-again{again}" if again else "")
        if key not in self._tasks:
            self._tasks[key] = {
                "task": key, "items": list(items), "stage": stage, "title": title,
                "label": label, "rounds": self.rounds,
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
    ) -> None:
        """What a task's result is the latency of: its first item less its second, if it has one."""
        self._texts[signature.hash] = signature.text
        self._met.add((signature.hash, precision, method))
        self._records.append(
            {
                "signature": signature.hash,
                "kind": kind,
                "precision": precision,
                "task": task,
                "method": method,
                "labels": dict(labels or {}),
            }
        )

    def add_reference(self, network: Network, precision: str) -> None:
        """The kernel that is timed beside everything else, so that the board's drift is seen."""
        self._reference = self.item(network, precision, "cell")

    def add_network(
        self, name: str, network: Network, precision: str, *, stage: int = 0, title: str = "",
        again: int = 0, labels: Mapping[str, str] | None = None, wanted: Wish = _always,
    ) -> None:  # fmt: skip
        """A whole network, optimised by the engine as it always does."""
        signature = sign(network)
        if not wanted(signature.hash):
            return
        task = self.time(
            (self.item(network, precision, "network"),),
            stage=stage, title=title or f"networks {precision}", label=name, again=again,
        )  # fmt: skip
        labels = {"network": name, **(labels or {})}
        self.record(signature, "network", precision, task, "whole", labels)

    def add_cells(
        self, name: str, network: Network, lowered: Lowered, precision: str, *, stage: int = 1,
        title: str = "", wanted: Wish = _always,
    ) -> None:  # fmt: skip
        """The wanted cells of a lowered network, each with its predecessor, which is taken off.

        A cell that was met before is not added again.
        """
        for part, _ in parts_of(name, network, lowered):
            hash_ = part.signature.hash
            if self.has(hash_, precision, "differential") or not wanted(hash_):
                continue
            task = self.time(
                tuple(self.item(each, precision, "cell") for each in part.networks),
                stage=stage, title=title or f"cells differential {precision}",
                label=f"{name}: {' '.join(part.ops)}",
            )  # fmt: skip
            labels = {"network": name, "method": "differential"}
            self.record(part.signature, "cell", precision, task, "differential", labels)

    def has(self, signature: str, precision: str, method: str) -> bool:
        return (signature, precision, method) in self._met

    def add_breakdown(self, name: str, network: Network, lowered: Lowered, precision: str) -> None:
        """The cells and unfused layers of a network, beside its measurement."""
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

    @property
    def record_keys(self) -> list[RecordKey]:
        """What will have a record."""
        return [(record["kind"], record["signature"]) for record in self._records]

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

        if not self._tasks:
            raise InputError("there is nothing to measure: every wanted cell is known already")
        Target(self.device, self.runtime, self._items[next(iter(self._items))]["precision"])
        write_folder(folder, self.manifest(), self._models)


Wanted = Callable[[Kind, str], bool]
"""Whether a cell or a network, by kind and signature hash, is to be measured."""


@dataclass(frozen=True)
class PlanRequest:
    """What to measure on the device of ``target``.

    ``networks`` are (name, network) pairs. ``lower`` is the engine's lowering (default: that of
    the target's engine, version and precision). Every model is visited in ``rounds``. What comes
    back belongs to ``target``, with the version that the board's engine has.
    """

    networks: Sequence[tuple[str, Network]]
    target: Target
    wanted: Wanted = lambda kind, signature: True
    lower: Lower | None = None
    rounds: int = 3


def draft_for(request: PlanRequest) -> Draft:
    """The plan for a request: whole networks first, then cells by the differential.

    Raises InputError for a precision that no plan can ask for, TargetError for an engine
    without fusion rules.
    """
    target, wanted = request.target, request.wanted
    lower = request.lower or partial(registry.lower, target=target)
    draft = Draft(target.device, target.runtime, rounds=request.rounds)
    draft.add_reference(gpu_reference_network(), target.precision)
    for name, network in request.networks:
        draft.add_network(name, network, target.precision, wanted=partial(wanted, "network"))
    for name, network in request.networks:
        lowered = lower(network)
        draft.add_cells(name, network, lowered, target.precision, wanted=partial(wanted, "cell"))
        draft.add_breakdown(name, network, lowered, target.precision)
    return draft


def write(request: PlanRequest, folder: str | Path) -> Draft:
    """Write the plan for a request to a folder; InputError where it asks for nothing."""
    draft = draft_for(request)
    draft.write(Path(folder))
    return draft
