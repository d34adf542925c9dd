"""JSON documents as typed values, read strictly: damage is an error, or counts as missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hybridlat.errors import TargetError
from hybridlat.schema.shown import visible
from hybridlat.schema.target import Target

T = TypeVar("T")
R = TypeVar("R", bound=Struct)
_LONGEST_PHRASE = 300  # a document may hold any name


def decode(text: str | bytes, form: type[T]) -> T:
    """A JSON document as ``form``; ValueError names what is wrong."""
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(phrase_of(error)) from None


def decode_or_none(text: str | bytes | None, form: type[T]) -> T | None:
    """A JSON document as ``form``; None where there is none, or one of another form.

    For caches: what is damaged there counts as missing. ``form`` is any type that msgspec knows,
    such as a Struct, a dataclass or ``tuple[int, dict[str, float]]``.
    """
    with suppress(ValueError):
        return None if text is None else decode(text, form)
    return None


def canonical(body: Mapping[str, object]) -> str:
    """The JSON that ids are hashes of: sorted keys, no spaces."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


def record(
    body: object, form: type[R], what: str, newest: int, parts: Mapping[str, type[Struct]] = {}
) -> R:
    """``body``, JSON as Python has it, as a record of a format up to ``newest``."""
    if not isinstance(body, dict):
        raise ValueError(f"a {what} is a JSON object, not {type(body).__name__}")
    version: Any = body.get("format")
    if type(version) is not int or version < 1:
        raise ValueError(f"format {repr(version)[:60]} of a {what} is not a format number")
    if version > newest:
        raise ValueError(
            f"a {what} of format {str(version)[:20]} is newer than format {newest}, "
            "the newest this version reads: upgrade hybridlat"
        )
    values = {name: value for name, value in body.items() if name != "format"}
    target = values.get("target")
    if isinstance(target, str):
        try:
            values["target"] = Target.parse(target)
        except TargetError as error:
            raise ValueError(str(error)) from error
    elif "target" in values:
        raise ValueError(f"target: expected str, got {type(target).__name__}")
    try:
        read = msgspec.convert(values, form)
    except msgspec.ValidationError as error:
        raise ValueError(phrase_of(error)) from None
    _require_all(values, form)
    for name, part in parts.items():
        for item in values[name]:
            _require_all(item, part)
    return read


def _require_all(body: Mapping[str, object], form: type[Struct]) -> None:
    """ValueError for a missing field, also where the form has a default."""
    for name in form.__struct_fields__:
        if name not in body:
            raise ValueError(f"object missing required field {name}")


def phrase_of(error: Exception) -> str:
    """``latency_us: expected a float, got a str``, of "Expected `float`, got `str` - at `$.…`"."""
    words = visible(str(error))
    words = words if len(words) <= _LONGEST_PHRASE else f"{words[:_LONGEST_PHRASE]}…"
    sentence, _, path = words.replace("`", "").partition(" - at $")
    sentence = sentence[:1].lower() + sentence[1:] if sentence[:4] != "JSON" else sentence
    return f"{path.lstrip('.')}: {sentence}" if path else sentence
