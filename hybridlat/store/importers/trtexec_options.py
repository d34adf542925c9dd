"""What trtexec 7 to 11 and tensorrt_rtx print and export, and what their options do to it."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hybridlat.schema.files import read_bytes
from hybridlat.schema.plugins import shipped_table
from hybridlat.store.importers.cells import MOST_US, Refusal
from hybridlat.store.importers.files import encoding_of

CONTRADICTION = "the log contradicts --target"
MIXED = "no target has this precision or this mix"

_TABLE = shipped_table("trtexec")
_PLAIN, _KEPT, _OF_RUN = (re.compile("|".join(_TABLE[n])) for n in ("plain", "kept", "of_run"))
_PATTERNS = {
    word.partition("=")[0]: (word.partition("=")[2], effect)
    for effect, words in _TABLE["other"].items()
    for word in words
}
_MS = r"([0-9]+(?:[.,][0-9]+)?(?:e[-+]?[0-9]{1,3})?) ms"
PRINTED = {
    name: re.compile("|".join([forms] if isinstance(forms, str) else forms).replace("MS", _MS))
    for name, forms in _TABLE["printed"].items()
}
"""What logs print."""
_LINE = r"(?m)(?:^[ \t]*|\[I\] )"
_TITLED = [
    (re.compile(f"{_LINE}(?:{title}): *(.*?)[ \t]*$"), name)
    for title, name in _TABLE["titles"].items()
]
_KNOWN = ("int8", "bf16", "fp16", "fp32")  # the lowest first
_HELD_SHARE = 0.95  # of the own clock or power: a lock above it steadies, and slows little
_CLOCKS = (("the GPU's clock", "MHz", 1e6), ("the memory's clock", "MHz", 1e6))
_HELD = (*_CLOCKS, ("the GPU's power", "W", 1.0))
_HINDRANCES = ("job", "profiled", "busy", "hindered", "smi")
_MOST_APART = 1.25  # the times may hold the warm-up, which the log's median leaves out
_MOST_AT_ONCE = 1.5  # of the medians of all inferences to the time from first to last
_SIZES = re.compile(r"[0-9]{1,9}(?:x[0-9]{1,9})*")


def text_of(file: Path) -> str:
    """The text of a file, without what steers a terminal; Refusal without, and for a notebook."""
    try:
        data = read_bytes(file)
    except OSError as error:
        raise Refusal("the file cannot be read", error.strerror, "check its permissions") from None
    text = re.sub("\r+\n?", "\n", data.decode(encoding_of(data), "replace"))
    if PRINTED["notebook"].search(text):
        raise Refusal("the file is a notebook", file.name, "save what its cells print as a .log")
    return re.sub(PRINTED["quoted"], _unquoted, re.sub(PRINTED["escape"], "", text))


def _unquoted(match: re.Match[str]) -> str:
    """A line, or a whole text, that JSON, YAML or Python print in quotes, without them."""
    if match[1] == "'":
        return match[2]
    escaped = {"n": "\n", "t": "\t"}
    plain = re.sub(r"\\(.)", lambda one: escaped.get(one[1], one[1]), match[2] or match[4])
    return f"\n{plain}\n" if match[4] else plain


def read_times(path: Path, log_us: float | None = None) -> tuple[float, ...]:
    """GPU compute time of every inference in ``--exportTimes``, microseconds.

    Raises Refusal, also where their median is not that of the log.
    """
    try:
        entries = json.loads(text_of(path), strict=False)
        times = [entry.get("computeMs", entry.get("compute")) for entry in entries]
        times_us = tuple(1e3 * time for time in times if time is not None)
        odd = [time_us for time_us in times_us if not 0 < time_us < MOST_US]
        if odd or not times_us:
            of = f"{len(odd)} of {len(times_us)} times out of range"
            raise ValueError(of if odd else "no entry states computeMs: a profile, perhaps")
        begun = [entry["startComputeMs"] for entry in entries if "startComputeMs" in entry]
        span_us = 1e3 * (max(begun) - min(begun)) if len(begun) > 1 else math.inf
    except (AttributeError, OverflowError, TypeError, ValueError, RecursionError) as error:
        why, fix = "the file holds no times of trtexec", "give what --exportTimes wrote"
        value = "no list of inferences" if isinstance(error, AttributeError) else str(error)[:80]
        raise Refusal(why, value, fix) from None
    median_us = statistics.median(times_us)
    if (len(begun) - 1) * median_us > _MOST_AT_ONCE * span_us:
        value = f"{len(begun)} of {median_us / 1e3:g} ms in {span_us / 1e3:g} ms"
        raise Refusal("several inferences run at once", value, "run trtexec without --infStreams")
    if not 1 / _MOST_APART < median_us / (log_us or median_us) < _MOST_APART:
        value = f"a median of {median_us / 1e3:g} ms, in the log {(log_us or 0) / 1e3:g} ms"
        raise Refusal("the times are of another run than the log", value, "keep both of one run")
    return times_us


def of_run(command: str, text: str) -> dict[str, str]:
    """The options of a command, and those that its log prints and a command that is cut lacks."""
    options: dict[str, str] = {}
    for title, name in _TITLED:
        values = dict.fromkeys(title.findall(text))
        if value := ",".join(v for v in values if not PRINTED["unset"].fullmatch(v or "-1")):
            options[name] = "" if value == "Enabled" else value
    if "loadEngine" in options or not re.search("Max batch: *[0-9]", text):
        options.pop("batch", None)  # of a loaded engine, or an explicit one
    for which, name, sizes, usual in PRINTED["ranges"].findall(text):
        key = "optShapes" if which == "build" else "shapes"
        options[key] = f"{options.get(key, '')},{name}:{usual or sizes}".lstrip(",")
    plain = re.sub(PRINTED["quote"], "", re.sub(PRINTED["dash"], "--", command))
    return options | dict(PRINTED["option"].findall(plain))


def check(options: Mapping[str, str], text: str, below: str = "") -> None:
    """Raise Refusal for a run that failed, is not alone, or timed more or less than the network.

    ``below`` is what stands under its last line.
    """
    values = {"Model": {options["onnx"]: None}} if "onnx" in options else {}
    for title, value in [*PRINTED["once"].findall(text), *PRINTED["ends"].findall(text + below)]:
        values.setdefault(title, {})[value] = None
    for title, several in values.items():
        whole = max(several, key=len)
        is_cut = title in ("&&&&", "Model") and all(map(whole.startswith, several))
        if len(several) > 1 and not is_cut:
            value = " and ".join(several)[:160]
            raise Refusal("lines of another run stand in the log", value, "give a log for each")
    if printed := PRINTED["other"].search(text + below):
        reason = "the run failed, or is no plain one of the GPU"
        raise Refusal(reason, printed[0][:80], "run it again")
    for name, value in options.items():
        pattern, effect = _PATTERNS.get(name, ("", ""))
        if not (effect or _PLAIN.fullmatch(name) or _KEPT.fullmatch(name)):
            effect = "it is not known whether the option changes what is timed"
        is_usual = pattern and re.fullmatch(pattern, value, re.IGNORECASE)
        is_apart = name in ("dumpProfile", "exportProfile") and "separateProfileRun" in options
        if effect and not is_usual and not is_apart:
            raise Refusal(effect, f"--{name}={value}"[:80].rstrip("="), "run trtexec without it")
    built = next(filter(None, map(options.get, ("optShapes", "maxShapes", "minShapes"))), "")
    sizes = dict(part.rpartition(":")[::2] for part in built.split(","))
    for part in sorted(options.get("shapes", "").split(",")):
        name, _, own = part.rpartition(":")
        if sizes.get(name, own) != own:
            raise Refusal("the engine is built for other sizes", part[:80], "build it for these")


def above(text: str, starts: Sequence[int]) -> Iterator[dict[str, str]]:
    """What is printed last above each run, by what it is; empty for nothing."""
    last = {name: _last(name, text, starts) for name in _TABLE["above"]}
    for name in ("comment", "power_mode"):  # below all runs it is theirs too
        if all(not each or each.isdecimal() for each in last[name]):
            last[name] = _last(name, text, [len(text)]) * len(starts)
    last["job"] = list(_beside(text, starts))
    yield from (dict(zip(last, each, strict=True)) for each in zip(*last.values(), strict=True))


def _beside(text: str, starts: Sequence[int]) -> Iterator[str]:
    """What else of the GPU's work the shell started in the background before each run."""
    matches = PRINTED["job"].finditer(text)
    jobs = [(match.start(), "".join(filter(None, match.groups()))) for match in matches]
    for start in starts:
        own = PRINTED["own"].match(text, start)
        groups: list[list[str]] = [[]]
        for job in [job for at, job in jobs if own and at < start]:
            groups[-1].append(job) if job else groups.append([])
        others = [[job for job in group if not own or _shares(job, own[1])] for group in groups]
        near = [o for o, group in zip(others, groups, strict=True) if len(o) < len(group)]
        yield next((job for jobs_left in (others[-1], *near) for job in jobs_left), "")


def _shares(job: str, own: str) -> bool:
    """Whether a job is another than a run's own, on the same GPU as far as it says."""
    gpus = {dict(PRINTED["option"].findall(command)).get("device", "0") for command in (job, own)}
    return own not in job and (len(gpus) == 1 or not job.startswith("trtexec"))


def _last(name: str, text: str, starts: Sequence[int]) -> list[str]:
    """What is printed last above each run; empty for nothing."""
    printed = [(m.start(), "".join(filter(None, m.groups()))) for m in PRINTED[name].finditer(text)]
    return [["", *(word for at, word in printed if at < start)][-1] for start in starts]


def slowed(above_it: Mapping[str, str], clocks_hz: Sequence[float | None]) -> Refusal | None:
    """Why a run is no plain one below what slows it, or a power mode that has only a number."""
    if hindered := next(filter(None, map(above_it.__getitem__, _HINDRANCES)), ""):
        why = "the GPU was hot, shared, waited for, profiled or kept from TF32"
        return Refusal(why, hindered.strip(), "run again without it")
    mode = above_it["power_mode"]
    if mode.strip("0").isdecimal():  # 0 is the usual one
        fix = "put what nvpmodel -q prints above the run"
        return Refusal("the power mode has no name", f"nvpmodel -m {mode}", fix)
    return held_below((above_it["locked"], above_it["memory_locked"]), clocks_hz)


def held_below(held: Sequence[str], own: Sequence[float | None]) -> Refusal | None:
    """Why a run at these clocks and this power is no plain one; None without, or near its own.

    ``held`` are the GPU's and the memory's clock in MHz, the power in W, ``own`` in Hz and W.
    """
    for (whose, unit, scale), text, most in zip(_HELD, held, own, strict=False):
        if text and (text == "tdp" or float(text) * scale <= _HELD_SHARE * (most or math.inf)):
            value = f"{text} {unit}".replace("tdp MHz", "tdp")  # the base clock
            fix = "reset it (nvidia-smi -rgc, -rmc, -pl) and run again, or name a device of its own"
            return Refusal(f"{whose} was held below its own", value, fix)
    return None


def kept(options: Mapping[str, str]) -> str:
    """The options that a record keeps, as they were written."""
    names = sorted(name for name in options if _KEPT.fullmatch(name))
    return " ".join(f"--{name}={options[name]}".rstrip("=") for name in names)[:500]


def precision_of(options: Mapping[str, str], is_typed: bool) -> str:
    """The lowest precision that was allowed; of a typed network FP32, until its file is read."""
    is_loaded = "loadEngine" in options
    printed = re.split(r"[+,\s]+", options.get("precision", "").lower().partition("(")[0])
    words = set() if is_typed or is_loaded else {*filter(None, printed)}
    allowed = words.union(() if is_typed else options)
    odd = words.difference(_KNOWN) or ({"fp16", "bf16"} if {"fp16", "bf16"} <= allowed else set())
    if odd:
        raise Refusal(MIXED, ", ".join(sorted(odd))[:80], "allow one precision alone")
    lowest = next((p for p in _KNOWN if p in allowed), "fp32" * bool(options and not is_loaded))
    return "fp32-strict" if lowest == "fp32" and "noTF32" in options else lowest


def of_engine(
    build: Mapping[str, str], run: Mapping[str, str], shapes: Mapping[str, Sequence[int]]
) -> dict[str, str]:
    """The options that built an engine, and those of a run that loads it with these ``shapes``.

    Where no sizes are given or printed, trtexec runs it at 1 in each that is free.
    """
    bound = ",".join(f"{name}:{'x'.join(map(str, sizes))}" for name, sizes in shapes.items())
    bound = bound or build.get("minShapes", "")
    options = {"optShapes": build["shapes"]} if "shapes" in build else {}
    options |= {name: value for name, value in build.items() if not _OF_RUN.fullmatch(name)}
    options |= {name: value for name, value in run.items() if _OF_RUN.fullmatch(name)}
    return {"shapes": bound} | options


def sizes_of(
    text: str, options: Mapping[str, str]
) -> tuple[int | None, dict[str, tuple[int, ...]]]:
    """The batch where it is implicit, and the whole shapes of inputs by their names."""
    names = ("shapes", "optShapes", "maxShapes", "minShapes")
    stated = next(filter(None, map(options.get, names)), "")
    bound = ",".join(f"{name}:{sizes}" for name, sizes in PRINTED["dimensions"].findall(text))
    pairs = [part.rpartition(":")[::2] for part in f"{stated},{bound}".split(",")]
    shapes = {n: tuple(map(int, sizes.split("x"))) for n, sizes in pairs if _SIZES.fullmatch(sizes)}
    is_explicit = stated or ("onnx" in options and not re.search("Max batch: *[0-9]", text))
    batch = re.fullmatch("[0-9]{1,9}", options.get("batch", ""))
    if batch is None or is_explicit or PRINTED["explicit_batch"].search(text):
        return None, shapes
    count = int(batch[0])
    return count, {name: (count, *sizes) for name, sizes in shapes.items()}


def median_us(text: str) -> float | None:
    """The median of GPU compute time; Refusal where two are stated, or one out of its range."""
    stated = {match[1] or match[2]: match[0] for match in PRINTED["median"].finditer(text)}
    if len(stated) > 1:
        values = " and ".join(stated)[:80]
        raise Refusal("the log holds several runs of one command", values, "give a log for each")
    for median, line in stated.items():
        bounds = PRINTED["range"].search(line)
        texts = (bounds[1], median, bounds[2]) if bounds else (median,)
        numbers = [us(text) for text in texts]
        if numbers != sorted(numbers):
            raise Refusal("the median is out of its range", median[:80], "run it again")
        return numbers[len(numbers) // 2]
    return None


def us(ms: str) -> float:
    """A number of milliseconds, in any language, in microseconds."""
    return float(ms.replace(",", ".")) * 1e3
