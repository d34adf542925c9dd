"""Logs and exported times of trtexec: the latency of every run, and its target."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hybridlat.schema.target import PRECISIONS, Target, version_key
from hybridlat.store.importers import trtexec_options
from hybridlat.store.importers.cells import MOST_US, target_of
from hybridlat.store.importers.files import files_at
from hybridlat.store.importers.notes import checked_note
from hybridlat.store.importers.sheets import check_run
from hybridlat.store.importers.table import HELD, NetworkRow, Refusal, Rows
from hybridlat.store.importers.trtexec_options import CONTRADICTION, PRINTED, read_times, text_of
from hybridlat.store.importers.trtexec_run import Run, TrtexecLog, meanwhile, path_of, with_builds

ENDINGS = (".log", ".txt", ".json")
_FEWEST = 5  # inferences
_DOUBT = "trtexec calls the time unstable, or timed hardly any inference: kept as suspect"
_UNSIZED = "no sizes are stated: they are those of the file, and 1 where it leaves them free"
BoardOf = Callable[[str, int | None, int | None, str, str], tuple[str, str]]
"""The board and a remark, by name, multiprocessors, bytes, the user's device and power mode."""


def read_logs(
    paths: Iterable[Path], default: Target | None = None, board_of: BoardOf | None = None
) -> Rows:
    """The rows of all runs and exported times at ``paths``, and what holds none."""
    read, runs = Rows(), list[Run]()
    files = files_at(paths, ENDINGS, "logs or times of trtexec", read.notes)
    exports = dict.fromkeys(file for file in files if file.suffix.lower() == ".json")
    names = Counter(file.name for file in files)
    shown = {file: file.name if names[file.name] == 1 else str(file) for file in files}
    only_one = {export.name: export for export in exports if names[export.name] == 1}
    for file in files:
        try:
            logs = [] if file in exports else read_runs(text_of(file))
        except Refusal as refusal:
            logs = [TrtexecLog(objection=refusal)]
        for log in logs:
            beside = file.parent / log.times
            runs.append((file, log, beside if beside in exports else only_one.get(log.times)))
    runs = with_builds(runs)
    owners = Counter(times for _, _, times in runs)  # how many runs name each file of times
    runs = [(file, log, times if owners[times] == 1 else None) for file, log, times in runs]
    for export in [export for export in exports if owners[export] != 1]:
        shared = Refusal("several runs name the file of times", export.name, "keep one for each")
        runs.append((export, TrtexecLog(objection=shared if owners[export] else None), export))
    for file, log, times in runs:
        where = f"{shown[file]}, line {log.line}" if log.line else shown[file]
        try:
            if objection := log.objection or meanwhile(log, runs):
                raise objection
            where = shown[times] if times else where
            times_us = read_times(times, log.median_us) if times else ()
            row = row_of(times or file, log, default, times_us)
            row, note = _settled(row, log, default, board_of)
            read.rows.append(replace(row, where=where))
            is_sized = bool(log.names[-1] or row.shapes or row.batch)
            remarks = (note, _DOUBT * bool(row.facts), "" if is_sized else _UNSIZED)
            read.notes.extend(f"{where}: {each}" for each in remarks if each)
        except Refusal as refusal:
            read.refused.append(refusal.at(where))
    return read


def read_runs(text: str) -> list[TrtexecLog]:
    """The fields of every run in a log, in order; a log that names no run is one."""
    starts = [match.start() for match in PRINTED["run"].finditer(text)] or [0]
    runs, line = list[TrtexecLog](), text.count("\n", 0, starts[0])
    above, smi = trtexec_options.above(text, starts), [*PRINTED["smi"].finditer(text)]
    for start, end, over in zip(starts, [*starts[1:], len(text)], above, strict=True):
        log = read_log(text[start:end], line)
        names = log.names if len(starts) == 1 else tuple(filter(None, log.names))
        fix = "give the run a log that is called as its network"
        nameless = None if names else Refusal("the run names no network", log.line, fix)
        device = over["visible"] or log.options.get("device", "0")
        own = [row.groups("") for row in smi if row.start() < start and row[1] == device]
        _, use, cap = [("", "", ""), *own][-1]
        over["smi"] = use and f"GPU {device}: {use}"
        cap *= "PCI" not in log.fields.get("device", "")  # whose limit is lower
        objection = log.objection or trtexec_options.slowed(over, log.clocks_hz) or nameless
        held = (over["most"], over["memory_most"], over["power_limit"] or cap)
        labels = {name: f"{float(mhz):g}" for name, mhz in zip(HELD, held, strict=True) if mhz}
        log = replace(log, names=names, labels={**labels, **log.labels}, objection=objection)
        runs.append(replace(log, power_mode=over["power_mode"], comment=over["comment"]))
        line += text.count("\n", start, end)
    return runs


def read_log(text: str, lines_before: int = 0) -> TrtexecLog:
    """The fields of one run; one that it does not state is left out."""
    last = PRINTED["last"].search(text)
    text, below = (text[: last.end()], text[last.end() :]) if last else (text, "")
    command = PRINTED["command"].search(text)
    words = command[0] if command else ""
    if last and " --" in last[0] and "&&&&" not in words:  # a line above may be another command's
        words = last[0]
    options = trtexec_options.of_run(words, text)
    is_rtx = PRINTED["rtx"].search(words) is not None
    tag = PRINTED["tag"].search(text)
    version = _matched("version", text) or (f"{tag[1]}.{int(tag[2])}" if tag else "")
    major = int(version.partition(".")[0] or 0)
    is_typed = is_rtx or major >= 11 or "stronglyTyped" in options
    is_typed |= "strongly" in options.get("precision", "").lower()
    is_typed &= "loadEngine" not in options
    stated = {"engine": "tensorrt-rtx" if is_rtx else "tensorrt", "version": version}
    stated["device"] = _matched("device", text)
    median_us, objection = None, None
    try:
        trtexec_options.check(options, text, below)
        stated["precision"] = trtexec_options.precision_of(options, is_typed)
    except Refusal as refusal:
        objection = refusal
    try:
        median_us = trtexec_options.median_us(text)
    except Refusal as refusal:
        objection = objection or refusal
    summary = {match[1]: match for match in PRINTED["summary"].finditer(text)}
    gpu = summary.get("GPU Compute Time")
    is_replayed = "useCudaGraph" in options or (major >= 11 and "noCudaGraph" not in options)
    is_replayed &= PRINTED["no_graph"].search(text) is None
    labels = {"options": trtexec_options.kept(options), "note": "CUDA graph" * is_replayed}
    labels["clock"] = str(max(map(int, PRINTED["busy_at"].findall(text)), default=""))
    ghz = (_matched(name, text) for name in ("clock", "memory_clock"))
    units, memory_mib = (int(_matched(name, text) or 0) for name in ("units", "memory_mib"))
    onnx, engine, times = (path_of(options, n) for n in ("onnx", "loadEngine", "exportTimes"))
    own = [str(onnx.with_suffix(""))] if onnx.name else []
    own += [engine.name.removesuffix(engine.suffix).removesuffix(".onnx")] if engine.name else []
    batch, shapes = trtexec_options.sizes_of(text, options)
    stamps = PRINTED["stamp"].findall(text) or [""]
    span = (stamps[0], _matched("begun", text) or stamps[0], stamps[-1])
    return TrtexecLog(
        fields={name: value for name, value in stated.items() if value},
        options=options,
        names=(*own, *[""] * (not onnx.name)),
        median_us=median_us,
        batch=batch,
        shapes=shapes,
        times=times.name,
        labels={name: value for name, value in labels.items() if value},
        is_typed=is_typed,
        board=(units or None, memory_mib << 20 or None),
        objection=objection,
        line=lines_before + text.count("\n", 0, command.start()) + 1 if command else 0,
        medians_us={name: trtexec_options.us(match[3]) for name, match in summary.items()},
        upper_us=(float(gpu[4]) / 100, trtexec_options.us(gpu[5])) if gpu and gpu[4] else None,
        clocks_hz=tuple(float(number or 0) * 1e9 or None for number in ghz),
        is_unstable=PRINTED["unstable"].search(text) is not None,
        span=span,
        gpu=(stated["device"], options.get("device", "0"), *PRINTED["uuid"].findall(text)[:1]),
    )


def row_of(
    file: Path, log: TrtexecLog, default: Target | None, times_us: Sequence[float] = ()
) -> NetworkRow:
    """The median that a log states, or that of the times of its run; raises Refusal.

    The spread of times is the relative standard error of the median of a normal sample.
    """
    median_us = statistics.median(times_us) if times_us else log.median_us
    if median_us is None or not 0 < median_us < MOST_US:
        fix = "give the whole log of trtexec 7.1 or later; figures of other tools go into a table"
        raise Refusal("the log states no median of GPU Compute Time", file.name, fix)
    deviation_us = statistics.stdev(times_us) if len(times_us) > 1 else 0.0
    return NetworkRow(
        where=file.name,
        names=tuple(name or file.stem for name in log.names),
        target=target_of(log.fields, default),
        latency_us=median_us,
        batch=log.batch,
        protocol="trtexec --exportTimes" if times_us else "trtexec log",
        samples_us=tuple(times_us),
        spread_share=1.2533 * deviation_us / math.sqrt(len(times_us) or 1) / median_us,
        labels=log.labels,
        shapes=log.shapes,
        facts={"suspect": True} if log.is_unstable or 0 < len(times_us) < _FEWEST else {},
    )


def _settled(
    row: NetworkRow, log: TrtexecLog, default: Target | None, board_of: BoardOf | None
) -> tuple[NetworkRow, str]:
    """The row with the board that was meant; Refusal where ``default`` is another target."""
    target, note = row.target, ""
    if board_of is not None and (name := log.fields.get("device")):
        word = default.device if default else ""
        device, note = board_of(name, *log.board, word, log.power_mode)
        target = replace(target, device=device)
    if default is not None:
        if (target.precision, default.precision) == ("fp32", "tf32"):  # one on tensor cores
            target = replace(target, precision="tf32")
        versions = zip(version_key(target.version), version_key(default.version), strict=False)
        if (
            (target.device, target.engine) != (default.device, default.engine)
            or any(one != other for one, other in versions)
            or (target.precision != default.precision and not log.is_typed)
        ):
            raise Refusal(CONTRADICTION, f"{target}, not {default}", "correct or omit --target")
    comment = "; ".join(line.strip(" \t#/*->") for line in log.comment.splitlines())
    check_run({0: "comment"}, (comment,), "")
    batch, *_ = next(iter(row.shapes.values()), (row.batch,))
    _, held = checked_note(comment, target, batch, None)
    row = replace(row, labels={**held, **row.labels})
    allowed = PRECISIONS if default is None else (default.precision,)
    return replace(row, target=target, typed=allowed if log.is_typed else ()), note


def _matched(name: str, text: str) -> str:
    match = PRINTED[name].search(text)
    return match[1].strip() if match else ""
