"""Logs and exported times of trtexec: the latency of a run, and its target.

A log states device, version, precision and sizes; the times that ``--exportTimes`` writes state
nothing else, so the fields come from the log that names such a file.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from hybridlat.schema.target import Target
from hybridlat.store.importers.table import NetworkRow, Refusal, Rows, Size, files_at, target_of

ENDINGS = (".log", ".txt", ".json")
_OPTION = re.compile(r"--([A-Za-z0-9]+)(?:=(\S+))?")
_MEDIAN = re.compile(
    r"GPU Compute(?: Time)?\b[^\n]*?median\s*[=:]\s*([0-9.]+) ms"  # 8.0 and later: one line
    r"|GPU Compute\b[^\n]*\n(?:[^\n]*\n){0,6}?[^\n]*median:\s*([0-9.]+) ms"  # before: a list
)
_VERSION_TAG = re.compile(r"\[TensorRT v([0-9]+)\]")
_VERSION = re.compile(r"TensorRT version:\s*([0-9]+\.[0-9]+)")
_DEVICE = re.compile(r"Selected Device:\s*(.+)")
_PRECISION = re.compile(r"\bPrecision:\s*([A-Z0-9+ ]+)")
_DIMENSIONS = re.compile(r"[Ii]nput binding for \S+ (?:with dimensions|is)\s*:?\s*([0-9x]+)")
_NO_TIMES, _EXPORT = "the file holds no times of trtexec", "give what --exportTimes wrote"
_LOWEST = ("int8", "fp16", "bf16", "fp32")


@dataclass(frozen=True)
class TrtexecLog:
    """The fields of a log. ``times`` is the file of times of its run, ``labels`` how it ran."""

    fields: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    median_us: float | None = None
    batch: int | None = None
    size: Size | None = None
    times: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def read_logs(paths: Iterable[Path], default: Target | None = None) -> Rows:
    """The rows of all logs and exported times at ``paths``, and what holds none.

    ``default`` is the target of what a log does not state. Raises StoreError for no files.
    """
    files = files_at(paths, ENDINGS, "logs or times of trtexec")
    texts = [file for file in files if file.suffix.lower() != ".json"]
    logs = {file: read_log(file.read_text(encoding="utf-8", errors="replace")) for file in texts}
    times = {file.name for file in files if file not in logs}
    runs = {log.times: log for log in logs.values() if log.times in times}
    read = Rows()
    for file in files:
        try:
            if file not in logs:
                log = runs.get(file.name, TrtexecLog())
                read.rows.append(row_of(file, log, default, read_times(file)))
            elif logs[file].times not in times:  # else the times tell more of its run
                read.rows.append(row_of(file, logs[file], default))
        except Refusal as refusal:
            read.refused.append(refusal.at(file.name))
    return read


def read_log(text: str) -> TrtexecLog:
    """The fields of a log; one that it does not state is left out."""
    command = next((line for line in text.splitlines() if "trtexec" in line and "--" in line), "")
    options = {name: value or "" for name, value in _OPTION.findall(command)}
    stated = {
        "engine": "tensorrt",
        "version": _found(_VERSION, text) or _version_of(_found(_VERSION_TAG, text)),
        "device": _found(_DEVICE, text),
        "precision": _precision(text, options),
    }
    fields = {name: value for name, value in stated.items() if value}
    shape = _shape(text, options)
    batch = str(shape[0]) if shape else options.get("batch", "")
    files = [options[name] for name in ("onnx", "loadEngine") if options.get(name)]
    names = tuple(PurePath(f.strip("'\"").replace("\\", "/")).stem for f in files)
    median = _MEDIAN.search(text)
    median_us = float(median[1] or median[2]) * 1e3 if median else None
    size = (shape[2], shape[3]) if shape else None
    times = PurePath(options.get("exportTimes", "")).name
    labels = {"note": "CUDA graph"} if "useCudaGraph" in options else {}
    count = int(batch) if batch.isdigit() else None
    return TrtexecLog(fields, names, median_us, count, size, times, labels)


def row_of(
    file: Path, log: TrtexecLog, default: Target | None, times_us: Sequence[float] = ()
) -> NetworkRow:
    """The median that a log states, or that of the times of its run; raises Refusal.

    The spread of times is the relative standard error of the median of a normal sample,
    1.2533 s / (√n m). The engine is that of ``default`` where the log has no version.
    """
    median_us = statistics.median(times_us) if times_us else log.median_us
    if not median_us or median_us <= 0:
        raise Refusal(
            "the log states no median of GPU Compute Time", file.name,
            "give the whole log of a run of trtexec that came to its end",
        )  # fmt: skip
    deviation_us = statistics.stdev(times_us) if len(times_us) > 1 else 0.0
    fields = dict(log.fields)
    if "version" not in fields:
        fields["engine"] = default.runtime if default is not None else "tensorrt"
    return NetworkRow(
        file.name, (*log.names, file.stem), target_of(fields, default), median_us, log.batch,
        log.size, "trtexec --exportTimes" if times_us else "trtexec log", tuple(times_us),
        1.2533 * deviation_us / math.sqrt(len(times_us) or 1) / median_us, log.labels,
    )  # fmt: skip


def read_times(path: Path) -> tuple[float, ...]:
    """GPU compute time of every inference in ``--exportTimes``, microseconds; raises Refusal."""
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"), strict=False)
        entries = [entry for entry in content if isinstance(entry, Mapping)]
        times = [entry.get("computeMs", entry.get("compute")) for entry in entries]
        times_us = tuple(1e3 * float(time) for time in times if time is not None)
    except (OSError, TypeError, ValueError) as error:
        raise Refusal(_NO_TIMES, error, _EXPORT) from None
    if not times_us:
        raise Refusal(_NO_TIMES, path.name, _EXPORT)
    return times_us


def _version_of(tag: str) -> str:
    """``8601`` is 8.6 and ``100300`` is 10.3: the major version takes what is in front."""
    number, major = int(tag or 0), 1000 if len(tag) <= 4 else 10000
    return f"{number // major}.{number % major // 100}" if tag else ""


def _found(form: re.Pattern[str], text: str) -> str:
    match = form.search(text)
    return match[1].strip() if match else ""


def _precision(text: str, options: Mapping[str, str]) -> str:
    """The lowest precision that was allowed; a loaded engine has its own, which no log states."""
    stated = "" if "loadEngine" in options else _found(_PRECISION, text)
    for words in ({name.lower() for name in options}, set(re.split("[+ ]+", stated.lower()))):
        for precision in _LOWEST:
            if precision in words:
                return precision
    return "fp32" if options and "loadEngine" not in options else ""


def _shape(text: str, options: Mapping[str, str]) -> tuple[int, ...]:
    """Sizes of the first input of four; empty where none is stated."""
    given = options.get("shapes") or options.get("optShapes") or ""
    stated = [part.rpartition(":")[2] for part in given.split(",")] + _DIMENSIONS.findall(text)
    each = (tuple(int(n) for n in one.strip("'\"").split("x") if n.isdigit()) for one in stated)
    return next((sizes for sizes in each if len(sizes) == 4 and min(sizes) > 0), ())
