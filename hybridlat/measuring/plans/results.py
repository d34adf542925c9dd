"""What a board sent back, checked line by line and turned into records."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridlat.board.errors import BoardError
from hybridlat.board.journal import read_lines
from hybridlat.errors import StoreError
from hybridlat.graph.signature import hash_of
from hybridlat.schema.measurement import Breakdown, Measurement, Visit
from hybridlat.schema.target import Target

PROTOCOL = "board-1"
_FEWEST_SAMPLES = 5
_LONGEST_US = 60e6
_LEAST_US = 0.1  # what a cell is given whose time does not rise above the noise


@dataclass
class _Board:
    """The lines of one results file: all of one board."""

    path: Path
    header: Mapping[str, Any]
    visits: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def facts(self) -> Mapping[str, str]:
        return {k: str(v) for k, v in self.header["board"].items() if v not in ("", None)}


def read_results(
    folder: str | Path,
    *,
    board_id: str | None = None,
    methods: Sequence[str] = ("whole", "differential"),
) -> tuple[dict[str, str], list[Measurement]]:
    """Signature texts by hash and the records in a plan's folder, ready for a store.

    Every ``results*.jsonl`` is read; each must be of this plan and of one board (of ``board_id``
    where given). Cells timed alone are left out unless ``methods`` names ``isolated``. Raises
    StoreError for a damaged plan or result, mixed boards, or values that cannot be latencies.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    boards = [
        _read_board(path, manifest, board_id) for path in sorted(folder.glob("results*.jsonl"))
    ]
    if not boards:
        raise StoreError(f"{folder} holds no results yet: run run.sh or worker.py in it first")
    texts = dict(manifest["signatures"])
    for key, text in texts.items():
        if hash_of(text) != key:
            raise StoreError(f"the signature {key} in {folder} is not the hash of its text")
    found = [
        measurement
        for board in boards
        for measurement in _measurements(folder, manifest, board, set(methods))
    ]
    return texts, found


def read_breakdowns(folder: str | Path) -> list[Breakdown]:
    """How the plan's networks fall into cells, for the targets that its results belong to."""
    folder = Path(folder)
    manifest = _manifest(folder)
    found = []
    for path in sorted(folder.glob("results*.jsonl")):
        board = _read_board(path, manifest, None)
        for item in manifest["breakdowns"]:
            found.append(
                Breakdown(
                    _target(manifest, board, item["precision"]),
                    item["network"],
                    item["signature"],
                    tuple((h, int(n)) for h, n in item["cells"]),
                    tuple((h, int(n)) for h, n in item["layers"]),
                )
            )
    return found


def _manifest(folder: Path) -> dict[str, Any]:
    import hashlib

    try:
        content = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder} is no plan: {error}") from error
    if not isinstance(content, dict) or content.get("format") != 1:
        raise StoreError(f"{folder / 'manifest.json'} is not a plan of format 1")
    body = {key: value for key, value in content.items() if key != "plan"}
    text = json.dumps(body, sort_keys=True)
    if hashlib.sha256(text.encode()).hexdigest()[:16] != content.get("plan"):
        raise StoreError(f"{folder / 'manifest.json'} was changed after the plan was written")
    for spec in content["items"].values():
        path = folder / spec["file"]
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != spec["sha256"]:
            raise StoreError(f"{path} is not the model that the plan was written with")
    return content


def _read_board(path: Path, manifest: Mapping[str, Any], board_id: str | None) -> _Board:
    header: dict[str, Any] | None = None
    board: _Board | None = None
    try:
        for line in read_lines(str(path)):
            if line.get("format") != 1:
                raise StoreError(f"{path} has a line of format {line.get('format')!r}, not 1")
            if line.get("kind") == "board":
                header = line
                if line.get("plan") != manifest["plan"]:
                    raise StoreError(f"{path} holds results of another plan ({line.get('plan')})")
                board = board or _Board(path, line)
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
    if board is None or header is None:
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


def _target(manifest: Mapping[str, Any], board: _Board, precision: str) -> Target:
    """The plan's target with the engine version of the board; StoreError where the two disagree."""
    asked = Target(manifest["device"], manifest["runtime"], precision)
    engine, version = board.facts.get("engine", ""), board.facts.get("engine_version", "")
    if asked.engine != engine:
        raise StoreError(f"{board.path} was measured with {engine}, and the plan is for {asked}")
    if asked.runtime not in (engine, f"{engine}-{version}"):
        raise StoreError(f"{board.path} was measured with {engine} {version}, not {asked.runtime}")
    threads = 1 if engine == "onnxruntime" else None
    return Target(asked.device, f"{engine}-{version}", precision, threads)


def _measurements(
    folder: Path, manifest: Mapping[str, Any], board: _Board, methods: set[str]
) -> Iterator[Measurement]:
    drift = _Drift(manifest["reference"], board.visits)
    tasks = {task["task"]: task["items"] for task in manifest["tasks"]}
    failed = {line["task"]: line["error"] for line in board.failures}
    for record in manifest["records"]:
        if record["method"] not in methods:
            continue
        items = [record["item"]] if record.get("item") else tasks[record["task"]]
        visits = _visits(record["task"], items, board.visits, drift)
        # worker.py tells the task that failed, run.sh the item.
        reasons = [failed[name] for name in (record["task"], *items) if name in failed]
        if not visits and not reasons:
            continue  # not reached yet
        values = [statistics.median(v.samples_us) / v.drift for v in visits]
        latency = statistics.median(values) if values else None
        labels = dict(record["labels"])
        spread = 0.0
        if latency is not None:
            error = _error_us(visits, values)
            if latency <= 2 * error and len(items) > 1:
                latency, labels["below_noise"] = max(latency, _LEAST_US), "yes"
            spread = min(10.0, error / latency)
        yield Measurement(
            target=_target(manifest, board, record["precision"]),
            signature=record["signature"],
            kind=record["kind"],
            latency_us=latency,
            spread_share=spread,
            visits=tuple(visits),
            protocol=f"{PROTOCOL} {board.facts.get('runner', '')} {record['method']}",
            environment=_environment(folder, manifest, board, items, record["task"]),
            measured_at=_when(board, record["task"], items),
            failure=None if latency is not None else reasons[0],
            labels=labels,
        )


def _visits(
    task: str, items: Sequence[str], lines: Sequence[Mapping[str, Any]], drift: _Drift
) -> list[Visit]:
    """Visits of a task. A pair's samples are those of its first item less the second's median.

    worker.py times a pair in one visit; run.sh times each item by itself, a round at a time.
    """
    found: list[Visit] = []
    for line in lines:
        if line["task"] == task and all(
            len(line["samples_us"].get(i, ())) >= _FEWEST_SAMPLES for i in items
        ):
            samples = line["samples_us"]
            taken_off = sum(statistics.median(samples[i]) for i in items[1:])
            speed = 1.0 if len(items) > 1 else drift.of(line)
            found.append(_visit(samples[items[0]], taken_off, speed, line))
    if found:
        return found
    rounds: dict[int, dict[str, tuple[list[float], Mapping[str, Any]]]] = {}
    for line in lines:
        if line["task"] in items:
            samples = line["samples_us"][line["task"]]
            rounds.setdefault(int(line["round"]), {})[line["task"]] = (samples, line)
    for number in sorted(rounds):
        of_round = rounds[number]
        if set(of_round) != set(items):
            continue
        speeds = {i: drift.of(line) for i, (_, line) in of_round.items()}
        taken_off = sum(statistics.median(of_round[i][0]) / speeds[i] for i in items[1:])
        first, line = of_round[items[0]]
        found.append(_visit([s / speeds[items[0]] for s in first], taken_off, 1.0, line))
    return found


def _visit(
    samples: Sequence[float], taken_off: float, speed: float, line: Mapping[str, Any]
) -> Visit:
    kept = tuple(round(s - taken_off, 3) for s in samples)
    return Visit(kept, speed, int(line.get("process", line.get("visit", 0))))


def _error_us(visits: Sequence[Visit], values: Sequence[float]) -> float:
    """Standard error of the result: between visits where there are several, else within."""
    if len(values) > 1:
        return statistics.stdev(values) / math.sqrt(len(values))
    samples = visits[0].samples_us
    if len(samples) < 2:
        return 0.0
    return 1.2533 * statistics.stdev(samples) / math.sqrt(len(samples))


class _Drift:
    """The board's speed around a visit: the reference's time then over its median of the run."""

    def __init__(self, reference: str, lines: Sequence[Mapping[str, Any]]) -> None:
        self._reference = reference
        self._at: list[tuple[int, float]] = []
        for place, line in enumerate(lines):
            if "reference_us" in line:
                self._at.append((place, float(line["reference_us"])))
            elif line["task"] == reference:
                samples = line["samples_us"][reference]
                self._at.append((place, statistics.median(samples)))
        self._typical = statistics.median(t for _, t in self._at) if self._at else 0.0
        self._place = {id(line): place for place, line in enumerate(lines)}

    def of(self, line: Mapping[str, Any]) -> float:
        """1.05: the reference ran 5 % slower than usual around this visit."""
        if not self._at or self._typical <= 0:
            return 1.0
        place = self._place[id(line)]
        nearest = min(self._at, key=lambda pair: abs(pair[0] - place))
        return nearest[1] / self._typical


def _environment(
    folder: Path, manifest: Mapping[str, Any], board: _Board, items: Sequence[str], task: str
) -> dict[str, str]:
    found = {**board.facts, "plan": manifest["plan"], "board_id": board.header["board_id"]}
    for line in board.visits:
        sensors = line.get("sensors", {}).get(items[0], {})
        if line["task"] in (task, items[0]) and sensors:
            found.update({k: str(v) for k, v in sensors.items() if v is not None})
            break
    layers = _layer_summary(folder / "layers" / f"{items[0]}.json")
    if layers:
        found["engine_layers"] = layers
    return found


def _layer_summary(path: Path) -> str:
    """The engine's layers, name and type each, as compact JSON; empty where there is no dump."""
    from hybridlat.measuring.trtexec import layers_of, read_tolerant

    if not path.exists():
        return ""
    layers = layers_of(read_tolerant(path.read_text()))
    return json.dumps([[layer.name, layer.kind] for layer in layers]) if layers else ""


def _when(board: _Board, task: str, items: Sequence[str]) -> str:
    for line in board.visits:
        if line["task"] in (task, items[0]):
            return str(line["at"])
    return str(board.header["at"])
