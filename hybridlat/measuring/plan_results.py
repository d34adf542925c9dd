"""The results in a plan's folder, all checked, as records: by the analysis of all protocols."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridlat.board import BoardError
from hybridlat.board.journal import read_lines
from hybridlat.board.plan import Plan
from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of
from hybridlat.measuring.statistics import Subject, difference, level_us, record_of, usual_us
from hybridlat.schema.measurement import Breakdown, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords

_PROTOCOL = "board-2"
_FEWEST_SAMPLES = 5
_LONGEST_US = 60e6


@dataclass(frozen=True)
class _Board:
    """One results file: what is known of its board, its visits, and why tasks failed."""

    path: Path
    id: str
    at: str
    facts: Mapping[str, str]
    visits: list[dict[str, Any]]
    failures: Mapping[str, str]


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The plan in a folder; StoreError where it is damaged or names files outside of it."""
    try:
        content = Plan(str(folder)).content
    except BoardError as error:
        raise StoreError(str(error)) from error
    text = json.dumps({k: v for k, v in content.items() if k != "plan"}, sort_keys=True)
    if hashlib.sha256(text.encode()).hexdigest()[:16] != content.get("plan"):
        raise StoreError(f"{folder / 'manifest.json'} was changed after the plan was written")
    for spec in content["items"].values():
        path = folder / spec["file"]
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != spec["sha256"]:
            raise StoreError(f"{path} is not the model that the plan was written with")
    return content


def _read_board(path: Path, manifest: Mapping[str, Any], board_id: str | None) -> _Board:
    """One results file; StoreError unless all its lines are of this plan and of one board."""
    try:
        lines = list(read_lines(str(path)))
    except BoardError as error:
        raise StoreError(str(error)) from error
    if not lines:
        raise StoreError(f"{path} is empty")
    header = lines[0]
    try:
        for line in lines:
            if line.get("format") != 1:
                raise StoreError(f"{path} has a line of format {line.get('format')!r}, not 1")
            if header["kind"] != "board":
                raise StoreError(f"{path} does not say which board it is from")
            if line["kind"] == "board" and line.get("plan") != manifest["plan"]:
                raise StoreError(f"{path} holds results of another plan ({line.get('plan')})")
            if line.get("board_id") != header["board_id"]:
                raise StoreError(
                    f"{path} mixes results of two boards ({header['board_id']} and "
                    f"{line.get('board_id')}): measure each into a file of its own"
                )
        facts = {k: str(v) for k, v in header["board"].items() if v not in ("", None)}
        visits = [_checked(line, manifest, path) for line in lines if line["kind"] == "visit"]
        failed = {line["task"]: line["error"] for line in lines if line["kind"] == "failure"}
        board = _Board(path, header["board_id"], header["at"], facts, visits, failed)
    except (AttributeError, KeyError, TypeError) as error:
        raise StoreError(f"{path} has a line that lacks {error}") from error
    if board_id not in (None, board.id):
        raise StoreError(
            f"{path} is from the board {board.id} "
            f"({facts.get('gpu') or facts.get('model', 'unnamed')}), not {board_id}"
        )
    return board


def _checked(line: dict[str, Any], manifest: Mapping[str, Any], path: Path) -> dict[str, Any]:
    for item, samples in line["samples_us"].items():
        if item not in manifest["items"]:
            raise StoreError(f"{path} has a result of {item}, which is not in the plan")
        if not all(isinstance(s, int | float) and 0 < s < _LONGEST_US for s in samples):
            raise StoreError(f"{path} has samples of {item} that cannot be latencies")
    return line


def _target_of(manifest: Mapping[str, Any], board: _Board, precision: str) -> Target:
    """The plan's target with the engine version of the board; StoreError where the two disagree."""
    target = Target(manifest["device"], manifest["runtime"], precision)
    engine, version = board.facts.get("engine", ""), board.facts.get("engine_version", "")
    if target.engine != engine:
        raise StoreError(f"{board.path} was measured with {engine}, and the plan is for {target}")
    if target.runtime not in (engine, f"{engine}-{version}"):
        raise StoreError(f"{board.path} was measured with {engine} {version}, not {target.runtime}")
    return Target(target.device, f"{engine}-{version}", precision)


def read_results(
    folder: str | Path,
    *,
    board_id: str | None = None,
    methods: Sequence[str] = ("whole", "differential"),
) -> ImportedRecords:
    """The records in a plan's folder, and how its networks fall into cells.

    Every ``results*.jsonl`` is read, each of one board (``board_id`` where given). ``methods`` may
    also name ``isolated``: cells timed alone. Raises StoreError for a damaged plan or result, mixed
    boards, or values that cannot be latencies.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    files = sorted(folder.glob("results*.jsonl"))
    boards = [_read_board(path, manifest, board_id) for path in files]
    if not boards:
        raise StoreError(f"{folder} holds no results yet: run run.sh or worker.py in it first")
    texts = dict(manifest["signatures"])
    for key, text in texts.items():
        if hash_of(text) != key:
            raise StoreError(f"the signature {key} in {folder} is not the hash of its text")
    records = [m for board in boards for m in _measurements(manifest, board, methods)]
    breakdowns = [
        Breakdown(
            _target_of(manifest, board, item["precision"]), item["network"], item["signature"],
            tuple((h, int(n)) for h, n in item["cells"]),
            tuple((h, int(n)) for h, n in item["layers"]),
        )
        for board in boards for item in manifest["breakdowns"]
    ]  # fmt: skip
    return ImportedRecords(texts, records, breakdowns)


def _measurements(
    manifest: Mapping[str, Any], board: _Board, methods: Sequence[str]
) -> Iterator[Measurement]:
    _set_drift(manifest["reference"], board.visits)
    items_of = {task["task"]: task["items"] for task in manifest["tasks"]}
    facts = {**board.facts, "plan": manifest["plan"], "board_id": board.id}
    for record in manifest["records"]:
        if record["method"] not in methods:
            continue
        task = record["task"]
        items = items_of[task]
        # worker.py names the task, run.sh each of its items.
        lines = [line for line in board.visits if line["task"] in (task, *items)]
        reasons = [board.failures[name] for name in (task, *items) if name in board.failures]
        firsts = [line for line in lines if line["task"] in (task, items[0])]
        readings = (line.get("sensors", {}).get(items[0]) for line in firsts)
        sensors: dict[str, Any] = next((reading for reading in readings if reading), {})
        subject = Subject(
            _target_of(manifest, board, record["precision"]), record["signature"], record["kind"],
            f"{_PROTOCOL} {board.facts.get('runner', '')} {record['method']}",
            {**facts, **{k: str(v) for k, v in sensors.items() if v is not None}}, record["labels"],
            str(firsts[0]["at"] if firsts else board.at),
        )  # fmt: skip
        visits = _visits(task, items, lines)
        if visits:
            yield record_of(subject, visits)
        elif reasons:
            yield subject.record(None, failure=reasons[0])


def _set_drift(reference: str, lines: Sequence[dict[str, Any]]) -> None:
    """Give visits their ``drift``: 1.05 where the reference ran 5 % slower around it than usual."""
    at: dict[int, float] = {}
    for place, line in enumerate(lines):
        if line.get("reference_us", 0) > 0:
            at[place] = float(line["reference_us"])
        elif line["task"] == reference:
            at[place] = level_us(line["samples_us"][reference])
    usual = usual_us(list(at.values()))
    for place, line in enumerate(lines):
        nearest = min(at, key=lambda other: abs(other - place), default=None)
        line["drift"] = 1.0 if nearest is None else round(at[nearest] / usual, 5)


def _visits(task: str, items: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> list[Visit]:
    """Visits of a task: samples of its first item, less its second where it has one.

    worker.py times a pair in one visit; run.sh times each item by itself, a round at a time.
    """
    visits = [
        Visit(_samples(items, line["samples_us"]), line["drift"], _process(line))
        for line in lines
        if line["task"] == task
        and all(len(line["samples_us"].get(i, ())) >= _FEWEST_SAMPLES for i in items)
    ]
    if visits:
        return visits
    rounds: dict[int, dict[str, Mapping[str, Any]]] = {}
    for line in lines:
        if line["task"] in items and line["samples_us"].get(line["task"]):
            rounds.setdefault(int(line["round"]), {})[line["task"]] = line
    for _, of_round in sorted(rounds.items()):
        if set(of_round) == set(items):
            # Each was timed at another moment, at a speed of its own.
            steady = {
                item: [sample / line["drift"] for sample in line["samples_us"][item]]
                for item, line in of_round.items()
            }
            visits.append(Visit(_samples(items, steady), 1.0, _process(of_round[items[0]])))
    return visits


def _samples(items: Sequence[str], samples_us: Mapping[str, Sequence[float]]) -> tuple[float, ...]:
    timed, *taken_off = (samples_us[item] for item in items)
    if not taken_off:
        return tuple(round(sample, 3) for sample in timed)
    return difference(timed, taken_off[0])


def _process(line: Mapping[str, Any]) -> int:
    return int(line.get("process", line.get("visit", 0)))
