"""The results of a board as records, by the analysis that all protocols share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of
from hybridlat.measuring.plans.folder import BoardLines, read_board, read_manifest, target_of
from hybridlat.measuring.statistics import (
    Subject,
    difference,
    failure_of,
    level_us,
    record_of,
    usual_us,
)
from hybridlat.measuring.trtexec import layers_of, read_tolerant
from hybridlat.schema.measurement import Breakdown, Measurement, Visit

_PROTOCOL = "board-2"
_FEWEST_SAMPLES = 5


def read_results(
    folder: str | Path,
    *,
    board_id: str | None = None,
    methods: Sequence[str] = ("whole", "differential"),
) -> tuple[dict[str, str], list[Measurement]]:
    """Signature texts by hash and the records in a plan's folder, ready for a store.

    Every ``results*.jsonl`` is read; each must be of this plan and of one board (of ``board_id``
    where given). ``methods`` may also name ``isolated``: cells timed alone. Raises
    StoreError for a damaged plan or result, mixed boards, or values that cannot be latencies.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    boards = [
        read_board(path, manifest, board_id) for path in sorted(folder.glob("results*.jsonl"))
    ]
    if not boards:
        raise StoreError(f"{folder} holds no results yet: run run.sh or worker.py in it first")
    texts = dict(manifest["signatures"])
    for key, text in texts.items():
        if hash_of(text) != key:
            raise StoreError(f"the signature {key} in {folder} is not the hash of its text")
    records = [
        measurement
        for board in boards
        for measurement in _measurements(folder, manifest, board, set(methods))
    ]
    return texts, records


def read_breakdowns(folder: str | Path) -> list[Breakdown]:
    """How the plan's networks fall into cells, for the targets that its results belong to."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    breakdowns = []
    for path in sorted(folder.glob("results*.jsonl")):
        board = read_board(path, manifest, None)
        for item in manifest["breakdowns"]:
            breakdowns.append(
                Breakdown(
                    target_of(manifest, board, item["precision"]),
                    item["network"],
                    item["signature"],
                    tuple((h, int(n)) for h, n in item["cells"]),
                    tuple((h, int(n)) for h, n in item["layers"]),
                )
            )
    return breakdowns


def _measurements(
    folder: Path, manifest: Mapping[str, Any], board: BoardLines, methods: set[str]
) -> Iterator[Measurement]:
    drift = _Drift(manifest["reference"], board.visits)
    tasks = {task["task"]: task["items"] for task in manifest["tasks"]}
    failed = {line["task"]: line["error"] for line in board.failures}
    protocol = f"{_PROTOCOL} {board.facts.get('runner', '')}"
    for record in manifest["records"]:
        if record["method"] not in methods:
            continue
        task = record["task"]
        items = tasks[task]
        visits = _visits(task, items, board.visits, drift)
        # worker.py names the task that failed, run.sh the item.
        reasons = [failed[name] for name in (task, *items) if name in failed]
        subject = Subject(
            target_of(manifest, board, record["precision"]),
            record["signature"],
            record["kind"],
            f"{protocol} {record['method']}",
            _environment(folder, manifest, board, items, task),
            record["labels"],
            _when(board, task, items),
        )
        if visits:
            yield record_of(subject, visits)
        elif reasons:
            yield failure_of(subject, reasons[0])


def _visits(
    task: str, items: Sequence[str], lines: Sequence[Mapping[str, Any]], drift: _Drift
) -> list[Visit]:
    """Visits of a task: samples of its first item, less its second where it has one.

    worker.py times a pair in one visit; run.sh times each item by itself, a round at a time.
    """
    visits = [
        Visit(_taken(items, line["samples_us"]), drift.of(line), _process(line))
        for line in lines
        if line["task"] == task
        and all(len(line["samples_us"].get(i, ())) >= _FEWEST_SAMPLES for i in items)
    ]
    if visits:
        return visits
    rounds: dict[int, dict[str, Mapping[str, Any]]] = {}
    for line in lines:
        if line["task"] in items:
            rounds.setdefault(int(line["round"]), {})[line["task"]] = line
    for number in sorted(rounds):
        of_round = rounds[number]
        if set(of_round) == set(items):
            # Each was timed at another moment, at a speed of its own.
            steady = {
                item: [sample / drift.of(line) for sample in line["samples_us"][item]]
                for item, line in of_round.items()
            }
            visits.append(Visit(_taken(items, steady), 1.0, _process(of_round[items[0]])))
    return visits


def _taken(items: Sequence[str], samples_us: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    timed, *taken_off = (samples_us[item] for item in items)
    if not taken_off:
        return tuple(round(sample, 3) for sample in timed)
    return difference(timed, taken_off[0])


def _process(line: Mapping[str, Any]) -> int:
    return int(line.get("process", line.get("visit", 0)))


class _Drift:
    """The board's speed around a visit: the reference's time then over what it usually takes."""

    def __init__(self, reference: str, lines: Sequence[Mapping[str, Any]]) -> None:
        self._at: list[tuple[int, float]] = []
        for index, line in enumerate(lines):
            if line.get("reference_us", 0) > 0:
                self._at.append((index, float(line["reference_us"])))
            elif line["task"] == reference:
                self._at.append((index, level_us(line["samples_us"][reference])))
        self._usual_us = usual_us([time_us for _, time_us in self._at])
        self._place = {id(line): index for index, line in enumerate(lines)}

    def of(self, line: Mapping[str, Any]) -> float:
        """1.05: the reference ran 5 % slower than usual around this visit."""
        if not self._at:
            return 1.0
        index = self._place[id(line)]
        nearest = min(self._at, key=lambda pair: abs(pair[0] - index))
        return round(nearest[1] / self._usual_us, 5)


def _environment(
    folder: Path, manifest: Mapping[str, Any], board: BoardLines, items: Sequence[str], task: str
) -> dict[str, str]:
    environment = {**board.facts, "plan": manifest["plan"], "board_id": board.header["board_id"]}
    for line in board.visits:
        sensors = line.get("sensors", {}).get(items[0], {})
        if line["task"] in (task, items[0]) and sensors:
            environment.update({k: str(v) for k, v in sensors.items() if v is not None})
            break
    layers = _layer_summary(folder / "layers" / f"{items[0]}.json")
    if layers:
        environment["engine_layers"] = layers
    return environment


def _layer_summary(path: Path) -> str:
    """The engine's layers, name and type each, as compact JSON; empty where there is no dump."""
    if not path.exists():
        return ""
    layers = layers_of(read_tolerant(path.read_text()))
    return json.dumps([[layer.name, layer.kind] for layer in layers]) if layers else ""


def _when(board: BoardLines, task: str, items: Sequence[str]) -> str:
    for line in board.visits:
        if line["task"] in (task, items[0]):
            return str(line["at"])
    return str(board.header["at"])
