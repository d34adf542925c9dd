"""How values are written on the command line: shares, durations, latencies, shapes, files."""

from __future__ import annotations

import datetime
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hybridlat.errors import HybridlatError

_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_DURATIONS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LATENCIES_US = {"us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_MOST_VALUES = 200  # of a curve
_LONGEST = 1e15  # of any time in its unit, and of images a second: more is a slip of the finger


class Value(click.ParamType):  # type: ignore[type-arg]  # not generic in older versions of click
    """A value that is written as text; ``read`` raises ValueError with what is wrong."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the text says; what is no text stays as it is."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _moment(text: str) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        why = f"{text!r} is not a time: write it as 2026-11-21 or 2026-11-21T14:30"
        raise ValueError(why) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def whole(least: int, most: int = 2**31, also: int | None = None) -> Value:
    """Whole numbers from ``least`` to ``most``, and ``also`` one beside them."""

    def read(text: str) -> int:
        number = int(text) if re.fullmatch(r"\s*-?[0-9]{1,10}\s*", text) else None
        if number is None or (number != also and not least <= number <= most):
            to = f" to {most}" if most < 2**31 else " up"
            raise ValueError(f"{text!r} is not a whole number from {least}{to}")
        return number

    return Value("N", read)


def _share(text: str) -> float:
    match = re.fullmatch(rf"({_NUMBER})\s*(%?)", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a share: write it as 5% or 0.05")
    value = float(match[1]) / (100 if match[2] else 1)
    if not match[2] and 1 < value < 100:
        raise ValueError(f"{text!r} lacks its sign: write {value:g}% (or {value / 100:g})")
    if not 0 < value < 1:
        raise ValueError(f"{text!r} is not above 0 and below 100%: write it as 5% or 0.05")
    return value


def _duration_s(text: str, plain: bool = False) -> float:
    word = text.strip().lower()
    if re.fullmatch(_NUMBER, word):
        if plain:
            return float(word)
        raise ValueError(f"{text!r} lacks its unit: write {word}s, {word}m or {word}h")
    terms = re.findall(rf"({_NUMBER})\s*([a-z]+)", word)
    units = {unit for _, unit in terms}
    total = math.nan
    if re.fullmatch(rf"(?:(?:{_NUMBER})\s*[a-z]+\s*)+", word) and (
        units <= _DURATIONS_S.keys() and len(units) == len(terms)
    ):
        total = sum(float(number) * _DURATIONS_S[unit] for number, unit in terms)
    if not 0 < total < _LONGEST:
        raise ValueError(f"{text!r} is not a duration: write it as 90s, 10m or 1h30m")
    return total


def _latency_us(text: str) -> float:
    match = re.fullmatch(rf"({_NUMBER})\s*([a-zµμ]+)", text.strip().lower())
    value = float(match[1]) * _LATENCIES_US.get(match[2], math.nan) if match else math.nan
    if not 0 < value < _LONGEST:
        raise ValueError(f"{text!r} is not a latency: write it as 8ms, 800us or 0.01s")
    return value


def _measured(text: str) -> float | str | tuple[str, float]:
    with suppress(OSError):  # of a name that no file can have
        if Path(text).is_file():
            return text
    try:
        unit, value = _budget(text)
        return value if unit == "max_latency_us" else (unit, value)
    except ValueError as error:
        raise ValueError(f"{error}, or name trtexec's log (there is no such file)") from None


def _fps(text: str) -> float:
    match = re.fullmatch(rf"({_NUMBER})\s*(?:fps)?", text.strip().lower())
    if match is None or not 0 < float(match[1]) < _LONGEST:
        raise ValueError(f"{text!r} is no number of images a second: write it as 30 or 30fps")
    return float(match[1])


def _budget(text: str) -> tuple[str, float]:
    if text.strip().lower().endswith("fps"):
        return "fps", _fps(text)
    try:
        return "max_latency_us", _latency_us(text)
    except ValueError as error:
        raise ValueError(f"{error}, or as images a second: 30fps") from None


def _known(text: str) -> tuple[str, float]:
    path, _, latency = text.rpartition("=")
    if not path:
        raise ValueError(f"{text!r} states no latency: write net.onnx=1.21ms or net.onnx@8=4.1ms")
    return path, _latency_us(latency)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition(":")  # the name of an input may hold colons itself
    words = re.split("[x×,]", re.sub("^n", "-1", sizes.strip().lower()))
    if not name or not all(re.fullmatch("[0-9]{1,12}", n) for n in words[words[0] == "-1" :]):
        raise ValueError(f"{text!r} is not a shape: write it as NAME:1x3x224x224")
    shape = tuple(map(int, words))
    if 0 in shape:
        raise ValueError(f"{text!r} has a size of 0: every size must be at least 1")
    return name, shape


def _batches(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,9}", word) and int(word) for word in words):
        raise ValueError(f"{text!r} is no list of batch sizes: write it as 8 or 1,2,4,8")
    return tuple(dict.fromkeys(map(int, words)))


def _curve(text: str) -> tuple[float, ...]:
    words = re.split("[:,]", text.strip())
    if not all(re.fullmatch(_NUMBER, word) and float(word) for word in words):
        raise ValueError(f"{text!r} is no range of numbers above 0: write 320:640:64 or 1,2,4")
    numbers = [float(word) for word in words]
    if ":" not in text:
        return tuple(numbers)
    first, last, step = numbers if len(numbers) == 3 else (*numbers[:2], 0.0)
    count = 1 + math.floor((last - first) / step + 1e-9) if step else 0
    if not 1 < count <= _MOST_VALUES or "," in text:
        raise ValueError(f"{text!r} is no range of 2 to {_MOST_VALUES} values: FROM:TO:STEP")
    return tuple(round(first + i * step, 9) for i in range(count))


MOMENT = Value("time", _moment)  # 2026-11-21 or 2026-11-21T14:30, in UTC unless it names a zone
SHARE = Value("share", _share)  # 5% or 0.05; a plain 5 lacks its sign
DURATION = Value("duration", _duration_s)  # 90s, 10m, 1h30m, in seconds
SECONDS = Value("duration", lambda text: _duration_s(text, plain=True))  # or a plain number
MEASURED = Value("latency", _measured)  # 8ms or 30fps, or the name of a file that is there
BUDGET = Value("budget", _budget)  # 8ms or 30fps: an argument of Estimate.against and its value
FPS = Value("images a second", _fps)  # 30 or 30fps
KNOWN = Value("network=latency", _known)  # net.onnx@8=4.1ms: the path and the microseconds
SHAPE = Value("name:shape", _shape)  # input:1x3x224x224
CURVE = Value("range", _curve)  # 320:640:64, both ends included, or 320,416,640
BATCHES = Value("batches", _batches)  # 8, or 1,2,4,8: each once, in their order


class Place(click.Path):
    """A file or a folder. An empty name, as of a shell's variable, is not the folder one is in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("an empty name is no file and no folder", param, ctx)
        return super().convert(value, param, ctx)


class OutputFile(Place):
    """A file to write, or ``-``. What begins with a dash is the next option."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, allow_dash=allow_dash)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = os.fspath(value)
        if text.startswith("-") and not (text == "-" and self.allow_dash):
            dash = ", or - for standard output" if self.allow_dash else ""
            self.fail(f"{text!r} looks like an option: write ./{text}{dash}", param, ctx)
        if os.path.realpath(text).lower().endswith(".onnx"):  # of a word forgotten
            self.fail(f"{text!r} is the name of a network: write a page or table beside it", param)
        if not Path(text).parent.is_dir():  # else it is seen when all is worked out
            self.fail(f"there is no folder {str(Path(text).parent)!r}: make it first", param, ctx)
        return super().convert(value, param, ctx)


def complete_target(
    _context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """The known targets that begin as typed; none where even the store cannot be read."""
    from hybridlat.estimate.lookup.target_list import list_targets

    names = list[str]()
    with suppress(HybridlatError):
        names = [info.target for info in list_targets()]
    return [CompletionItem(name) for name in names if name.startswith(typed)]


def check_outputs(ctx: click.Context) -> None:
    """Raises UsageError where a command writes one file twice, or over one that it reads."""
    outputs = {p.name for p in ctx.command.params if isinstance(p.type, OutputFile)}
    files = Counter(os.path.realpath(file) for name in outputs if (file := ctx.params[name or ""]))
    read = {path for name in ctx.params.keys() - outputs for path in _paths(ctx.params[name])}
    for file, uses in files.items():
        if uses > 1 and (Path(file).is_file() or not Path(file).exists()):
            raise click.UsageError(f"two outputs cannot be one file, {file}.", ctx)
        if file in read or _is_database(file):  # a store may not be there yet
            fix = "write a page or table beside it"
            raise click.UsageError(f"{file} is the place of a network or a store: {fix}.", ctx)


def _paths(value: object) -> Iterator[str]:
    """What in the value of an option may be the name of a file, alone or before a batch (``@``)."""
    for one in value if isinstance(value, tuple | list | dict) else (value,):
        if isinstance(one, str | os.PathLike):
            yield os.path.realpath(one)
            yield os.path.realpath(os.fspath(one).rpartition("@")[0])


def _is_database(file: str) -> bool:
    with suppress(OSError), Path(file).open("rb") as stream:
        return stream.read(6) == b"SQLite"
    return False
