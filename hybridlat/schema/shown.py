"""How an estimate shows itself in Python, and what of a text is shown."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeVar, overload

if TYPE_CHECKING:
    from _typeshed import StrPath

T = TypeVar("T")


class Shown:
    """``repr`` is one line, ``str`` the table of a terminal, a notebook shows the top cells.

    Values know no report: the package itself says which module makes these. It is loaded when it is
    first used, since values need neither rich nor pandas.
    """

    __slots__ = ()
    reports: ClassVar[Callable[[], Any]]

    def __repr__(self) -> str:
        return str(Shown.reports().line(self))

    def __str__(self) -> str:
        return str(Shown.reports().text(self))

    def _repr_html_(self) -> str:
        return str(Shown.reports().notebook(self))

    def to_frame(self) -> Any:
        """A pandas data frame with one row for each cell, times in microseconds.

        Raises MissingExtra where pandas is not installed.
        """
        return Shown.reports().frame_of_cells(self)

    def to_html(self, path: StrPath | None = None) -> str | None:
        """The page of ``predict --html``: its text, or None where it was written to ``path``.

        The graph of cells and the roofline need ``predict(..., describe=True)``.
        """
        page: str | None = Shown.reports().to_html((self,), path)
        return page


class Estimates(list[T]):
    """A list of estimates, of any iterable: ``str`` and a notebook show them as one table.

    Errors among them, as ``predict_many(errors="return")`` gives, are rows of their own.
    """

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Estimates[T]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> T | Estimates[T]:
        part: Any = super().__getitem__(index)
        return Estimates(part) if isinstance(index, slice) else part

    def __str__(self) -> str:
        return str(Shown.reports().text_of_many(self))

    def _repr_html_(self) -> str:
        return str(Shown.reports().notebook_of_many(self))

    def to_frame(self) -> Any:
        """As ``hybridlat.to_frame``: one row for each."""
        return Shown.reports().to_frame(self)


ALL, NOTHING = 0.995, 1e-9
"""From the first on whole percents would read 100; the second is what summing up leaves of none."""
_UNSEEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Unicode's categories of what steers a terminal, turns a text, breaks lines or has no form."""

_LONGEST_PHRASE = 300  # a document may hold any name


def visible(text: str, *, breaks: bool = False) -> str:
    """The text in one line, with U+FFFD for each character that is obeyed or not shown."""
    if text.isprintable():
        return text
    kept = "\n" if breaks else ""
    unseen = (c not in kept and unicodedata.category(c) in _UNSEEN for c in text)
    return "".join("\ufffd" if is_unseen else c for c, is_unseen in zip(text, unseen, strict=True))


def phrase_of(error: Exception) -> str:
    """``latency_us: expected a float, got a str``, of "Expected `float`, got `str` - at `$.…`"."""
    words = visible(str(error))
    words = words if len(words) <= _LONGEST_PHRASE else f"{words[:_LONGEST_PHRASE]}…"
    sentence, _, path = words.replace("`", "").partition(" - at $")
    sentence = sentence[:1].lower() + sentence[1:] if sentence[:4] != "JSON" else sentence
    return f"{path.lstrip('.')}: {sentence}" if path else sentence


def count_text(number: int, noun: str, one: str = "", many: str = "") -> str:
    """``1 cell``, ``3 cells``; with a verb for one and for many, ``1 cell has``."""
    counted = f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
    return f"{counted} {one if number == 1 else many}".rstrip()


def part_text(share: float) -> str:
    """``82 %``; never all or nothing where it is not: ``> 99 %``, ``< 1 %``."""
    if ALL <= share < 1 - NOTHING:
        return "> 99 %"
    return "< 1 %" if NOTHING < share <= 1 - ALL else f"{100 * share:.0f} %"


def number_of(value: object) -> float:
    """``value`` as a float; NaN where it is no number, such as text, None or True."""
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit of time for one text or one column: ``unit_us`` microseconds make one ``name``."""

    name: str
    unit_us: float

    def number(self, latency_us: float, decimals: int | None = None) -> str:
        """The number alone; three significant digits unless ``decimals`` says otherwise."""
        value = latency_us / self.unit_us
        return f"{value:,.{decimals_of(value) if decimals is None else decimals}f}"


def scale_for(latencies_us: Iterable[float | None]) -> Scale:
    """The unit in which the largest of these reads best."""
    largest_us = max((abs(v) for v in latencies_us if v is not None), default=0.0)
    if largest_us >= 999_500:  # what would be written as 1,000 ms is 1.00 s
        return Scale("s", 1e6)
    return Scale("ms", 1e3) if largest_us >= 999.5 else Scale("µs", 1.0)


def latency_text(latency_us: float | None) -> str:
    """``8.12 ms``, ``812 µs``; a dash where there is none."""
    if latency_us is None:
        return "–"
    scale = scale_for([latency_us])
    return f"{scale.number(latency_us)} {scale.name}"


def decimals_of(value: float) -> int:
    """Decimals that show three significant digits, as the rounded number will be read."""
    return 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
