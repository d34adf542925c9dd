"""How values are written on the command line: shares, durations, latencies, shapes, targets."""

from __future__ import annotations

import datetime
import math
import os
import re
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from hybridlat import api
from hybridlat.errors import HybridlatError

_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_DURATIONS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LATENCIES_US = {"us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6}
_LONGEST = 1e15  # of any time: more is a slip of the finger


if TYPE_CHECKING:
    _Base = click.ParamType[object]
else:
    _Base = click.ParamType  # not a generic class in older versions of click


class _Text(_Base):
    """A value that is written as text; ``read`` raises ValueError with what is wrong."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def read(self, text: str) -> object:
        raise NotImplementedError


class Moment(_Text):
    """``2026-11-21`` or ``2026-11-21T14:30``, in UTC unless it names another zone."""

    name = "time"

    def read(self, text: str) -> datetime.datetime:
        """The moment, with its zone."""
        try:
            moment = datetime.datetime.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(
                f"{text!r} is not a time: write it as 2026-11-21 or 2026-11-21T14:30"
            ) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


class Share(_Text):
    """``5%`` or ``0.05``: above 0, at most ``most``; more than 1 only in percent.

    A plain 5 is a percent sign forgotten.
    """

    name = "share"

    def __init__(self, most: float = 1.0) -> None:
        self.most = most

    def read(self, text: str) -> float:
        """The share, 0..1."""
        match = re.fullmatch(rf"({_NUMBER}(?:e-?[0-9]+)?)\s*(%?)", text.strip(), re.IGNORECASE)
        if match is None:
            raise ValueError(f"{text!r} is not a share: write it as 5% or 0.05")
        value = float(match[1]) / (100 if match[2] else 1)
        if not 0 < value <= (self.most if match[2] else 1):
            most = f"{100 * self.most:.0f}%"
            raise ValueError(f"{text!r} is not above 0 and at most {most}: write it as 5% or 0.05")
        return value


class Duration(_Text):
    """``90s``, ``10m``, ``1h``, ``1h30m``."""

    name = "duration"

    def read(self, text: str) -> float:
        """Seconds."""
        try:
            return _sum_of_times(text, _DURATIONS_S)
        except ValueError:
            raise ValueError(f"{text!r} is not a duration: write it as 90s, 10m or 1h30m") from None


class Latency(_Text):
    """``8ms``, ``800us``, ``0.01s``."""

    name = "latency"

    def read(self, text: str) -> float:
        """Microseconds."""
        match = re.fullmatch(rf"({_NUMBER})\s*([a-zµμ]+)", text.strip().lower())
        value = float(match[1]) * _LATENCIES_US.get(match[2], math.nan) if match else math.nan
        if not 0 < value < _LONGEST:
            raise ValueError(f"{text!r} is not a latency: write it as 8ms, 800us or 0.01s")
        return value


class Shape(_Text):
    """``input:1x3x224x224``; the name of the input may hold colons itself."""

    name = "name:shape"

    def read(self, text: str) -> tuple[str, tuple[int, ...]]:
        """Name of the input and its sizes."""
        name, _, sizes = text.rpartition(":")
        words = re.split("[x×,]", sizes.strip().lower())
        if not name or not all(re.fullmatch("[0-9]{1,12}", word) for word in words):
            raise ValueError(f"{text!r} is not a shape: write it as NAME:1x3x224x224")
        shape = tuple(map(int, words))
        if 0 in shape:
            raise ValueError(f"{text!r} has a size of 0: every size must be at least 1")
        return name, shape


class Batches(_Text):
    """``8``, or ``1,2,4,8``: batch sizes, each once, in the order that they are given."""

    name = "batches"

    def read(self, text: str) -> tuple[int, ...]:
        """The sizes."""
        words = [word.strip() for word in text.split(",")]
        if not all(re.fullmatch("[0-9]{1,9}", word) and int(word) for word in words):
            raise ValueError(f"{text!r} is no list of batch sizes: write it as 8 or 1,2,4,8")
        return tuple(dict.fromkeys(map(int, words)))


class OutputFile(click.Path):
    """A file to write, or ``-``. What begins with a dash is the next option."""

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(dir_okay=False, allow_dash=allow_dash)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The path as it was given."""
        text = os.fspath(value)
        if text.startswith("-") and not (text == "-" and self.allow_dash):
            dash = ", or - for standard output" if self.allow_dash else ""
            self.fail(f"{text!r} looks like an option: write ./{text}{dash}", param, ctx)
        return super().convert(value, param, ctx)


BATCHES = Batches()
SHARE, DURATION, LATENCY, SHAPE = Share(), Duration(), Latency(), Shape()
# The farther end of an interval may be more than the latency itself away from it.
MOMENT = Moment()
TOLERANCE = Share(most=9.0)


def _sum_of_times(text: str, units: dict[str, float]) -> float:
    word = text.strip().lower()
    if re.fullmatch(rf"(?:(?:{_NUMBER})\s*[a-z]+\s*)+", word) is None:
        raise ValueError(text)
    terms = re.findall(rf"({_NUMBER})\s*([a-z]+)", word)
    names = [unit for _, unit in terms]
    if not set(names) <= set(units) or len(set(names)) < len(names):
        raise ValueError(text)
    total = sum(float(number) * units[unit] for number, unit in terms)
    if not 0 < total < _LONGEST:
        raise ValueError(text)
    return total


def known_targets() -> list[str]:
    """Targets to complete or suggest; none where even the store cannot be read."""
    try:
        return [info.target for info in api.list_targets()]
    except HybridlatError:
        return []


def complete_target(
    _context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem]:
    """The known targets that begin as typed, for the shell."""
    return [CompletionItem(name) for name in known_targets() if name.startswith(typed)]
