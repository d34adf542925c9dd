"""Records as they are written: every field with its type, read strictly. Loads msgspec.

A field too many, a missing one or one of another type is damage, not a variant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hybridlat.schema.measurement import RECORD_FORMAT, Kind

T = TypeVar("T")
Counted = tuple[str, int]
_SORTED = msgspec.json.Encoder(order="sorted")
_Entry = tuple[
    Annotated[float, Meta(gt=0)], Annotated[float, Meta(ge=0)], Annotated[int, Meta(ge=1)]
]


class Visit(Struct, forbid_unknown_fields=True):
    """Samples taken in a row."""

    samples_us: tuple[float, ...]
    drift: float
    process: int


class Measurement(Struct, forbid_unknown_fields=True):
    """A measurement, format 1."""

    format: int
    target: str
    signature: str
    kind: Kind
    latency_us: float | None
    spread_share: float
    visits: tuple[Visit, ...]
    overhead_us: float
    protocol: str
    environment: dict[str, str]
    measured_at: str
    failure: str | None
    labels: dict[str, str]


class Breakdown(Struct, forbid_unknown_fields=True):
    """A breakdown, format 1."""

    format: int
    target: str
    network: str
    signature: str
    cells: tuple[Counted, ...]
    layers: tuple[Counted, ...]
    labels: dict[str, str]


class Failures(Struct):
    """Reason by hash, for each kind."""

    cell: dict[str, str | None]
    network: dict[str, str | None]
    layer: dict[str, str | None]


class Lookup(Struct):
    """A pack's look-up file: latency_us, spread_share and records by hash, for each kind."""

    cell: dict[str, _Entry]
    network: dict[str, _Entry]
    layer: dict[str, _Entry]
    failures: Failures


def decode(text: bytes, form: type[T]) -> T:
    """A JSON document as ``form``; ValueError says in a phrase what is wrong."""
    try:
        return msgspec.json.decode(text, type=form)
    except msgspec.DecodeError as error:
        raise ValueError(_phrase(error)) from None


def decode_or_none(text: str | bytes | None, form: type[T]) -> T | None:
    """A JSON document as ``form``; None where there is none, or one of another form.

    For caches: what is damaged there counts as missing. ``form`` is any type that msgspec knows,
    such as a Struct, a dataclass or ``tuple[int, dict[str, float]]``.
    """
    try:
        return None if text is None else msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, UnicodeError):
        return None


def is_json(text: str) -> bool:
    """Whether a text is one JSON document."""
    return decode_or_none(text, msgspec.Raw) is not None


def canonical(body: Mapping[str, object], numbers: Iterable[float]) -> str:
    """The JSON that ids are hashes of: what ``json`` writes with sorted keys and without spaces.

    msgspec writes it several times quicker, and the same where all is ASCII that needs no escape
    and ``numbers``, the floats of ``body``, need no exponent.
    """
    if all(1e-4 <= abs(number) < 1e9 or not number for number in numbers):
        text = _SORTED.encode(body)
        if text.isascii() and b"\\" not in text and b"\x7f" not in text:
            return text.decode()
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def record(body: object, form: type[T], what: str) -> T:
    """``body``, JSON as Python has it, as a record of a format that this version reads.

    ValueError says in a phrase what is wrong.
    """
    if not isinstance(body, dict):
        raise ValueError(f"a {what} is a JSON object, not {type(body).__name__}")
    version: Any = body.get("format")
    if type(version) is not int or version < 1:
        raise ValueError(f"format {version!r} of a {what} is not a format number")
    if version > RECORD_FORMAT:
        raise ValueError(
            f"a {what} of format {version} is newer than format {RECORD_FORMAT}, "
            "the newest this version reads: upgrade hybridlat"
        )
    try:
        return msgspec.convert(body, form)
    except msgspec.ValidationError as error:
        raise ValueError(_phrase(error)) from None


def _phrase(error: Exception) -> str:
    """``latency_us: expected a float, got a str``, of "Expected `float`, got `str` - at `$.…`"."""
    sentence, _, path = str(error).replace("`", "").partition(" - at $")
    sentence = sentence[:1].lower() + sentence[1:]
    return f"{path.lstrip('.')}: {sentence}" if path else sentence
