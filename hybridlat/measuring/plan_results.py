"""The results in a plan's folder, all checked, as records: by the analysis of all protocols."""

import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from hybridlat.board import BoardError
from hybridlat.board.journal import MAX_LOST, SAME, read_lines
from hybridlat.board.plan import Plan
from hybridlat.engines import registry
from hybridlat.errors import StoreError
from hybridlat.graph.signature import HEADER, hash_of
from hybridlat.measuring import statistics
from hybridlat.measuring.tables import device_of, held_on
from hybridlat.model.family.shipped import FAMILY_OF, timed_as
from hybridlat.schema.measurement import Breakdown, Launch, Measurement, Visit
from hybridlat.schema.target import Target
from hybridlat.store.importers import ImportedRecords

_FEWEST_SAMPLES = 5
_SHORTEST_US, _LONGEST_US = 1e-3, 60e6
_MOST_DRIFT = 100.0
_EARLIEST = "2020"  # before it there was no TensorRT that a plan takes
MISSING = "rounds_missing"
"""Says in a record's environment that a run was cut off: it has fewer visits than are planned."""
_LAUNCHES: Mapping[str, Launch] = {"graph": "graph", "enqueue": "stream"}  # by an engine's word
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Results:
    """One results file: what is known of its board, its visits, and why tasks failed."""

    id: str
    device: str
    at: str
    facts: Mapping[str, str]
    visits: list[dict[str, Any]]
    failures: Mapping[str, str]

    @property
    def runtime(self) -> str:
        return f"{self.facts['engine']}-{self.facts['engine_version']}"


def _read_results_file(path: Path, manifest: Mapping[str, Any]) -> _Results:
    """One results file; StoreError unless all its lines are of this plan and of one board."""
    lines = list(read_lines(str(path)))
    header = next((line for line in lines if line["kind"] == "board"), None)
    if header is None:
        raise StoreError(f"{path} names no board: copy the whole file from the board again")
    for line in lines:
        if line["format"] != 1:
            raise StoreError(f"{path} has a line of format {line['format']}, not 1")
        if line["kind"] == "board" and line["plan"] != manifest["plan"]:
            raise StoreError(f"{path} holds results of another plan ({line['plan'][:60]!r})")
        of = line.get("board", header["board"])
        if changed := [key for key in SAME if of.get(key) != header["board"].get(key)]:
            raise StoreError(f"{path} is of boards of two kinds, by {changed[0]}: keep each apart")
        if line["board_id"] != header["board_id"]:
            raise StoreError(
                f"{path} mixes results of two boards ({header['board_id'][:60]!r} and "
                f"{line['board_id'][:60]!r}): measure each into a file of its own"
            )
        for item, samples in line.get("samples_us", {}).items():
            if item not in manifest["items"]:
                raise StoreError(f"{path} has a result of {item[:60]!r}, which is not in the plan")
            if not all(_SHORTEST_US < sample < _LONGEST_US for sample in samples):
                raise StoreError(f"{path} has samples of {item} that cannot be latencies")
    latest = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    undated = [line for line in lines if not _EARLIEST < line["at"] < latest]
    if undated:
        text = "%s: the board's clock was wrong (%s): what it measured then has no date"
        _log.warning(text, path, undated[0]["at"])
    for line in undated:
        line["at"] = ""
    visits, failures = ([x for x in lines if x["kind"] == one] for one in ("visit", "failure"))
    places = [(line["task"], line["round"], line.get("visit")) for line in visits]
    if len(set(places)) < len(unlike := {json.dumps(x, sort_keys=True) for x in visits}):
        why = f"{len(unlike) - len(set(places))} visits are there twice, with other samples"
        raise StoreError(f"{path}: {why}: copy the whole file from the board again")
    lost = Counter(line["task"] for line in failures if line.get("lost"))
    final = [one for one in failures if not one.get("lost") or lost[one["task"]] >= MAX_LOST]
    failed = {line["task"]: line["error"] for line in final}
    facts = _stated(header["board"])
    gpu, model, mode = (facts.get(name, "") for name in ("gpu", "model", "power_mode"))
    device, is_unsure = device_of(manifest["device"], gpu, model, mode)
    if is_unsure:
        text = "%s is of a GPU named %r, and counts as %s as the plan says: plan for its own name"
        _log.warning(text + " if it is another", path, gpu, device)
    limit = {} if "PCI" in gpu else {"power_limit": facts.get("power_limit_w", "")}
    sensors = [of for visit in visits for of in visit.get("sensors", {}).values()]
    clocks = [mhz for of in sensors for name, mhz in of.items() if name.startswith("sm_mhz")]
    if len(clocks) > 1 and len({*clocks}) == 1 and isinstance(clocks[0], float | int):
        limit["clock"] = str(clocks[0])  # the user locked it
    if held := held_on(Target(device, "tensorrt", "fp32"), limit):
        text = "%s: %s (%s), and counts as %s: plan for a device of its own name if it stays so"
        _log.warning(text, path, held.reason, held.value, device)
    return _Results(header["board_id"], device, header["at"], facts, visits, failed)


def _stated(facts: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in facts.items() if value not in ("", None)}


def _is_as_ordered(manifest: Mapping[str, Any], board: _Results, path: Path) -> bool:
    """Whether device and version are the plan's, by which networks fall into cells."""
    device, runtime = manifest["device"], manifest["runtime"]
    engine, _, version = runtime.partition("-")
    measured = board.runtime
    if measured.partition("-")[0] != engine:
        raise StoreError(f"{path} was measured with {measured}, and the plan is for {runtime}")
    is_any = not version[:1].isdigit()
    is_version = is_any or f"{measured}.".startswith(f"{runtime}.")
    if is_any and engine in FAMILY_OF:  # it was lowered as its target is predicted
        precision = next((one["precision"] for one in manifest["breakdowns"]), "fp32")
        ordered = timed_as(Target(device, engine, precision))
        there = replace(ordered, runtime=measured)
        is_version = registry.lowering_identity(ordered) == registry.lowering_identity(there)
        runtime = ordered.runtime if ordered.version else f"the newest {engine}"
    others = [(measured, runtime)] if not is_version else []
    others += [(board.device, device)] if board.device != device else []
    for pair in others:
        fix = "kept as that, without how its networks fall into cells: plan for what it is"
        _log.warning("%s was measured with %s, not %s: it is %s", path, *pair, fix)
    return not others


def read_results(folder: str | Path) -> ImportedRecords:
    """The records in a plan's folder, and how its networks fall into cells.

    Every ``results*.json*`` is read, each of one board. StoreError for what is damaged or mixed.
    """
    folder = Path(folder)
    try:
        manifest = Plan(str(folder)).content
        files = sorted(folder.glob("results*.json*"))
        boards = [_read_results_file(path, manifest) for path in files]
    except BoardError as error:
        raise StoreError(str(error)) from error
    if not boards:
        raise StoreError(f"{folder} holds no results yet: run run.sh or worker.py in it first")
    seen = set[str]()
    for board in sorted(boards, key=lambda one: -len(one.visits)):  # of copies the whole one first
        of = board.id, board.facts.get("settings")
        lines = {json.dumps([of, visit], sort_keys=True): visit for visit in board.visits}
        board.visits[:] = [visit for line, visit in lines.items() if line not in seen]
        seen.update(lines)
    for key, text in manifest["signatures"].items():
        if hash_of(text) != key:
            raise StoreError(f"the signature {key} in {folder} is not the hash of its text")
        if not text.startswith(f"{HEADER}\n"):
            raise StoreError(f"{folder} has signatures of another version of hybridlat: plan again")
    ids = {board.id for board in boards}
    for id_ in ids:
        _set_drift(manifest["reference"], [board.visits for board in boards if board.id == id_])
    records = [m for board in boards for m in _measurements(manifest, board)]
    breakdowns: list[Breakdown] = []
    for path, board in zip(files, boards, strict=True):
        for item in manifest["breakdowns"] if _is_as_ordered(manifest, board, path) else ():
            target = Target(board.device, board.runtime, item["precision"])
            uses, layers = (tuple((h, int(n)) for h, n in item[k]) for k in ("cells", "layers"))
            breakdowns.append(Breakdown(target, item["network"], item["signature"], uses, layers))
    planned = {(r["kind"], r["signature"], id_) for r in manifest["records"] for id_ in ids}
    ended = [r for r in records if r.failure is not None or MISSING not in r.environment]
    done = {(r.kind, r.signature, r.environment["board_id"]) for r in ended}
    if left := planned - done:
        text = "%s: %d of %d records lack visits: run the plan again, it goes on from there"
        _log.warning(text, folder, len(left), len(planned))
    return ImportedRecords(dict(manifest["signatures"]), records, breakdowns)


def _measurements(manifest: Mapping[str, Any], board: _Results) -> Iterator[Measurement]:
    rounds = {line["round"] for line in board.visits}
    drifts = ([line["drift"] for line in board.visits if line["round"] == one] for one in rounds)
    flicker = statistics.flicker_share(*drifts)
    tasks = {task["task"]: task for task in manifest["tasks"]}
    launches = {line["task"]: line["launch"] for line in board.visits if "launch" in line}
    for line in board.visits:
        for item, about in line.get("built", {}).items():
            launches.setdefault(item, str(about.get("launch") or ""))
    facts = {**board.facts, "plan": manifest["plan"], "board_id": board.id}
    for record in manifest["records"]:
        task = record["task"]
        items = tasks[task]["items"]
        rounds_of = _rounds(task, items, board.visits)
        reasons = [board.failures[name] for name in (task, *items) if name in board.failures]
        firsts = [line for line in board.visits if line["task"] in (task, items[0])]
        readings = (line.get("sensors", {}).get(items[0]) for line in firsts)
        missing = tasks[task]["rounds"] - len(rounds_of)
        more = {**next(filter(None, readings), {}), MISSING: missing if missing > 0 else None}
        subject = Measurement(
            Target(board.device, board.runtime, record["precision"]),
            record["signature"],
            record["kind"],
            None,
            protocol=f"board-2 {board.facts.get('runner', '')} {record['method']}",
            environment={**facts, **_stated(more)},
            measured_at=str(firsts[0]["at"] if firsts else board.at),
            labels=record["labels"],
            launch=_LAUNCHES.get(launches.get(items[0], "")),
        )
        visits = [visit for lines in rounds_of if (visit := _visit(items, lines)) is not None]
        if visits:
            yield statistics.record_of(subject, visits, flicker=flicker)
        elif reasons:
            yield structs.replace(subject, failure=reasons[0])


def _set_drift(reference: str, files: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Give a board's visits their ``drift``: 1.05 where its reference ran 5 % slower than usual."""

    def reference_us(line: Mapping[str, Any]) -> float:
        samples_us = line["samples_us"].get(reference) if line["task"] == reference else None
        own_us = statistics.level_us(samples_us) if samples_us else 0.0
        return max(0.0, line.get("reference_us", 0)) or own_us

    around = [{i: us for i, one in enumerate(file) if (us := reference_us(one))} for file in files]
    usual = statistics.usual_us([us for at in around for us in at.values()])
    for lines, at in zip(files, around, strict=True):
        for place, line in enumerate(lines):
            nearest = min(at, key=lambda other: abs(other - place), default=-1)
            line["drift"] = round(at[nearest] / usual, 5) if at else 1.0
            if not 1 / _MOST_DRIFT < line["drift"] < _MOST_DRIFT:
                raise StoreError(f"the reference took {at[nearest]:g} µs, {usual:g} µs elsewhere")


_Line = Mapping[str, Any]


def _rounds(task: str, items: Sequence[str], lines: Sequence[_Line]) -> list[list[_Line]]:
    """The visits of a task by the lines of its items: run.sh writes one for each, worker.py one."""
    whole = [[line] * len(items) for line in lines if line["task"] == task]
    if whole or len(items) == 1:
        return whole
    rounds: dict[int, dict[str, _Line]] = {}
    for line in lines:
        rounds.setdefault(line["round"], {})[line["task"]] = line
    ordered = (of_round for _, of_round in sorted(rounds.items()))
    return [[of[item] for item in items] for of in ordered if of.keys() >= {*items}]


def _visit(items: Sequence[str], lines: Sequence[_Line]) -> Visit | None:
    """Samples of the first item, less its second where it has one; None for too few."""
    each = [line["samples_us"].get(item, ()) for item, line in zip(items, lines, strict=True)]
    if min(map(len, each)) < _FEWEST_SAMPLES:
        return None
    first, drift = lines[0], lines[0]["drift"]
    if first is not lines[-1]:  # each was timed at another moment, at a speed of its own
        each = [[us / line["drift"] for us in us_] for us_, line in zip(each, lines, strict=True)]
        drift = 1.0
    timed, *taken_off = each
    kept = statistics.difference(timed, taken_off[0]) if taken_off else timed
    process = int(first.get("process", first.get("visit", 0)))
    return Visit(tuple(round(us, 3) for us in kept), drift, process)
